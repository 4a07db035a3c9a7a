//! The programs as people use them: what they say of themselves, what becomes of output that is
//! closed or full, and that mistakes are told at once and as what they are.

mod support;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use support::Server;

fn kelvin(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(mut command: Command) -> (String, String, Option<i32>) {
    let Output { stdout, stderr, status } = command.output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (text(stdout), text(stderr), status.code())
}

/// A pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("the device").into()
}

/// Results of the suite in a folder of their own.
struct Results(std::path::PathBuf);

impl Results {
    fn new(name: &str) -> Results {
        let name = format!("command-line-{name}-{}", std::process::id());
        let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let results = r#"{"format": 2, "started_unix_ms": 0, "state": "done",
            "machine": {"cpu": "", "cores": 1, "ram_bytes": 1, "drive": "", "file_system": "",
                "kernel": "", "versions": []},
            "setting": {"server": "", "ram_bytes": 1, "flash_bytes": 1, "keys": 1, "smoke": false},
            "drive_limit": null, "tests": [], "comparisons": []}"#;
        std::fs::write(folder.join("results.json"), results).expect("a file");
        Results(folder)
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans the build.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Command lines of every program that ends by itself and prints something.
fn lines_that_print(server: &Server, results: &Results) -> Vec<String> {
    let (port, results) = (server.port(), results.0.display());
    let mut lines = vec![
        format!("bench run -p {port} -t 1 -c 1 -n 10"),
        "bench suite --list".to_owned(),
        format!("bench report {results} -o {results}/report.html"),
        "plan endurance".to_owned(),
        "plan size --keys 1e9".to_owned(),
    ];
    for format in ["text", "json", "csv", "html"] {
        lines.push(format!("bench compare {results} {results} --format {format}"));
    }
    for program in [
        "",
        "server ",
        "bench run ",
        "bench suite ",
        "bench report ",
        "bench compare ",
        "plan ",
        "import ",
        "check ",
    ] {
        lines.push(format!("{program}--help"));
        lines.push(format!("{program}--version"));
    }
    lines
}

#[test]
fn output_that_nobody_reads_any_more_is_no_failure() {
    let (server, results) = (Server::kelvin(&[]), Results::new("closed"));
    for line in lines_that_print(&server, &results) {
        let mut command = kelvin(&line);
        command.stdout(closed_pipe());
        assert_eq!(output(command), (String::new(), String::new(), Some(0)), "{line}");
    }
}

#[test]
fn output_that_is_full_is_a_failure() {
    let (server, results) = (Server::kelvin(&[]), Results::new("full"));
    for line in lines_that_print(&server, &results) {
        // A comparison of runs without tests is an empty table.
        if line.ends_with("csv") {
            continue;
        }
        let mut command = kelvin(&line);
        command.stdout(full());
        let (_, complaint, code) = output(command);
        assert!(matches!(code, Some(1 | 2)), "{line}: {code:?} {complaint}");
        assert!(complaint.contains("No space left on device"), "{line}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{line}: {complaint}");
    }
}

#[test]
fn complaints_that_cannot_be_written_leave_the_exit_code() {
    for (line, expected) in [
        ("nosuch", 1),
        ("server --nosuch", 1),
        ("bench run -s 127.0.0.1 -p 1 -t 1 -c 1 -n 1", 2),
        ("bench run --nosuch", 2),
        ("bench suite --only nosuch", 2),
        ("bench report /nonexistent", 1),
        ("plan size", 1),
        ("import /nonexistent", 1),
        ("check --nosuch 1", 2),
        ("check --dir /nonexistent", 2),
    ] {
        for stderr in [closed_pipe(), full()] {
            let mut command = kelvin(line);
            command.stderr(stderr);
            assert_eq!(output(command).2, Some(expected), "{line}");
        }
    }
}

#[test]
fn programs_tell_what_they_are_and_how_they_are_used() {
    let version =
        format!("Kelvin server v={} malloc=jemalloc bits=64\n", env!("CARGO_PKG_VERSION"));
    for line in ["--version", "-v", "server --version", "server -v"] {
        assert_eq!(output(kelvin(line)), (version.clone(), String::new(), Some(0)), "{line}");
    }
    for line in ["--help", "-h", "bench --help"] {
        let (help, complaint, code) = output(kelvin(line));
        assert!(help.contains("kelvin bench suite"), "{line}: {help}");
        assert_eq!((complaint.as_str(), code), ("", Some(0)), "{line}");
    }
    for line in ["server --help", "server -h"] {
        let (help, complaint, code) = output(kelvin(line));
        assert!(help.starts_with("Usage: kelvin server [FILE]"), "{line}: {help}");
        assert_eq!((complaint.as_str(), code), ("", Some(0)), "{line}");
    }
}

#[test]
fn a_mistake_on_the_command_line_is_not_one_of_a_file() {
    let cases = [
        ("server --portt 1", ">>> '--portt \"1\"'\nBad directive or wrong number of arguments"),
        ("server --port x", ">>> '--port \"x\"'\nargument couldn't be parsed into an integer"),
        ("server --help me", ">>> '--help \"me\"'\nBad directive or wrong number of arguments"),
    ];
    for (line, expected) in cases {
        let expected = format!("kelvin: *** FATAL COMMAND LINE ERROR ***\n{expected}\n");
        assert_eq!(output(kelvin(line)), (String::new(), expected, Some(1)), "{line}");
    }
}

#[test]
fn a_file_that_cannot_be_written_ends_a_load_before_it_begins() {
    let server = Server::kelvin(&[]);
    for option in ["--out-file", "--json-out-file", "--hdr-file-prefix"] {
        let line = format!("bench run -p {} -t 1 -c 1 -n 5 {option} /nonexistent/a", server.port());
        let (printed, complaint, code) = output(kelvin(&line));
        assert_eq!((printed.as_str(), code), ("", Some(2)), "{option}");
        assert!(complaint.contains("cannot write /nonexistent/a"), "{option}: {complaint}");
    }
    let mut client = server.connect();
    assert_eq!(client.show("DBSIZE"), ":0", "nothing was loaded");
}

#[test]
fn a_result_takes_the_place_of_what_was_in_its_file() {
    let (server, folder) = (Server::kelvin(&[]), Results::new("replace"));
    let path = folder.0.join("out.json");
    std::fs::write(&path, "x".repeat(1 << 20)).expect("a file");
    let path = path.display();
    let line = format!("bench run -p 1 -t 1 -c 1 -n 5 --json-out-file {path}");
    assert_eq!(output(kelvin(&line)).2, Some(2));
    let size = || std::fs::metadata(path.to_string()).expect("the file").len();
    assert_eq!(size(), 1 << 20, "without a result it stays");
    let port = server.port();
    let line = format!("bench run -p {port} -t 1 -c 1 -n 5 --json-out-file {path}");
    assert_eq!(output(kelvin(&line)).2, Some(0));
    let json = std::fs::read(path.to_string()).expect("the file");
    serde_json::from_slice::<serde_json::Value>(&json).expect("JSON");
}

#[test]
fn a_log_that_is_no_terminal_has_no_colours() {
    let mut command = kelvin("server --port 0 --bind 127.0.0.1");
    command.env_remove("NO_COLOR");
    let mut server = command.spawn().expect("the program starts");
    let mut log = BufReader::new(server.stdout.take().expect("it is piped"));
    let mut line = String::new();
    while !line.contains("ready to accept") {
        line.clear();
        assert!(log.read_line(&mut line).expect("a line") > 0, "the server ended");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    server.kill().expect("it runs");
    server.wait().expect("it can be waited for");
}

#[test]
fn a_server_whose_log_nobody_reads_goes_on() {
    let mut command = kelvin("server --port 0 --bind 127.0.0.1 --loglevel debug");
    // Closed before the first line is written, and as the standard error too.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let socket = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("silent-{}.sock", std::process::id()));
    command.arg("--unixsocket").arg(&socket);
    command.stdout(writer.try_clone().expect("a descriptor")).stderr(writer);
    drop(reader);
    let mut server = command.spawn().expect("the program starts");
    drop(command);
    // It may be so early that the server has not looked yet whether there is something to load.
    let replies: Vec<String> = std::iter::repeat_with(|| ping(&socket, &mut server))
        .skip_while(|reply| reply.starts_with("-LOADIN"))
        .take(3)
        .collect();
    let _ = server.kill();
    let _ = server.wait();
    let _ = std::fs::remove_file(&socket);
    assert_eq!(replies, ["+PONG\r\n"; 3]);
}

/// Asks a server on a socket file that it may not have made yet; what ends it ends the wait.
fn ping(socket: &std::path::Path, server: &mut std::process::Child) -> String {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) => match server.try_wait().expect("a child can be asked") {
                Some(status) => return format!("the server ended: {status}"),
                None => std::thread::yield_now(),
            },
        }
    };
    let _ = stream.write_all(b"PING\r\n");
    let mut reply = [0; 7];
    let read = stream.read_exact(&mut reply);
    read.map_or_else(|error| error.to_string(), |()| String::from_utf8_lossy(&reply).into_owned())
}
