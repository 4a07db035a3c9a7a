//! What is not what was written: refused where it was durable, cut off where it was not.

use std::sync::Arc;
use std::time::Duration;

use super::super::header::HEADER_BYTES;
use super::super::sim::SimFolder;
use super::super::storage::Storage;
use super::super::{JournalError, JournalOptions, Recovery, SyncPolicy, TornTail};
use super::scene::{SMALL, Scene, options};

/// Two full segments.
fn journal() -> Scene {
    let mut scene = Scene::new(1);
    scene.open().expect("it opens");
    for _ in 0..10 {
        scene.append(700);
        scene.pass(Duration::from_millis(1_001));
        scene.step();
    }
    assert_eq!(scene.journal().status().segments, 2);
    scene
}

fn read(folder: &SimFolder, torn_tail: TornTail) -> Result<usize, JournalError> {
    let options = JournalOptions { torn_tail, ..options() };
    let mut recovery = Recovery::open_on(Arc::new(folder.clone()), options, SMALL)?;
    let mut count = 0;
    while recovery.read()?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn flip(offset: usize) -> impl Fn(&mut Vec<u8>) {
    move |bytes| bytes[offset] ^= 0x10
}

#[test]
fn every_flipped_bit_of_a_closed_journal_is_seen() {
    let mut scene = journal();
    assert!(scene.close());
    let names = scene.folder.list().expect("names");
    assert_eq!(names, ["journal.000001", "journal.000002", "journal.000003"]);
    for name in names {
        let bytes = scene.folder.bytes(&name);
        // What says that the last mark was durable is nothing: it may be torn.
        let marked = if name.ends_with('3') { bytes.len() - 16 } else { bytes.len() };
        for at in (0..marked).step_by(7) {
            scene.folder.overwrite(&name, flip(at));
            let error = read(&scene.folder, TornTail::Cut).expect_err("it is damaged");
            let JournalError::Damaged { path, offset, .. } = &error else { panic!("{error}") };
            assert!(path.ends_with(&name), "{error}");
            assert!(*offset <= at as u64 && at as u64 - offset < 740, "byte {at}: {error}");
            scene.folder.overwrite(&name, flip(at));
        }
    }
    assert_eq!(read(&scene.folder, TornTail::Refuse), Ok(10));
}

#[test]
fn what_was_not_synced_is_cut_off_at_the_last_whole_record() {
    let mut scene = journal();
    let name = "journal.000003";
    scene.journal().set_sync(SyncPolicy::Never);
    // The first is synced as the segment is begun, the others are not.
    let mut ends = Vec::new();
    for bytes in [50, 100, 200] {
        scene.append(bytes);
        scene.pass(Duration::from_millis(6));
        scene.step();
        ends.push(scene.folder.bytes(name).len());
    }
    scene.kill();
    assert_eq!(read(&scene.folder, TornTail::Refuse), Ok(13));
    scene.folder.overwrite(name, flip(HEADER_BYTES + 20));
    let damaged = read(&scene.folder, TornTail::Cut).expect_err("it was durable");
    assert!(matches!(damaged, JournalError::Damaged { .. }), "{damaged}");
    scene.folder.overwrite(name, flip(HEADER_BYTES + 20));
    for (index, records) in [(1, 12), (0, 11)] {
        scene.folder.overwrite(name, flip(ends[index] + 20));
        let torn = read(&scene.folder, TornTail::Refuse).expect_err("it is torn");
        let JournalError::Torn { offset, .. } = torn else { panic!("{torn}") };
        assert_eq!(offset, ends[index] as u64);
        assert_eq!(read(&scene.folder, TornTail::Cut), Ok(records));
    }
    scene.durable = 0;
    scene.open().expect("it opens");
    scene.append(10);
    assert!(scene.close());
    assert_eq!(read(&scene.folder, TornTail::Refuse), Ok(12), "what was torn counts no more");
}

#[test]
fn missing_files_and_those_of_others_are_refused() {
    let with_checkpoint = || {
        let mut scene = journal();
        assert!(scene.checkpoint());
        for _ in 0..10 {
            scene.append(700);
            scene.pass(Duration::from_millis(1_001));
            scene.step();
        }
        assert!(scene.close());
        scene
    };
    let scene = with_checkpoint();
    let names = scene.folder.list().expect("names");
    let segments: Vec<&String> = names.iter().filter(|name| name.starts_with("journal")).collect();
    let snapshot = names.iter().find(|name| name.starts_with("snapshot")).expect("one");
    assert!(segments.len() > 2, "{names:?}");
    let missing = [
        (segments[0].as_str(), segments[1].as_str(), "is expected"),
        (segments[1], segments[0], "are missing"),
        (snapshot, "manifest", "which is missing"),
        ("manifest", segments[0], "is expected"),
    ];
    for (name, told, what) in missing {
        let scene = with_checkpoint();
        scene.folder.remove(name).expect("it is there");
        let error = read(&scene.folder, TornTail::Cut).expect_err("refused");
        assert!(matches!(error, JournalError::Damaged { .. }), "{name}: {error}");
        assert!(error.to_string().contains(told), "{name}: {error}");
        assert!(error.to_string().contains(what), "{name}: {error}");
    }
    for (has_manifest, what) in [(true, "so are all behind it"), (false, "are missing")] {
        let scene = with_checkpoint();
        for name in scene.folder.list().expect("names") {
            let is_gone = name.starts_with("journal") || name == "manifest" && !has_manifest;
            if is_gone {
                scene.folder.remove(&name).expect("it is there");
            }
        }
        let before = scene.folder.list().expect("names");
        let error = read(&scene.folder, TornTail::Cut).expect_err("refused");
        assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(scene.folder.list().expect("names"), before);
    }
    let other = Scene::new(77);
    let put = |folder: &SimFolder, name: &str, bytes: &[u8]| {
        folder.create(name).and_then(|file| file.write_at(0, bytes)).expect("it is written");
    };
    // By name of another number, and of another journal.
    put(&scene.folder, "journal.000099", &scene.folder.bytes(segments[0]));
    let error = read(&scene.folder, TornTail::Cut).expect_err("refused");
    assert!(error.to_string().contains("by its header"), "{error}");
    let mut stranger = other;
    stranger.open().expect("it opens");
    stranger.append(10);
    assert!(stranger.close());
    let scene = with_checkpoint();
    let mut bytes = stranger.folder.bytes("journal.000001");
    bytes[32..40].copy_from_slice(&99_u64.to_le_bytes());
    let checksum = crc_fast::crc32_iscsi(&bytes[12..HEADER_BYTES]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    put(&scene.folder, "journal.000099", &bytes);
    let error = read(&scene.folder, TornTail::Cut).expect_err("refused");
    assert!(error.to_string().contains("of another journal"), "{error}");
}

#[test]
fn a_damaged_manifest_and_another_version_are_refused() {
    let mut scene = journal();
    assert!(scene.checkpoint());
    assert!(scene.close());
    for at in 0..HEADER_BYTES {
        scene.folder.overwrite("manifest", flip(at));
        let error = read(&scene.folder, TornTail::Cut).expect_err("refused");
        assert!(
            matches!(&error, JournalError::Damaged { path, offset: 0, .. } if path.ends_with("manifest"))
        );
        scene.folder.overwrite("manifest", flip(at));
    }
    let version = |bytes: &mut Vec<u8>| {
        bytes[12] = 2;
        let checksum = crc_fast::crc32_iscsi(&bytes[12..HEADER_BYTES]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    };
    let names = scene.folder.list().expect("names");
    let segment = names.iter().rfind(|name| name.starts_with("journal")).expect("one");
    for name in [segment.as_str(), "manifest"] {
        let before = scene.folder.bytes(name);
        scene.folder.overwrite(name, version);
        let error = read(&scene.folder, TornTail::Cut).expect_err("refused");
        assert!(matches!(error, JournalError::Version { version: 2, .. }), "{error}");
        scene.folder.overwrite(name, |bytes| *bytes = before);
    }
}

#[test]
fn what_was_begun_anew_counts_once_it_has_a_checkpoint() {
    let mut scene = journal();
    assert!(scene.close());
    let old = scene.records.clone();
    for ends in [false, true] {
        let recovery = scene.recover().expect("it is read");
        assert_eq!(scene.records, old);
        scene.journal = Some(recovery.finish_anew(scene.now));
        scene.records.clear();
        scene.durable = scene.journal().durable().0;
        let position = scene.append(100);
        scene.journal().sync_soon();
        scene.step();
        assert!(scene.journal().durable() >= position);
        if ends {
            assert!(scene.checkpoint());
            let records = scene.append(200);
            scene.journal().sync_soon();
            scene.step();
            assert!(scene.journal().durable() >= records);
            scene.lose_power();
            scene.open().expect("it opens");
            assert!(scene.records.len() >= 2);
        } else {
            scene.lose_power();
            (scene.records, scene.durable) = (old.clone(), 0);
        }
    }
}
