//! What is damaged is cut off, or made anew, wherever the repair ends; and a copy stays.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::super::sim::{SimFaults, SimFolder};
use super::super::storage::Storage;
use super::super::{Beyond, CheckedJournal, JournalError, Recovery};
use super::scene::{SMALL, Scene, options};

/// Three segments, with a checkpoint in front of them or not.
fn journal(has_checkpoint: bool) -> Scene {
    let mut scene = Scene::new(1);
    scene.open().expect("it opens");
    if has_checkpoint {
        scene.append(100);
        assert!(scene.checkpoint());
    }
    for _ in 0..13 {
        scene.append(700);
        scene.pass(Duration::from_millis(1_001));
        scene.step();
    }
    assert!(scene.close());
    scene
}

fn segments(folder: &SimFolder) -> Vec<String> {
    let names = folder.list().expect("names");
    names.into_iter().filter(|name| name.starts_with("journal.0")).collect()
}

/// Reads up to damage, and counts what is whole in front of it and behind.
fn check(folder: &SimFolder) -> (Result<(), JournalError>, usize, usize, Recovery) {
    let look = Recovery::look(Arc::new(folder.clone()), options(), SMALL);
    let mut recovery = look.expect("it begins");
    let (mut before, mut behind) = (0, 0);
    let ended = loop {
        match recovery.read_checked() {
            Ok(Some(_)) => before += 1,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    if ended.is_err() {
        let count =
            &mut |found: Beyond<'_>| behind += usize::from(matches!(found, Beyond::Record(_)));
        recovery.read_beyond(count).expect("it is read");
    }
    (ended, before, behind, recovery)
}

/// Cuts a journal until it is whole. Errors: a step failed.
fn repair(folder: &SimFolder) -> Result<(), JournalError> {
    for _ in 0..3 {
        let (ended, _, _, recovery) = check(folder);
        if ended.is_ok() {
            return Ok(());
        }
        recovery.cut()?;
    }
    panic!("it is damaged still");
}

type Damage = fn(&SimFolder, &[String]);

/// What is done, and how many records are whole in front and behind.
const DAMAGE: [(Damage, usize, usize); 5] = [
    (|folder, names| folder.overwrite(&names[1], |bytes| bytes[64 + 50] ^= 1), 5, 7),
    (|folder, names| folder.overwrite(&names[1], |bytes| bytes[20] ^= 1), 5, 3),
    (|folder, names| folder.overwrite(&names[2], |bytes| bytes[64 + 50] ^= 1), 10, 2),
    (|folder, names| folder.remove(&names[1]).expect("it is there"), 5, 3),
    (|folder, names| folder.overwrite(&names[0], |bytes| bytes.truncate(2_000)), 2, 8),
];

#[test]
fn the_journal_ends_in_front_of_damage_and_what_was_there_is_kept() {
    for (index, (damage, before, behind)) in DAMAGE.into_iter().enumerate() {
        let scene = journal(false);
        let names = segments(&scene.folder);
        assert_eq!(names.len(), 3);
        damage(&scene.folder, &names);
        let damaged: Vec<Vec<u8>> =
            segments(&scene.folder).iter().map(|name| scene.folder.bytes(name)).collect();
        let (ended, found, found_behind, _) = check(&scene.folder);
        ended.expect_err("it is damaged");
        assert_eq!((found, found_behind), (before, behind), "{index}");
        repair(&scene.folder).expect("it is repaired");
        let (ended, found, ..) = check(&scene.folder);
        assert_eq!((ended, found), (Ok(()), before), "{index}");
        let names = scene.folder.list().expect("names");
        let all: Vec<Vec<u8>> = names.iter().map(|name| scene.folder.bytes(name)).collect();
        assert!(damaged.iter().all(|bytes| all.contains(bytes)), "{index}: {names:?}");
    }
}

#[test]
fn a_repair_that_ends_anywhere_is_run_again() {
    for (damage, before, _) in DAMAGE {
        for at in 0.. {
            let scene = journal(false);
            damage(&scene.folder, &segments(&scene.folder));
            let power_off_at = Some(scene.folder.operations() + at);
            scene.folder.set_faults(SimFaults { power_off_at, ..SimFaults::default() });
            let ended = repair(&scene.folder);
            let is_done = !scene.folder.is_off();
            assert_eq!(ended.is_ok(), is_done);
            scene.folder.lose_power();
            repair(&scene.folder).expect("it is repaired");
            let (ended, found, ..) = check(&scene.folder);
            assert_eq!((ended, found), (Ok(()), before), "operation {at}");
            if is_done {
                assert!(at > 0);
                break;
            }
        }
    }
}

/// Nothing but the snapshot is left, and counts; wherever the repair ends.
#[test]
fn without_its_segments_a_journal_begins_at_its_checkpoint() {
    for at in 0.. {
        let mut scene = journal(true);
        for name in segments(&scene.folder) {
            scene.folder.remove(&name).expect("it is there");
        }
        scene.folder.sync_folder().expect("it is durable");
        check(&scene.folder).0.expect_err("they are missing");
        let power_off_at = Some(scene.folder.operations() + at);
        scene.folder.set_faults(SimFaults { power_off_at, ..SimFaults::default() });
        let is_done = repair(&scene.folder).is_ok();
        scene.folder.lose_power();
        repair(&scene.folder).expect("it is repaired");
        let (ended, found, ..) = check(&scene.folder);
        assert_eq!((ended, found), (Ok(()), 0), "operation {at}");
        (scene.durable, scene.records) = (0, scene.records[..1].to_vec());
        scene.open().expect("it opens");
        scene.append(10);
        assert!(scene.close());
        assert_eq!(check(&scene.folder).1, 1, "it goes on");
        if is_done {
            assert!(at > 0);
            break;
        }
    }
}

#[test]
fn a_manifest_is_made_anew_of_a_whole_snapshot() {
    for is_there in [true, false] {
        let scene = journal(true);
        let manifest = scene.folder.bytes("manifest");
        match is_there {
            true => scene.folder.overwrite("manifest", |bytes| bytes[30] ^= 1),
            false => scene.folder.remove("manifest").expect("it is there"),
        }
        let checked =
            CheckedJournal { path: "sim".into(), storage: Arc::new(scene.folder.clone()) };
        let made = checked.make_manifest(&mut |_: &Path| false).expect("it is looked at");
        assert_eq!(made, None);
        let is_snapshot = |path: &Path| path.to_string_lossy().starts_with("sim/snapshot.");
        let made = checked.make_manifest(&mut |path: &Path| is_snapshot(path));
        assert!(made.expect("it is written").is_some());
        assert_eq!(scene.folder.bytes("manifest"), manifest);
        let (ended, found, ..) = check(&scene.folder);
        assert_eq!((ended, found), (Ok(()), 14));
        let has_copy =
            scene.folder.list().expect("names").contains(&"damaged-1.manifest".to_owned());
        assert_eq!(has_copy, is_there);
    }
}
