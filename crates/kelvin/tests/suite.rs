//! `kelvin bench suite` from end to end, with tests of a second: what it leaves, what it says when
//! something is wrong, and that a run that was stopped goes on.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use suite::read::read;
use suite::results::{Results, State, Test};
use support::Server;

/// A test of seconds that takes longer than this hangs.
const SECONDS_MAX: u64 = 600;
/// How often what a busy machine can spoil is tried.
const TRIES: usize = 5;

/// A folder for a run's results on the file system of the build, which flash needs.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("suite-{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // A run that was killed may have left one of the same number.
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the build's folder is text")
    }

    fn results(&self) -> Results {
        read(&self.0.join("results.json")).expect("results")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans the build.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn suite(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
    command.args(["bench", "suite"]).args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    suite(arguments).output().expect("kelvin runs")
}

fn test<'a>(results: &'a Results, id: &str) -> &'a Test {
    results.tests.iter().find(|test| test.id == id).unwrap_or_else(|| panic!("no test {id}"))
}

fn assert_done(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{lines}\n{errors}", output.status);
}

/// It said one line about `what`, and ended with `code`.
fn assert_refused(output: &Output, code: i32, what: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("kelvin bench suite: ") && errors.contains(what), "{errors}");
}

#[test]
fn a_run_leaves_results_and_a_report() {
    // Small values are the ones that a server with too little RAM refuses to fill.
    let only = ["fill", "get-max", "get-min", "sigma-2", "small-uniform"];
    let hits =
        |folder: &Folder, id| test(&folder.results(), id).rounds[0].ram_hit_ratio.expect("reads");
    // In its second a busy machine may not bring into RAM what is to be there.
    let folder = (0..TRIES).map(|number| Folder::new(&format!("whole-{number}"))).find(|folder| {
        let own = ["--smoke", "--no-pin", "--out", folder.path()];
        assert_done(&run(&[own.as_slice(), &only.map(|id| ["--only", id]).concat()].concat()));
        hits(folder, "get-max") > hits(folder, "get-min") + 0.3
    });
    let folder = folder.expect("hits as the tests are named");

    let results = folder.results();
    assert_eq!(results.state, State::Done);
    assert!(results.setting.smoke && results.drive_limit.is_some());
    let ids: Vec<&str> = results.tests.iter().map(|test| test.id.as_str()).collect();
    assert_eq!(ids, only);
    for test in &results.tests {
        assert_eq!((&test.state, test.rounds.len()), (&State::Done, 1), "{}", test.id);
        let round = &test.rounds[0];
        assert!(round.ops_per_second > 0.0 && !round.samples.is_empty(), "{}", test.id);
        assert_eq!(round.errors, 0, "{}", test.id);
    }
    // The data set is filled once, and is what the tests say it is.
    assert_eq!(test(&results, "get-max").commands.len(), 2, "a warm-up and the test");
    let filled = test(&results, "fill").rounds[0].samples.last().expect("a sample");
    let keys = filled.keys.expect("a server that counts");
    assert!(keys.abs_diff(results.setting.keys) <= 1, "{keys}");
    assert!(filled.values_in_ram.expect("tiers") < keys / 2);
    let names: Vec<&str> = results.comparisons.iter().map(|line| line.name.as_str()).collect();
    assert!(names.contains(&"GET, minimum of RAM hits: throughput"), "{names:?}");

    let left = std::fs::read_dir(&folder.0).expect("the folder").flatten();
    let mut left: Vec<_> = left.map(|entry| entry.file_name().into_string()).collect();
    left.sort();
    let expected =
        ["comparisons.csv", "raw", "report.html", "results.json", "samples.csv", "tests.csv"];
    assert_eq!(left, expected.map(|name| Ok(name.to_owned())), "neither flash nor a probe's file");
}

/// Waits until `ready` says so of the results of a suite that runs.
fn wait_for(child: &mut Child, folder: &Folder, ready: impl Fn(&Results) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(SECONDS_MAX);
    while !read(&folder.0.join("results.json")).is_ok_and(|results| ready(&results)) {
        assert!(Instant::now() < deadline, "the suite hangs");
        let ended = child.try_wait().expect("a child can be asked");
        assert!(ended.is_none(), "the suite ended, {ended:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a run in `folder` and stops it after its first test. None: on a busy machine it had ended
/// before.
fn stopped(folder: &Folder) -> Option<Output> {
    let only = ["--only", "fill", "--only", "get-max", "--only", "mix-max"];
    let own = ["--smoke", "--no-pin", "--out", folder.path()];
    let mut child = suite(&[own.as_slice(), &only].concat()).spawn().expect("kelvin runs");
    wait_for(&mut child, folder, |results| results.tests[0].state == State::Done);
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    (!output.status.success()).then_some(output)
}

#[test]
fn a_run_that_was_stopped_goes_on() {
    let folders = (0..TRIES).map(|number| Folder::new(&format!("stopped-{number}")));
    let mut stopped = folders.map(|folder| (stopped(&folder), folder));
    let found = stopped.find_map(|(output, folder)| Some((output?, folder)));
    let (output, folder) = found.expect("a run that did not end before it was stopped");
    assert_refused(&output, 1, "--resume");

    let stopped = folder.results();
    assert_eq!(stopped.state, State::Partial);
    assert!(folder.0.join("report.html").exists(), "what there is is reported");
    let not_done = stopped.tests.iter().filter(|test| test.state != State::Done).count();
    assert!(not_done > 0, "{:?}", stopped.tests);

    assert_done(&run(&["--resume", folder.path(), "--no-pin"]));
    let resumed = folder.results();
    assert_eq!(resumed.state, State::Done);
    assert_eq!(test(&resumed, "fill"), test(&stopped, "fill"), "what was done stays");
    let again = resumed.tests.iter().find(|now| test(&stopped, &now.id).state != State::Done);
    let commands = &again.expect("one was not done").commands;
    assert_eq!(commands.len(), 3, "filled anew, warmed, measured: {commands:?}");
    assert_eq!(resumed.drive_limit, stopped.drive_limit);
}

#[test]
fn a_server_that_refuses_fails_the_test_with_its_words() {
    let redis = Server::redis_on_port(&["--maxmemory", "8mb", "--maxmemory-policy", "noeviction"]);
    let address = format!("127.0.0.1:{}", redis.port());
    let folder = Folder::new("refused");
    let own = ["--smoke", "--no-pin", "--out", folder.path(), "--ram", "32mb"];
    let output = run(&[&own[..], &["--server", &address, "--only", "fill"]].concat());
    assert_refused(&output, 1, "of 1 tests 1 failed");
    let results = folder.results();
    assert_eq!(results.setting.server, address);
    assert!(matches!(&results.state, State::Failed(_)), "{:?}", results.state);
    let State::Failed(reason) = &results.tests[0].state else {
        panic!("{:?}", results.tests[0].state)
    };
    assert!(reason.contains("error replies: OOM command not allowed"), "{reason}");
    assert!(results.tests[0].rounds[0].errors > 0);
}

#[test]
fn any_server_can_be_measured() {
    let redis = Server::redis_on_port(&[]);
    let address = format!("127.0.0.1:{}", redis.port());
    let folder = Folder::new("redis");
    let line = ["--smoke", "--no-pin", "--out", folder.path(), "--server", &address];
    assert_refused(&run(&line), 2, "no maxmemory");

    redis.connect().call(&["SET", "somebody", "else's"]);
    let line = [&line[..], &["--ram", "32mb", "--only", "growth-ram"]].concat();
    assert_refused(&run(&line), 2, "has 1 keys");
    assert_done(&run(&[&line[..], &["--flush", "--rounds", "2"]].concat()));
    let results = folder.results();
    let rounds = &results.tests[0].rounds;
    assert_eq!(rounds.len(), 2);
    assert!(rounds.iter().all(|round| round.ram_hit_ratio.is_none()), "Redis has no tiers");
    assert!(rounds.iter().all(|round| round.server_cpu_seconds > Some(0.0)));
    assert_eq!(results.tests[0].commands.len(), 3, "fill, warm-up, and one line for both rounds");

    assert_refused(&run(&["--resume", folder.path()]), 2, "--server");
}

#[test]
fn what_cannot_begin_is_one_line() {
    let folder = Folder::new("nothing");
    let out = folder.path();
    let cases: [(&[&str], &str); 4] = [
        (&["--out", out, "--only", "nosuch"], "no test is named nosuch"),
        (&["--out", out, "--ram", "1mb"], "--ram is at least"),
        (&["--out", out, "--server", "127.0.0.1:1"], "127.0.0.1:1: "),
        (&["--resume", out], "results.json"),
    ];
    for (line, what) in cases {
        assert_refused(&run(line), 2, what);
        assert!(!folder.0.join("results.json").exists(), "{line:?}");
    }
    let list = run(&["--list"]);
    assert_done(&list);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.contains("get-min") && list.contains("--key-maximum=6000000000"), "{list}");
}
