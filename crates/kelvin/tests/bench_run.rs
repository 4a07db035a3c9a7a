//! `kelvin bench run` as a program: what it prints where, and its exit codes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a load may take to begin.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(60);
/// A port on which nobody listens: those that the system hands out may be another test's.
const NOBODY: u16 = 1;

/// Words that every load here begins with.
fn program(port: u16, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
    command.args(["bench", "run", "-p", &port.to_string(), "-t", "1", "-c", "2"]);
    command.args(line.split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(port: u16, line: &str) -> Output {
    program(port, line).output().expect("kelvin runs")
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A server in this process.
struct Fake {
    port: u16,
    answered: Arc<AtomicUsize>,
}

/// A server that answers every chunk that arrives with `reply`; after so many chunks of a
/// connection it ends it. It reads on until the client has left, too: a close with requests unread
/// would reset the connection, or not, as the two happen to run.
fn serve(reply: &'static [u8], chunks_max: usize) -> Fake {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let answered = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&answered);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.expect("a stream");
            let counter = Arc::clone(&counter);
            std::thread::spawn(move || {
                let mut chunk = [0; 4096];
                for _ in 0..chunks_max {
                    let read = stream.read(&mut chunk).unwrap_or(0);
                    if read == 0 || stream.write_all(reply).is_err() {
                        return;
                    }
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                _ = stream.shutdown(Shutdown::Write);
                while stream.read(&mut chunk).is_ok_and(|read| read > 0) {}
            });
        }
    });
    Fake { port, answered }
}

#[test]
fn a_good_load_prints_its_table_and_writes_its_files() {
    let Fake { port, .. } = serve(b"+OK\r\n", usize::MAX);
    let folder = std::env::temp_dir().join(format!("kelvin-bench-run-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str| folder.join(name).display().to_string();
    let line = format!(
        "-n 10 --ratio 1:0 --hide-histogram --json-out-file {} --hdr-file-prefix {}",
        file("a.json"),
        file("h")
    );
    let output = run(port, &line);
    let (table, complaint) = texts(&output);
    assert_eq!((output.status.code(), complaint.as_str()), (Some(0), ""));
    assert!(table.contains("\nALL STATS\n"), "{table}");
    assert!(table.contains("\nTotals "), "{table}");
    let json = std::fs::read_to_string(file("a.json")).expect("a file");
    assert!(json.contains("\"flawless\": true"), "{json}");
    assert!(std::fs::exists(file("h_SET_command_run_1.txt")).expect("a folder"));
    let output = run(port, &format!("-n 10 --ratio 1:0 --out-file {}", file("a.out")));
    assert_eq!(texts(&output), (String::new(), String::new()));
    let table = std::fs::read_to_string(file("a.out")).expect("a file");
    assert!(table.contains("Request Latency Distribution"), "{table}");
    std::fs::remove_dir_all(&folder).expect("a folder to remove");
}

#[test]
fn what_goes_wrong_gives_one_line_and_a_code() {
    let errors = serve(b"-ERR no\r\n", usize::MAX).port;
    let noise = serve(b"what?\r\n", usize::MAX).port;
    let mortal = serve(b"+OK\r\n", 20).port;
    let cases = [
        (errors, "-n 10", 1, "20 errors"),
        (noise, "-n 10", 1, "2 of 2 connections were lost: the server sent something"),
        (mortal, "-n 100", 1, "2 of 2 connections were lost: the server closed"),
        (NOBODY, "-n 10", 2, "cannot connect to 127.0.0.1:"),
        (errors, "-a secret", 2, "AUTH was refused: ERR no"),
        (errors, "--select-db 5", 2, "SELECT was refused: ERR no"),
        (errors, "--no-such-flag", 2, "unexpected argument '--no-such-flag'"),
        (errors, "-n 1 --test-time 1", 2, "cannot be used with"),
        (errors, "--key-minimum 5 --key-maximum 4", 2, "--key-maximum is below"),
        (errors, "-n x", 2, "'x' is not a count or 'allkeys'"),
        (errors, "-n 1 --json-out-file /nonexistent/a", 2, "cannot write /nonexistent/a"),
    ];
    for (port, line, code, complaint) in cases {
        let output = run(port, line);
        let (table, said) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(said.contains(complaint), "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
        // What was measured is kept, and marked when it is not all.
        assert_eq!(table.contains("ALL STATS"), code == 1, "{line}");
        let partial = said.contains("were lost");
        assert_eq!(table.contains("PARTIAL RESULT"), partial, "{line}: {table}");
    }
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let Fake { port, answered } = serve(b"+OK\r\n", usize::MAX);
    let mut load: Child =
        program(port, "--test-time 600 --hide-histogram").spawn().expect("kelvin runs");
    // A connection sends on when it has its reply: one of the two has been measured then.
    let deadline = Instant::now() + BEGIN_TIME_MAX;
    while answered.load(Ordering::Relaxed) <= 2 {
        assert!(Instant::now() < deadline, "the load does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&load);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a process");
    let code = load.wait().expect("an end").code();
    let output = load.wait_with_output().expect("its texts");
    let (table, said) = texts(&output);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("partial result: interrupted"), "{said}");
    assert!(table.contains("PARTIAL RESULT: interrupted"), "{table}");
}

#[test]
fn help_explains_loops_and_codes() {
    let output = run(1, "--help");
    let (help, _) = texts(&output);
    assert_eq!(output.status.code(), Some(0));
    for part in ["Exit codes:", "open loop", "closed loop", "--key-zipf-exp", "-x, --run-count"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}
