//! Records in front of a checkpoint that stay with it.

use std::sync::Arc;
use std::time::Duration;

use super::super::CheckedJournal;
use super::super::header::HEADER_BYTES;
use super::super::names::{self, MANIFEST};
use super::super::storage::Storage;
use super::super::{Journal, Position, Recent, RecentRecords};
use super::scene::{SMALL, Scene, options};
use crate::journal::recovery::Recovery;

/// All that can be read: where each begins, and its bytes; and how often something cannot.
fn read_all(records: &mut RecentRecords) -> (Vec<(u64, Vec<u8>)>, usize) {
    let (mut found, mut damaged) = (Vec::new(), 0);
    loop {
        match records.read().expect("nothing fails") {
            Recent::Record { begin, payload } => found.push((begin.0, payload.to_vec())),
            Recent::Damage(_) => damaged += 1,
            Recent::End => return (found, damaged),
        }
    }
}

/// Takes a checkpoint that keeps segments of so many bytes. Returns where it is.
fn checkpoint(scene: &mut Scene, bytes_max: u64) -> (Position, RecentRecords) {
    let mut recent = scene.journal().recent(bytes_max).expect("it is read");
    let at = scene.journal().begin_checkpoint();
    scene.step();
    recent.go_on(scene.journal()).expect("it is read");
    let snapshot = scene.folder.create(&Journal::snapshot_name(at)).expect("a file");
    snapshot.sync().expect("nothing fails");
    scene.folder.sync_folder().expect("nothing fails");
    scene.journal().end_checkpoint(at, recent.first()).expect("it ends");
    (at, recent)
}

fn fill(scene: &mut Scene, records: usize) {
    for number in 0..records {
        // Some come in parts.
        scene.append(if number % 7 == 0 { 1_200 } else { 150 });
        scene.pass(Duration::from_millis(300));
        scene.step();
    }
}

fn recovery(scene: &Scene) -> Recovery {
    Recovery::open_on(Arc::new(scene.folder.clone()), options(), SMALL).expect("it opens")
}

/// A journal with records, a checkpoint that keeps some, and the process killed. Returns where that is, and what it keeps.
fn scene_with_checkpoint() -> (Scene, Position, Vec<(u64, Vec<u8>)>) {
    let mut scene = Scene::new(3);
    scene.open().expect("it opens");
    fill(&mut scene, 60);
    let (at, mut recent) = checkpoint(&mut scene, 7_000);
    let (found, damaged) = read_all(&mut recent);
    assert_eq!(damaged, 0);
    scene.kill();
    (scene, at, found)
}

/// How many of the kept records are among those that were found. What stands behind damage may be the rest of a record,
/// which begins where none does.
fn whole(found: &[(u64, Vec<u8>)], kept: &[(u64, Vec<u8>)]) -> usize {
    let is_whole = |(begin, payload): &&(u64, Vec<u8>)| {
        let record = kept.iter().find(|(other, _)| other == begin);
        record.is_some_and(|(_, other)| {
            assert!(other == payload, "another record at {begin}");
            true
        })
    };
    found.iter().filter(is_whole).count()
}

/// Those of the records that were appended, from one on.
fn appended_from(scene: &Scene, begin: u64) -> Vec<Vec<u8>> {
    let behind = scene.records.iter().filter(|(end, _)| *end > begin);
    behind.map(|(_, payload)| payload.clone()).collect()
}

#[test]
fn a_checkpoint_keeps_the_last_segments_and_a_start_reads_them() {
    let (scene, at, kept) = scene_with_checkpoint();
    let begin = kept[0].0;
    let payloads: Vec<Vec<u8>> = kept.iter().map(|(_, payload)| payload.clone()).collect();
    assert!(payloads == appended_from(&scene, begin), "{} records", payloads.len());
    assert!(at.0 - begin > 4_000 && at.0 - begin < 10_000, "{begin} of {}", at.0);
    let mut recovery = recovery(&scene);
    assert_eq!(read_all(&mut recovery.kept_records()), (kept.clone(), 0));
    // From any record on.
    for number in [1, kept.len() / 2, kept.len() - 1] {
        let mut recent = recovery.kept_records();
        recent.go_to(Position(kept[number].0));
        assert_eq!(read_all(&mut recent), (kept[number..].to_vec(), 0));
    }
    // What stands behind the checkpoint alone is run.
    assert_eq!(recovery.read().expect("it is read"), None);
    let files = scene.folder.list().expect("nothing fails");
    let segments = files.iter().filter(|name| name.starts_with("journal.")).count();
    let (journal, mut writer) = recovery.finish(scene.now).expect("it goes on");
    writer.step(scene.now);
    // A start removes none of them, and the next checkpoint may keep them as well.
    let files = scene.folder.list().expect("nothing fails");
    assert_eq!(files.iter().filter(|name| name.starts_with("journal.")).count(), segments);
    let mut recent = journal.recent(u64::MAX).expect("it is read");
    assert_eq!(read_all(&mut recent), (kept, 0));
}

#[test]
fn segments_go_when_no_checkpoint_keeps_them() {
    let (mut scene, ..) = scene_with_checkpoint();
    let mut recovery = recovery(&scene);
    while recovery.read().expect("it is read").is_some() {}
    scene.journal = Some(recovery.finish(scene.now).expect("it goes on"));
    fill(&mut scene, 60);
    let (at, mut recent) = checkpoint(&mut scene, 4_000);
    let (kept, _) = read_all(&mut recent);
    assert!(at.0 - kept[0].0 < 8_000, "{} of {}", kept[0].0, at.0);
    let first = recent.first().expect("there is one");
    let files = scene.folder.list().expect("nothing fails");
    assert!(!files.contains(&names::segment(first - 1)), "{files:?}");
    assert!(files.contains(&names::segment(first)), "{files:?}");
}

#[test]
fn records_are_read_while_others_are_appended() {
    let mut scene = Scene::new(4);
    scene.open().expect("it opens");
    fill(&mut scene, 1);
    let (mut found, mut recent) = (Vec::new(), scene.journal().recent(0).expect("it is read"));
    for round in 0..40 {
        fill(&mut scene, round % 5);
        recent.go_on(scene.journal()).expect("it is read");
        let (more, damaged) = read_all(&mut recent);
        assert_eq!(damaged, 0);
        found.extend(more);
    }
    let payloads: Vec<Vec<u8>> = found.into_iter().map(|(_, payload)| payload).collect();
    assert!(payloads == appended_from(&scene, 0), "{} records", payloads.len());
}

#[test]
fn what_is_damaged_or_missing_is_passed_over_and_nothing_behind_it_is_lost() {
    let (scene, _, kept) = scene_with_checkpoint();
    let files = scene.folder.list().expect("nothing fails");
    let segments: Vec<String> =
        files.iter().filter(|name| name.starts_with("journal.")).cloned().collect();
    let in_front = &segments[..segments.len() - 1];
    for (index, name) in in_front.iter().enumerate() {
        let bytes = scene.folder.bytes(name);
        for at in (HEADER_BYTES..bytes.len()).step_by(97) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            scene.folder.create(name).and_then(|file| file.write_at(0, &damaged)).expect("written");
            let mut recovery = recovery(&scene);
            let (found, damage) = read_all(&mut recovery.kept_records());
            let lost = kept.len() - whole(&found, &kept);
            assert!(damage > 0 || found == kept, "{name} at {at}");
            assert!(lost < kept.len() / in_front.len() + 8, "{name} at {at}: {lost}");
            // It matters to nobody else.
            assert_eq!(recovery.read().expect("it is read"), None);
        }
        scene.folder.remove(name).expect("it is there");
        let (found, damage) = read_all(&mut recovery(&scene).kept_records());
        assert!(whole(&found, &kept) < kept.len() && found.iter().all(|one| kept.contains(one)));
        assert_eq!(damage, usize::from(index > 0), "{name}");
        scene.folder.create(name).and_then(|file| file.write_at(0, &bytes)).expect("written");
    }
}

#[test]
fn a_manifest_that_is_made_anew_keeps_what_is_there() {
    let (scene, at, kept) = scene_with_checkpoint();
    let manifest = scene.folder.bytes(MANIFEST);
    scene.folder.remove(MANIFEST).expect("it is there");
    let checked = CheckedJournal { path: "sim".into(), storage: Arc::new(scene.folder.clone()) };
    assert_eq!(checked.make_manifest(&mut |_| true).expect("it is made"), Some(at));
    assert_eq!(scene.folder.bytes(MANIFEST), manifest);
    assert_eq!(read_all(&mut recovery(&scene).kept_records()), (kept, 0));
}

/// What a killed process has left behind its last record is a mark, in whose place the next one writes.
#[test]
fn behind_a_start_records_are_read_where_a_mark_was() {
    let mut scene = Scene::new(6);
    scene.open().expect("it opens");
    fill(&mut scene, 20);
    scene.pass(Duration::from_secs(3));
    scene.step();
    let appended = scene.journal().appended();
    scene.pass(Duration::from_secs(3));
    scene.step();
    scene.kill();
    scene.open().expect("it opens");
    let first = scene.records.len();
    let mut recent = scene.journal().recent(u64::MAX).expect("it is read");
    let (before, damaged) = read_all(&mut recent);
    assert_eq!((before.len(), damaged), (first, 0));
    assert!(recent.read_to() <= appended && recent.position() >= recent.read_to());
    fill(&mut scene, 30);
    recent.go_on(scene.journal()).expect("it is read");
    let (behind, damaged) = read_all(&mut recent);
    let payloads: Vec<Vec<u8>> = behind.into_iter().map(|(_, payload)| payload).collect();
    let expected = scene.records[first..].iter().map(|(_, payload)| payload.clone());
    assert!(payloads == expected.collect::<Vec<_>>() && damaged == 0, "{}", payloads.len());
}
