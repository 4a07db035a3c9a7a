//! Files that are kept, on a filesystem.

use crate::device::file::FILE_NAME;
use crate::engine::conformance::{Mix, Rig};
use crate::log::tests::Directory;
use crate::log::{Backend, LogConfig, open_log, reopen_log};

const SEGMENT_BYTES: u64 = 64 << 10;
const MIX: Mix =
    Mix { keys: 100, steps: 300, lens: [2000, 40_000, 100_000], resets: false, may_fail: false };

fn config(directories: &[&Directory]) -> LogConfig {
    LogConfig {
        paths: directories.iter().map(|directory| directory.0.clone()).collect(),
        flash_bytes: 32 * SEGMENT_BYTES,
        workers: 1,
        segment_bytes: Some(SEGMENT_BYTES),
        backend: Backend::Auto,
    }
}

/// The names of the files in a directory.
fn names(directory: &Directory) -> Vec<String> {
    let entries = std::fs::read_dir(&directory.0).expect("a directory");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("an entry").file_name().into_string().expect("a name in UTF-8")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn files_go_when_the_log_is_closed_unless_a_checkpoint_may_refer_to_them() {
    let [one, two] = [(); 2].map(|()| Directory::new());
    let both = config(&[&one, &two]);
    let engine = open_log(&both, None).expect("opens");
    // A checkpoint that came to nothing has put labels on.
    engine.checkpoints().expect("it keeps records").prepare(1).expect("nothing fails");
    drop(engine);
    assert_eq!(names(&one), [""; 0]);
    let mut rig = Rig::new(open_log(&both, None).expect("opens"), 1, 2);
    rig.run(&MIX);
    rig.take_checkpoint();
    let kept = rig.kept.clone().expect("one is in place");
    drop(rig);
    for directory in [&one, &two] {
        assert_eq!(names(directory), [FILE_NAME, "kelvin.flash.label", "kelvin.flash.label.new"]);
    }
    let mut rig = Rig::reopened(reopen_log(&both, &kept.state).expect("opens"), 1, 3, &kept);
    rig.check_all();
    rig.engine.checkpoints().expect("it keeps records").forget().expect("nothing fails");
    drop(rig);
    assert_eq!((names(&one), names(&two)), (Vec::new(), Vec::new()));
}

#[test]
fn a_path_that_comes_back_while_the_server_runs_is_new() {
    for takes_checkpoint in [false, true] {
        let [one, two] = [(); 2].map(|()| Directory::new());
        let (first, both) = (config(&[&one]), config(&[&one, &two]));
        let mut rig = Rig::new(open_log(&first, None).expect("opens"), 1, 2);
        rig.run(&MIX);
        for listed in [&both, &first] {
            rig.take_checkpoint();
            let kept = rig.kept.clone().expect("one is in place");
            drop(rig);
            rig = Rig::reopened(reopen_log(listed, &kept.state).expect("opens"), 1, 2, &kept);
        }
        if takes_checkpoint {
            rig.take_checkpoint();
        }
        rig.engine.set_paths(&both.paths).expect("nobody refers to what it has");
        assert_eq!(rig.engine.stats().paths, 2);
        rig.run(&MIX);
        rig.take_checkpoint();
    }
}

#[test]
fn a_path_of_another_server_is_not_emptied() {
    let [one, other] = [(); 2].map(|()| Directory::new());
    let open = |directory| {
        let mut rig = Rig::new(open_log(&config(&[directory]), None).expect("opens"), 1, 2);
        rig.take_checkpoint();
        rig
    };
    drop(open(&other));
    let engine = open(&one).engine.clone();
    let refused = engine.set_paths(&config(&[&one, &other]).paths).expect_err("it is not ours");
    assert!(refused.to_string().contains("the journal of another server"), "{refused}");
    assert_eq!(names(&other), [FILE_NAME, "kelvin.flash.label", "kelvin.flash.label.new"]);
}
