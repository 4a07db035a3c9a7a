//! Writes and syncs fail: what is told of it, and what becomes of what was appended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::super::names::MANIFEST_NEW;
use super::super::sim::SimFaults;
use super::super::storage::Storage;
use super::super::writer::Next;
use super::super::{Journal, JournalError, Position, SyncPolicy};
use super::scene::{SMALL, Scene};
use crate::limits::JOURNAL_RETRY;

/// Counts how often it is called.
#[derive(Default)]
struct Counter(AtomicU32);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counter {
    fn new() -> (Arc<Self>, Waker) {
        let counter = Arc::new(Self::default());
        (counter.clone(), Waker::from(counter))
    }

    fn calls(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn open(sync: SyncPolicy) -> Scene {
    let mut scene = Scene::new(1);
    scene.open().expect("it opens");
    scene.journal().set_sync(sync);
    scene.step();
    scene
}

/// The same, with a segment.
fn open_and_begin(sync: SyncPolicy) -> Scene {
    let mut scene = open(sync);
    scene.append(10);
    scene.step();
    assert_eq!(scene.journal().durable(), scene.journal().appended());
    scene.pass(Duration::from_millis(6));
    scene
}

#[test]
fn whoever_waits_is_woken_once_it_is_durable_and_not_before() {
    let mut scene = open(SyncPolicy::Always);
    let (first, second) = (scene.append(10), scene.append(10));
    let (counter, waker) = Counter::new();
    scene.journal().wake_when_durable(first, &waker);
    scene.journal().wake_when_durable(first, &waker);
    assert_eq!(counter.calls(), 0);
    scene.step();
    assert!(scene.journal().durable() >= second, "one sync is for all");
    assert_eq!(counter.calls(), 1);
    scene.journal().wake_when_durable(second, &waker);
    assert_eq!(counter.calls(), 2, "at once");
}

#[test]
fn every_second_means_every_second() {
    let mut scene = open_and_begin(SyncPolicy::EverySecond);
    let end = scene.append(10);
    scene.step();
    scene.pass(Duration::from_millis(999));
    scene.step();
    assert!(scene.journal().durable() < end);
    assert!(scene.journal().shared.behind(scene.now) >= Duration::from_millis(999));
    scene.pass(Duration::from_millis(1));
    scene.step();
    assert!(scene.journal().durable() >= end);
    assert_eq!(scene.journal().shared.behind(scene.now), Duration::ZERO);
}

#[test]
fn never_syncs_for_size_alone() {
    let mut scene = open_and_begin(SyncPolicy::Never);
    let end = scene.append(100);
    scene.step();
    scene.pass(Duration::from_secs(3_600));
    scene.step();
    assert!(scene.journal().durable() < end);
    scene.append(SMALL.sync_bytes as usize);
    scene.pass(Duration::from_secs(1));
    scene.step();
    assert!(scene.journal().durable() >= end);
}

#[test]
fn where_space_is_lacking_the_journal_goes_on_once_there_is_some() {
    let mut scene = open(SyncPolicy::Always);
    let segments = {
        scene.append(100);
        scene.step();
        scene.journal().status().segments
    };
    scene.folder.set_faults(SimFaults { bytes_max: Some(600), ..SimFaults::default() });
    let (counter, waker) = Counter::new();
    while scene.journal().has_room() {
        let end = scene.append(400);
        scene.journal().wake_when_durable(end, &waker);
    }
    scene.journal().wake_when_room(&waker);
    scene.step();
    assert!(scene.journal().is_failing());
    assert!(counter.calls() > 1, "whoever waits is told");
    let calls = counter.calls();
    scene.journal().wake_when_durable(scene.journal().appended(), &waker);
    assert_eq!(counter.calls(), calls + 1, "at once");
    let status = scene.journal().status();
    let error = status.error.expect("there is one");
    assert!(error.to_string().contains("No space left on device"), "{error}");
    // It is not tried again and again, whatever comes.
    let operations = scene.folder.operations();
    for _ in 0..5 {
        assert!(matches!(scene.step(), Next::Wait(wait) if wait.is_failing));
    }
    assert_eq!(scene.folder.operations(), operations);
    scene.pass(JOURNAL_RETRY);
    scene.step();
    assert!(scene.journal().is_failing(), "there is no space yet");
    scene.folder.set_faults(SimFaults::default());
    scene.pass(JOURNAL_RETRY);
    scene.step();
    assert!(!scene.journal().is_failing());
    assert_eq!(scene.journal().durable(), scene.journal().appended());
    assert!(scene.journal().has_room());
    assert_eq!(scene.journal().status().error, None);
    assert_eq!(scene.journal().status().segments, segments, "in the same segment");
    scene.lose_power();
    scene.open().expect("it opens");
}

#[test]
fn a_failed_sync_is_not_believed_later() {
    let mut scene = open(SyncPolicy::Always);
    scene.append(100);
    scene.step();
    let durable = scene.journal().durable();
    let end = scene.append(700);
    // The write works, and the sync behind it does not.
    let fail_at = Some(scene.folder.operations() + 1);
    scene.folder.set_faults(SimFaults { fail_at, ..SimFaults::default() });
    scene.pass(Duration::from_secs(1));
    scene.step();
    assert!(scene.journal().is_failing());
    assert_eq!(scene.journal().durable(), durable);
    assert_eq!(scene.journal().status().segments, 1);
    scene.pass(JOURNAL_RETRY);
    scene.step();
    assert!(scene.journal().durable() >= end);
    assert_eq!(scene.journal().status().segments, 2, "it was written anew");
    scene.lose_power();
    scene.open().expect("it opens");
    assert_eq!(scene.records.len(), 2);
}

#[test]
fn segments_that_were_tried_in_vain_do_not_pile_up() {
    let mut scene = open(SyncPolicy::Always);
    scene.folder.set_faults(SimFaults { failing: 700, ..SimFaults::default() });
    let end = scene.append(700);
    for _ in 0..300 {
        scene.pass(JOURNAL_RETRY);
        scene.step();
    }
    scene.folder.set_faults(SimFaults::default());
    scene.pass(JOURNAL_RETRY);
    scene.step();
    assert!(scene.journal().durable() >= end);
    assert!(scene.journal().status().segments <= 2);
}

#[test]
fn a_checkpoint_takes_the_place_of_the_records_before_it() {
    let mut scene = open(SyncPolicy::EverySecond);
    for _ in 0..20 {
        scene.append(500);
        scene.pass(Duration::from_millis(10));
        scene.step();
    }
    let status = scene.journal().status();
    assert!(status.segments > 2 && status.checkpoint == Position(0), "{status:?}");
    assert!(scene.checkpoint());
    let status = scene.journal().status();
    assert!(status.segments <= 1 && status.checkpoint > Position(10_000), "{status:?}");
    assert!(status.snapshot_bytes > 10_000 && status.bytes < 200, "{status:?}");
    let first = status.checkpoint;
    scene.append(100);
    assert!(scene.checkpoint(), "and another");
    assert!(scene.journal().status().checkpoint > first);
    scene.pass(Duration::from_secs(1));
    scene.step();
    let records = scene.records.len();
    scene.lose_power();
    scene.open().expect("it opens");
    assert_eq!(scene.records.len(), records);
    assert!(scene.journal().status().snapshot_bytes > 10_000);
}

/// Their files go by the position.
#[test]
fn no_two_checkpoints_have_one_position_though_nothing_is_appended_between_them() {
    let mut scene = open(SyncPolicy::Always);
    scene.append(10);
    let mut last = Position(0);
    for round in 0..12 {
        let at = scene.journal().begin_checkpoint();
        assert!(at > last, "round {round}");
        last = at;
        if round % 3 == 0 {
            scene.step();
        }
        if round % 4 == 3 {
            assert!(scene.checkpoint());
            last = scene.journal().status().checkpoint;
            assert!(last > at, "round {round}");
            scene.kill();
            scene.open().expect("it opens");
        }
    }
}

#[test]
fn a_checkpoint_that_another_has_replaced_comes_to_nothing() {
    let mut scene = open(SyncPolicy::Always);
    scene.append(10);
    let old = scene.journal().begin_checkpoint();
    scene.append(10);
    let new = scene.journal().begin_checkpoint();
    scene.step();
    assert_eq!(scene.journal().end_checkpoint(old, None), Err(JournalError::Overtaken));
    let missing = scene.journal().end_checkpoint(new, None);
    assert!(matches!(missing, Err(JournalError::Io { operation: "open of the snapshot", .. })));
}

/// Tried again and again, it would fill the drive that has no space for its manifest.
#[test]
fn a_checkpoint_that_surely_fails_leaves_nothing() {
    let mut scene = open(SyncPolicy::Always);
    scene.append(10);
    let at = scene.journal().begin_checkpoint();
    scene.step();
    let names = |scene: &Scene| scene.folder.list().expect("it can be read");
    let before = names(&scene);
    scene.folder.create(&Journal::snapshot_name(at)).expect("a file");
    scene.journal().put_flash_state(at, b"state").expect("a file");
    assert_eq!(names(&scene).len(), before.len() + 2);
    scene.folder.set_faults(SimFaults { bytes_max: Some(0), ..SimFaults::default() });
    let ended = scene.journal().end_checkpoint(at, None);
    assert!(matches!(ended, Err(JournalError::Io { .. })), "{ended:?}");
    scene.folder.set_faults(SimFaults::default());
    let is_new = |name: &String| name == MANIFEST_NEW || before.contains(name);
    assert!(names(&scene).iter().all(is_new), "{:?}", names(&scene));
}

#[test]
fn a_checkpoint_of_a_journal_that_fails_does_not_end() {
    let mut scene = open(SyncPolicy::Always);
    scene.folder.set_faults(SimFaults { failing: 1000, ..SimFaults::default() });
    scene.append(10);
    let at = scene.journal().begin_checkpoint();
    scene.step();
    assert!(matches!(scene.journal().end_checkpoint(at, None), Err(JournalError::Io { .. })));
}
