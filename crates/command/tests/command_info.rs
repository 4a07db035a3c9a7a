//! Compares every row of the table with what a real redis-server answers to `COMMAND INFO`: arity,
//! flags and key specifications.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use command::family::FAMILIES;
use command::{Begin, Find, Flags, KeyFlags, KeySpec, Spec};
use resp::{Frame, Reply, parse_frame};

/// Later versions of Redis, of which there are a few commands.
const LATER: &[&str] = &["7.4.0", "8.0.0"];

#[test]
fn rows_are_those_of_redis() {
    let specs: Vec<Spec> = FAMILIES.iter().copied().flatten().map(|row| row.spec()).collect();
    let mut redis = Redis::start();
    let mut differences = Vec::new();
    for spec in specs.iter().filter(|spec| !LATER.contains(&spec.docs.since)) {
        let reply = redis.call(&["COMMAND", "INFO", spec.name]);
        let Frame::Array(infos) = reply else { panic!("{reply:?}") };
        let theirs = show_info(&infos[0]);
        let ours = show_spec(spec);
        // ZRANK and ZREVRANK take WITHSCORE, as Redis 7.2 does.
        let theirs = match spec.name {
            "ZRANK" | "ZREVRANK" => theirs.replacen("3 ", "-3 ", 1),
            _ => theirs,
        };
        if ours != theirs {
            differences.push(format!("{}\n  ours   {ours}\n  redis  {theirs}", spec.name));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

/// A row as one line.
fn show_spec(spec: &Spec) -> String {
    let flags = Flags::NAMES.iter().filter(|(flag, _)| spec.flags.has(*flag));
    let flags: Vec<&str> = flags.map(|(_, name)| *name).collect();
    let keys: Vec<String> = spec.keys.iter().map(show_key_spec).collect();
    format!("{} [{}] {}", spec.arity, flags.join(" "), keys.join(" "))
}

fn show_key_spec(spec: &KeySpec) -> String {
    let flags = KeyFlags::NAMES.iter().filter(|(flag, _)| spec.flags.has(*flag));
    let flags: Vec<&str> = flags.map(|(_, name)| *name).collect();
    let begin = match spec.begin {
        Begin::Index(index) => format!("[type index spec [index {index}]]"),
        Begin::Keyword(keyword, from) | Begin::Option(keyword, from, _) => {
            format!("[type keyword spec [keyword {keyword} startfrom {from}]]")
        }
        Begin::Unknown(_) => "[type unknown spec []]".to_owned(),
    };
    let find = match spec.find {
        _ if matches!(spec.begin, Begin::Unknown(_)) => "[type unknown spec []]".to_owned(),
        Find::Range { last, step } => {
            format!("[type range spec [lastkey {last} keystep {step} limit 0]]")
        }
        Find::Half => "[type range spec [lastkey -1 keystep 1 limit 2]]".to_owned(),
        Find::Count { at, first, step } => {
            format!("[type keynum spec [keynumidx {at} firstkey {first} keystep {step}]]")
        }
    };
    format!("[flags [{}] begin_search {begin} find_keys {find}]", flags.join(" "))
}

/// An element of the reply of `COMMAND INFO`, likewise.
fn show_info(info: &Frame) -> String {
    let Frame::Array(fields) = info else { return format!("{info:?}") };
    let Frame::Array(keys) = &fields[8] else { panic!("{info:?}") };
    let keys: Vec<String> = keys.iter().map(|spec| show(&without_notes(spec))).collect();
    format!("{} {} {}", show(&fields[1]), show(&fields[2]), keys.join(" "))
}

/// A key specification without the remark that Redis puts in front of some.
fn without_notes(spec: &Frame) -> Frame {
    let Frame::Array(fields) = spec else { panic!("{spec:?}") };
    let has_notes = show(&fields[0]) == "notes";
    Frame::Array(fields[if has_notes { 2 } else { 0 }..].to_vec())
}

fn show(frame: &Frame) -> String {
    match frame {
        Frame::Integer(number) => number.to_string(),
        Frame::Bulk(bytes) | Frame::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Frame::Array(items) | Frame::Set(items) => {
            format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" "))
        }
        other => format!("{other:?}"),
    }
}

/// A redis-server of the test's own, on a socket in a directory of its own.
struct Redis {
    process: Child,
    socket: UnixStream,
}

impl Redis {
    fn start() -> Redis {
        let directory = std::env::temp_dir().join(format!("command-info-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("redis.sock");
        let mut process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server is part of the test setup");
        let log = BufReader::new(process.stdout.take().expect("piped"));
        let ready = log.lines().map_while(Result::ok).any(|line| line.contains("ready to accept"));
        assert!(ready, "redis-server did not start");
        let socket = UnixStream::connect(&path).expect("it listens");
        std::fs::remove_dir_all(&directory).expect("the socket has served");
        Redis { process, socket }
    }

    fn call(&mut self, words: &[&str]) -> Frame {
        let mut request = Reply::default();
        request.array(words.len());
        words.iter().for_each(|word| request.bulk(word.as_bytes()));
        self.socket.write_all(request.as_slice()).expect("written");
        let (mut reply, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            let count = self.socket.read(&mut chunk).expect("read");
            assert_ne!(count, 0, "redis-server closed the connection");
            reply.extend_from_slice(&chunk[..count]);
            if let Some((frame, _)) = parse_frame(&reply).expect("a reply") {
                return frame;
            }
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
