//! The journal of `appendonly`: what was answered is there after the process was killed, whenever that came; a
//! transaction is whole or absent; and what goes wrong is told, and costs nothing that was there.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use resp::Frame;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use stdx::Random;
use support::values::{call, fill_all, told};
use support::{Client, Server, show, text};

const ON: [&str; 4] = ["--appendonly", "yes", "--enable-debug-command", "yes"];
const ALWAYS: [&str; 2] = ["--appendfsync", "always"];
/// A test waits no longer than this for what is to happen.
const WITHIN: Duration = Duration::from_secs(30);
/// Writers of a server that is killed.
const WRITERS: usize = 4;
/// Operations that each sends before it reads what they answer.
const AT_ONCE: usize = 16;
/// How often a server is killed and started again on what it left, unless KELVIN_KILLS says so (`make crash`).
const KILLS: usize = 6;
/// After so many times it begins with nothing: what is there is looked at each time.
const KILLS_OF_ONE: usize = 25;

fn info(client: &mut Client, name: &str) -> String {
    let all = text(&client.call(&["INFO", "persistence"]));
    let field = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    field.unwrap_or_else(|| panic!("{name}: {all}")).to_owned()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < WITHIN, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until no rewrite is under way or due.
fn wait_for_rewrite(client: &mut Client) {
    wait_until("a rewrite ends", || {
        info(client, "aof_rewrite_in_progress") == "0"
            && info(client, "aof_rewrite_scheduled") == "0"
    });
    assert_eq!(info(client, "aof_last_bgrewrite_status"), "ok");
}

/// A server on the directory of another, with the journal on.
fn on_directory(directory: &Path, options: &[&str]) -> Server {
    let dir = directory.to_str().expect("a path in UTF-8");
    let flash = ["--flash-path", dir, "--flash-size", "256mb", "--flash-segment-size", "1mb"];
    Server::kelvin(&[&ON[..], &["--dir", dir], &flash, options].concat())
}

/// The files of segments, in their order.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("appendonlydir")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_segment = |path: &PathBuf| path.to_string_lossy().contains("/journal.");
    let mut segments: Vec<PathBuf> = paths.filter(is_segment).collect();
    segments.sort();
    segments
}

/// Values of every type and size, in several databases, some of which expire; and what happens to them.
fn fill(client: &mut Client) -> Vec<String> {
    let keys = fill_all(client);
    for line in [
        "PEXPIRE string:100 99999999",
        "EXPIRE list1 7000",
        "HPEXPIRE hash100 99999999 FIELDS 2 0 1",
        "SPOP set1000 300",
        "INCRBYFLOAT string8 1.1",
        "HINCRBYFLOAT hash2 float 0.1",
        "LPOP list4000 200",
        "ZPOPMIN zset513 7",
        "ZADD zset129 INCR 0.3 element:5",
        "XADD stream100 * field now",
        "XTRIM stream4000 MAXLEN ~ 1000",
        "XAUTOCLAIM stream513 early carol 0 0 COUNT 3",
        "SUNIONSTORE union set100 set513",
        "SORT integers100 STORE sorted",
        "COPY zset1000 copy",
        "RENAME short100 renamed",
        "GETEX string7 PX 99999999",
        "PFADD loglog a b c",
        "PFCOUNT loglog",
        "SETBIT bits 12345 1",
        "BLPOP nothing list100 1",
        "SET gone v PX 1",
    ] {
        let reply = client.line(line);
        assert!(!matches!(reply, Frame::Error(_)), "{line}: {}", show(&reply));
    }
    thread::sleep(Duration::from_millis(5));
    for line in ["INCR gone", "SELECT 3", "SET a text", "SELECT 0", "SWAPDB 3 7", "MOVE string0 5"]
    {
        let reply = client.line(line);
        assert!(!matches!(reply, Frame::Error(_)), "{line}: {}", show(&reply));
    }
    keys
}

/// All that is told of a data set.
fn all_told(client: &mut Client, keys: &[String]) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = keys.iter().map(|key| told(client, key)).collect();
    all.push(vec![client.show("DEBUG DIGEST")]);
    for key in keys {
        all.push(vec![show(&client.call(&["PEXPIRETIME", key]))]);
    }
    all
}

#[test]
fn every_type_is_there_again() {
    let owner = Server::kelvin(&[]);
    let dir = owner.directory();
    let mut server = on_directory(dir, &["--workers", "2"]);
    let mut client = server.connect();
    let keys = fill(&mut client);
    call(&mut client, &[b"TIER", b"DEMOTE", b"ALL"]);
    call(&mut client, &[b"INCR", b"string1"]);
    let expected = all_told(&mut client, &keys);
    // From the records alone; then from a snapshot; then from a snapshot and records behind it.
    for round in 0..3 {
        if round == 1 {
            assert_eq!(
                client.show("BGREWRITEAOF"),
                "+Background append only file rewriting started"
            );
            wait_for_rewrite(&mut client);
            assert_eq!(info(&mut client, "aof_rewrites"), "1");
        }
        if round == 2 {
            for line in ["RPUSH list1 more", "DEL made", "SET made v", "LREM list1 0 more"] {
                client.line(line);
            }
            call(&mut client, &[b"DEL", b"made"]);
        }
        client.send(&["SHUTDOWN"]);
        assert!(client.try_read().is_none());
        assert!(server.wait().success());
        server = on_directory(dir, &["--workers", "2"]);
        client = server.connect();
        assert_eq!(all_told(&mut client, &keys), expected, "round {round}");
    }
}

/// Sends operation `number` of a writer. Returns how many replies it has.
fn send_operation(client: &mut Client, writer: usize, number: usize) -> Option<usize> {
    let key = |kind: &str| format!("{writer}:{kind}");
    let word = number.to_string();
    let padded = format!("{word}:{}", "x".repeat(number * 37 % 900));
    let requests: Vec<Vec<String>> = match number % 8 {
        0 => vec![vec!["SET".into(), format!("{writer}:string:{number}"), padded]],
        1 => vec![vec!["RPUSH".into(), key("list"), padded]],
        2 => vec![vec!["HSET".into(), key("hash"), word, padded]],
        3 => vec![vec!["SADD".into(), key("set"), word]],
        4 => vec![vec!["ZADD".into(), key("zset"), word.clone(), word]],
        5 => vec![vec![
            "XADD".into(),
            key("stream"),
            format!("{}-1", number + 1),
            "f".into(),
            padded,
        ]],
        6 => {
            let push = |side: &str| vec!["RPUSH".into(), key(side), word.clone()];
            vec![vec!["MULTI".into()], push("left"), push("right"), vec!["EXEC".into()]]
        }
        _ => {
            let key = format!("{writer}:expiring:{number}");
            vec![vec!["SET".into(), key, padded, "PX".into(), "99999999".into()]]
        }
    };
    for request in &requests {
        let mut bytes = resp::Reply::default();
        bytes.array(request.len());
        request.iter().for_each(|word| bytes.bulk(word.as_bytes()));
        if !client.try_write(bytes.as_slice()) {
            return None;
        }
    }
    Some(requests.len())
}

/// What a writer has done until its server was gone.
struct Written {
    sent: usize,
    /// When so many operations had been answered.
    answered: Vec<(Instant, usize)>,
}

impl Written {
    fn answered(&self) -> usize {
        self.answered.last().map_or(0, |last| last.1)
    }
}

/// Writes from operation `from` on until the server is gone. Tells `begun` of the first answers.
fn write_until_killed(
    mut client: Client,
    writer: usize,
    from: usize,
    begun: Sender<()>,
) -> Written {
    let mut written = Written { sent: from, answered: vec![(Instant::now(), from)] };
    loop {
        let mut replies = Vec::new();
        for number in written.sent..written.sent + AT_ONCE {
            let Some(count) = send_operation(&mut client, writer, number) else { return written };
            written.sent += 1;
            replies.push(count);
        }
        for count in replies {
            for _ in 0..count {
                let Some(reply) = client.try_read() else { return written };
                assert!(!matches!(reply, Frame::Error(_)), "{}", show(&reply));
            }
            written.answered.push((Instant::now(), written.answered() + 1));
        }
        // Later ones are nobody's.
        let _ = begun.send(());
    }
}

fn numbers(frames: &[Frame]) -> Vec<usize> {
    let number = |frame: &Frame| {
        let text = text(frame);
        text.split(':').next().and_then(|front| front.parse().ok()).expect("a number")
    };
    frames.iter().map(number).collect()
}

fn items(frame: Frame) -> Vec<Frame> {
    match frame {
        Frame::Array(items) | Frame::Set(items) => items,
        other => panic!("{}", show(&other)),
    }
}

/// How many of a writer's operations are there. Panics: if it is not the first of them.
fn operations(client: &mut Client, writer: usize) -> usize {
    let mut list = |words: &[&str]| {
        let mut request: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        request[1] = format!("{writer}:{}", request[1]);
        let request: Vec<&str> = request.iter().map(String::as_str).collect();
        items(client.call(&request))
    };
    let mut found = Vec::new();
    for words in [
        &["LRANGE", "list", "0", "-1"][..],
        &["HKEYS", "hash"],
        &["SMEMBERS", "set"],
        &["ZRANGE", "zset", "0", "-1"],
    ] {
        found.extend(numbers(&list(words)));
    }
    let ids: Vec<Frame> = list(&["XRANGE", "stream", "-", "+"])
        .into_iter()
        .map(|entry| items(entry).remove(0))
        .collect();
    found.extend(ids.iter().map(|id| {
        text(id).split('-').next().expect("an ID").parse::<usize>().expect("a number") - 1
    }));
    let names = ["string:*", "expiring:*"].map(|pattern| list(&["KEYS", pattern]));
    for name in names.into_iter().flatten() {
        let name = text(&name);
        found.push(name.rsplit(':').next().expect("a number").parse().expect("a number"));
        assert_eq!(numbers(&[client.call(&["GET", &name])]), found[found.len() - 1..]);
    }
    let left = numbers(&items(client.call(&["LRANGE", &format!("{writer}:left"), "0", "-1"])));
    let right = numbers(&items(client.call(&["LRANGE", &format!("{writer}:right"), "0", "-1"])));
    assert_eq!(left, right, "a transaction is whole or absent");
    found.extend(left);
    let (count, found) = (found.len(), BTreeSet::from_iter(found));
    assert_eq!(found, (0..count).collect(), "writer {writer}: what is there is not the first");
    count
}

/// Has writers write until `kill` has killed the server, which begins when all have been answered. What each has done, which went on from `from`.
fn write_and_kill(
    server: &mut Server,
    from: &[usize],
    kill: impl FnOnce(&mut Server),
) -> Vec<Written> {
    let clients: Vec<Client> = from.iter().map(|_| server.connect()).collect();
    thread::scope(|scope| {
        let (mut writers, mut begun) = (Vec::new(), Vec::new());
        for (writer, (client, &from)) in clients.into_iter().zip(from).enumerate() {
            let (tell, told) = channel();
            writers.push(scope.spawn(move || write_until_killed(client, writer, from, tell)));
            begun.push(told);
        }
        // However busy the machine is.
        begun.iter().for_each(|told| told.recv_timeout(WITHIN).expect("it is answered"));
        kill(server);
        writers.into_iter().map(|writer| writer.join().expect("it ends")).collect()
    })
}

fn kills() -> usize {
    std::env::var("KELVIN_KILLS").map_or(KILLS, |text| text.parse().expect("a number"))
}

#[test]
fn what_was_answered_outlives_the_process() {
    let mut owner = Server::kelvin(&[]);
    let mut random = Random::new(7);
    let mut from = vec![0; WRITERS];
    for round in 0..kills() {
        if round % KILLS_OF_ONE == 0 {
            owner = Server::kelvin(&[]);
            from.fill(0);
        }
        let workers = ["1", "2", "3"][round % 3];
        let mut server =
            on_directory(owner.directory(), &[&ALWAYS[..], &["--workers", workers]].concat());
        let mut client = server.connect();
        let there: Vec<usize> =
            (0..WRITERS).map(|writer| operations(&mut client, writer)).collect();
        assert_eq!(there, from, "round {round}: as it was looked at before");
        if round % 2 == 1 {
            assert_eq!(client.show("DEBUG DEMOTE-AFTER-COMMAND 1"), "+OK");
        }
        let delay = Duration::from_millis(30 + random.below(300));
        let written = write_and_kill(&mut server, &from, |server| {
            thread::sleep(delay);
            if round % 3 == 2 {
                client.line("BGREWRITEAOF");
                thread::sleep(Duration::from_millis(random.below(40)));
            }
            server.kill();
        });
        let server = on_directory(owner.directory(), &ALWAYS);
        let mut client = server.connect();
        for (writer, written) in written.iter().enumerate() {
            let there = operations(&mut client, writer);
            let (answered, sent) = (written.answered(), written.sent);
            assert!(answered <= there && there <= sent, "round {round}: {answered} {there} {sent}");
            assert!(answered > from[writer], "round {round}: it has written");
            from[writer] = there;
        }
    }
}

#[test]
fn no_more_than_a_second_is_lost() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &["--workers", "2"]);
    let written = write_and_kill(&mut server, &[0; WRITERS], |server| {
        thread::sleep(Duration::from_millis(2_300));
        server.kill();
    });
    let killed = Instant::now();
    let server = on_directory(owner.directory(), &[]);
    let mut client = server.connect();
    for (writer, written) in written.iter().enumerate() {
        let there = operations(&mut client, writer);
        let before =
            |answered: &&(Instant, usize)| killed - answered.0 > Duration::from_millis(1_200);
        let due = written.answered.iter().rev().find(before).map_or(0, |answered| answered.1);
        assert!(due > 0 && due <= there && there <= written.sent, "{due} {there} {}", written.sent);
    }
}

#[test]
fn it_is_switched_on_and_off_while_others_write() {
    let owner = Server::kelvin(&[]);
    let dir = owner.directory().to_str().expect("a path in UTF-8");
    let mut server =
        Server::kelvin(&["--dir", dir, "--enable-debug-command", "yes", "--workers", "2"]);
    let mut client = server.connect();
    assert_eq!(
        client.show("BGREWRITEAOF"),
        "-ERR there is no journal to rewrite: CONFIG SET appendonly yes begins one"
    );
    fill(&mut client);
    let written = write_and_kill(&mut server, &[0; WRITERS], |server| {
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(50));
            assert_eq!(client.show("CONFIG SET appendonly yes appendfsync always"), "+OK");
            assert_eq!(info(&mut client, "aof_enabled"), "1");
            thread::sleep(Duration::from_millis(30));
            assert_eq!(client.show("CONFIG SET appendonly no"), "+OK");
            assert_eq!(info(&mut client, "aof_enabled"), "0");
        }
        assert_eq!(client.show("CONFIG SET appendonly yes"), "+OK");
        thread::sleep(Duration::from_millis(50));
        assert_eq!(client.show("MULTI"), "+OK");
        client.line("CONFIG SET appendonly no");
        assert!(client.show("EXEC").contains("cannot be changed in a transaction"));
        server.kill();
    });
    let server = on_directory(owner.directory(), &[]);
    let mut client = server.connect();
    for (writer, written) in written.iter().enumerate() {
        let there = operations(&mut client, writer);
        assert!(written.answered() <= there && there <= written.sent);
    }
    assert_eq!(client.show("EXISTS union copy sorted stream4000"), ":4");
}

#[test]
fn a_snapshot_is_taken_over_by_the_first_start_with_a_journal() {
    let owner = Server::kelvin(&[]);
    let mut client = owner.connect();
    client.line("SET a 1");
    assert_eq!(client.show("SAVE"), "+OK");
    let mut server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    assert_eq!(client.show("INCR a"), ":2");
    server.kill();
    let server = on_directory(owner.directory(), &ALWAYS);
    assert_eq!(server.connect().show("GET a"), "$2");
}

#[test]
fn the_append_only_file_of_redis_is_not_passed_over() {
    let owner = Server::kelvin(&[]);
    let folder = owner.directory().join("appendonlydir");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("appendonly.aof.1.incr.aof"), "*1").expect("a file");
    let dir = owner.directory().to_str().expect("a path in UTF-8");
    let log = Server::failed_kelvin(&["--dir", dir, ON[0], ON[1]]);
    assert!(log.contains("append-only file of Redis"), "{log}");
}

#[test]
fn what_has_expired_does_not_come_back() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    for line in [
        "SET a 5 PX 20",
        "SET b 5 PX 20",
        "SET c 5 PX 2000",
        "HSET h e 5 f 1 g 1",
        "HPEXPIRE h 20 FIELDS 1 f",
        "HPEXPIRE h 2000 FIELDS 1 e",
    ] {
        client.line(line);
    }
    client.line("BGREWRITEAOF");
    wait_for_rewrite(&mut client);
    thread::sleep(Duration::from_millis(40));
    // New ones of the same names, which do not expire; and old ones, before their time has come.
    let lines = ["INCR a", "COPY b d", "INCR b", "INCR c", "PERSIST c", "HINCRBY h f 1"];
    for line in lines.into_iter().chain(["HINCRBY h e 1", "HPERSIST h FIELDS 1 e"]) {
        client.line(line);
    }
    server.kill();
    thread::sleep(Duration::from_millis(2_000));
    let server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    for (line, reply) in [
        ("GET a", "$1"),
        ("GET b", "$1"),
        ("EXISTS d", ":0"),
        ("GET c", "$6"),
        ("TTL c", ":-1"),
        ("HGET h e", "$6"),
        ("HGET h f", "$1"),
        ("HTTL h FIELDS 1 f", "[:-1]"),
    ] {
        assert_eq!(client.show(line), reply, "{line}");
    }
}

#[test]
fn damage_is_told_and_a_torn_end_is_cut_off() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    for number in 0..1_000 {
        client.call(&["SET", &format!("key:{number}"), &"v".repeat(100)]);
    }
    server.kill();
    let path = segments(owner.directory()).pop().expect("a segment");
    let whole = fs::read(&path).expect("it can be read");
    let dir = owner.directory().to_str().expect("a path in UTF-8");

    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&path, &damaged).expect("it can be written");
    let log = Server::failed_kelvin(&["--dir", dir, ON[0], ON[1]]);
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(log.contains("journal damaged") && log.contains(name), "{log}");

    // The last record, which was answered, but is cut off in the middle.
    let end = whole.iter().rposition(|&byte| byte == b'v').expect("a value");
    fs::write(&path, &whole[..end - 3]).expect("it can be written");
    let log = Server::failed_kelvin(&["--dir", dir, ON[0], ON[1], "--aof-load-truncated", "no"]);
    assert!(log.contains("cut off") && log.contains(name), "{log}");
    let server = on_directory(owner.directory(), &[]);
    let mut client = server.connect();
    assert_eq!(client.show("DBSIZE"), ":999");
    assert_eq!(client.show("EXISTS key:998 key:999"), ":1");
}

#[test]
fn writes_are_refused_while_the_journal_cannot_be_written() {
    let owner = Server::kelvin(&[]);
    let mut server =
        on_directory(owner.directory(), &[&ALWAYS[..], &["--flash-size", "64mb"]].concat());
    let mut client = server.connect();
    let value = "v".repeat(10_000);
    assert_eq!(show(&client.call(&["SET", "kept", &value])), "+OK");
    let pid = Pid::from_raw(server.pid() as i32);
    let limit = |bytes| {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(pid, Resource::Fsize, limit).expect("a limit of one's own process");
    };
    limit(Some(
        fs::metadata(segments(owner.directory()).pop().expect("a segment"))
            .expect("it is there")
            .len(),
    ));
    // Nobody can say what has become of this one.
    client.send(&["SET", "lost", &value]);
    assert!(client.try_read().is_none());
    let mut client = server.connect();
    assert!(client.show("SET refused v").starts_with("-MISCONF Errors writing to the AOF file: "));
    assert!(client.show("PING").starts_with("-MISCONF"));
    assert_eq!(client.show("STRLEN kept"), ":10000");
    assert_eq!(info(&mut client, "aof_last_write_status"), "err");
    limit(None);
    wait_until("the journal is written again", || client.show("SET later v") == "+OK");
    assert_eq!(info(&mut client, "aof_last_write_status"), "ok");
    server.kill();
    let server = on_directory(owner.directory(), &[]);
    assert_eq!(server.connect().show("EXISTS kept later"), ":2");
}

/// Asks over and over what a server on a socket answers to a request, until that is `last`. Returns the replies.
fn replies_until(socket: &Path, request: &str, last: &str) -> BTreeSet<String> {
    let mut replies = BTreeSet::new();
    wait_until("it is loaded", || {
        let Ok(mut stream) = UnixStream::connect(socket) else { return false };
        let mut reply = [0; 1 << 10];
        let len = stream.write_all(request.as_bytes()).and_then(|()| stream.read(&mut reply));
        let reply = String::from_utf8_lossy(&reply[..len.unwrap_or(0)]).into_owned();
        let is_last = reply.starts_with(last);
        replies.insert(reply);
        is_last
    });
    replies
}

#[test]
fn clients_are_told_that_the_data_is_being_loaded() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &[]);
    let mut client = server.connect();
    assert_eq!(client.show("DEBUG POPULATE 300000 key 100"), "+OK");
    client.send(&["SHUTDOWN"]);
    assert!(server.wait().success());
    let socket = owner.directory().join("socket");
    let path = socket.to_str().expect("a path in UTF-8");
    thread::scope(|scope| {
        let asked = scope.spawn(|| replies_until(&socket, "GET key:1\r\n", "$100"));
        let server = on_directory(owner.directory(), &["--unixsocket", path]);
        let loading = "-LOADING Redis is loading the dataset in memory\r\n";
        assert!(asked.join().expect("it ends").contains(loading));
        assert_eq!(replies_until(&socket, "DBSIZE\r\n", ":300000").len(), 1);
        drop(server);
    });
}

#[test]
fn the_journal_is_begun_anew_when_it_has_grown() {
    let owner = Server::kelvin(&[]);
    let options = ["--auto-aof-rewrite-min-size", "1mb", "--auto-aof-rewrite-percentage", "50"];
    let mut server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    let value = "v".repeat(1_000);
    wait_until("it is begun anew", || {
        client.call(&["SET", "key", &value]);
        info(&mut client, "aof_rewrites") != "0"
    });
    wait_for_rewrite(&mut client);
    let bytes: u64 = info(&mut client, "aof_current_size").parse().expect("a number");
    assert!(bytes < 1 << 20, "{bytes}");
    client.send(&["SHUTDOWN"]);
    assert!(server.wait().success());
    assert_eq!(on_directory(owner.directory(), &[]).connect().show("STRLEN key"), ":1000");
}

/// A server that is started often would never begin it anew if each start counted what it finds as the base.
#[test]
fn what_a_start_finds_behind_the_checkpoint_is_growth() {
    let owner = Server::kelvin(&[]);
    let start = |percentage| {
        let options =
            ["--auto-aof-rewrite-min-size", "1mb", "--auto-aof-rewrite-percentage", percentage];
        let server = on_directory(owner.directory(), &[&ALWAYS[..], &options].concat());
        let client = server.connect();
        (server, client)
    };
    let (mut server, mut client) = start("0");
    let value = "v".repeat(1_000);
    (0..3_000).for_each(|_| client.send(&["SET", "key", &value]));
    (0..3_000).for_each(|_| assert_eq!(show(&client.read()), "+OK"));
    for _ in 0..2 {
        server.kill();
        (server, client) = start("0");
        let size = |client: &mut Client, name| info(client, name).parse::<u64>().expect("a number");
        let (base, current) =
            (size(&mut client, "aof_base_size"), size(&mut client, "aof_current_size"));
        assert!(base < 1 << 20 && current > 2 << 20, "{base} of {current}");
    }
    server.kill();
    let (_server, mut client) = start("100");
    wait_until("it is begun anew", || info(&mut client, "aof_rewrites") != "0");
    wait_for_rewrite(&mut client);
    let current: u64 = info(&mut client, "aof_current_size").parse().expect("a number");
    assert!(current < 1 << 20, "{current}");
    assert_eq!(client.show("STRLEN key"), ":1000");
}

#[test]
fn what_a_client_has_loaded_is_there_again() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &[&ALWAYS[..], &["--workers", "2"]].concat());
    let mut client = server.connect();
    let keys = fill(&mut client);
    assert_eq!(client.show("DEBUG POPULATE 100000 key 100"), "+OK");
    // A rewrite that is under way is no reason to fail.
    assert!(client.show("BGREWRITEAOF").starts_with('+'));
    assert_eq!(client.show("DEBUG RELOAD"), "+OK");
    assert_eq!(client.show("RPUSH list1 behind"), ":2");
    let expected = all_told(&mut client, &keys);
    server.kill();
    let mut server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    assert_eq!(all_told(&mut client, &keys), expected);
    // Flushed and loaded over.
    for line in ["DEBUG RELOAD", "FLUSHALL", "SET a 1", "DEBUG RELOAD MERGE NOSAVE", "INCR a"] {
        let reply = client.line(line);
        assert!(!matches!(reply, Frame::Error(_)), "{line}: {}", show(&reply));
    }
    let expected = all_told(&mut client, &keys);
    server.kill();
    let server = on_directory(owner.directory(), &ALWAYS);
    assert_eq!(all_told(&mut server.connect(), &keys), expected);
}

/// What was loaded is in no record, so nothing that follows from it may be.
#[test]
fn writes_are_refused_where_a_load_could_not_be_followed_by_a_rewrite() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    for line in ["SET a text", "SAVE", "DEL a", "RPUSH a 1"] {
        let reply = client.line(line);
        assert!(!matches!(reply, Frame::Error(_)), "{line}: {}", show(&reply));
    }
    let folder = owner.directory().join("appendonlydir");
    let away = owner.directory().join("away");
    fs::rename(&folder, &away).expect("it can be moved");
    let reply = client.show("DEBUG RELOAD NOSAVE");
    assert!(reply.contains("the journal could not be begun anew"), "{reply}");
    assert_eq!(client.show("GET a"), "$text");
    for line in ["APPEND a :more", "SET b 1"] {
        assert!(client.show(line).starts_with("-MISCONF Data was loaded"), "{line}");
    }
    assert_eq!(client.show("PING"), "+PONG");
    assert_eq!(info(&mut client, "aof_enabled"), "1");
    fs::rename(&away, &folder).expect("it can be moved");
    assert!(client.show("BGREWRITEAOF").starts_with('+'));
    wait_for_rewrite(&mut client);
    assert_eq!(client.show("APPEND a :more"), ":9");
    server.kill();
    let mut server = on_directory(owner.directory(), &ALWAYS);
    assert_eq!(server.connect().show("GET a"), "$text:more");

    // A file that cannot be loaded leaves what the journal had.
    fs::write(owner.directory().join("dump.rdb"), "damaged").expect("it can be written");
    let mut client = server.connect();
    assert!(client.show("DEBUG RELOAD NOSAVE").starts_with("-ERR Error trying to load"));
    assert!(client.show("SET a lost").starts_with("-MISCONF Data was loaded"));
    server.kill();
    let server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    assert_eq!(client.show("GET a"), "$text:more");
    // Nor does it keep the journal from being switched off.
    assert!(client.show("DEBUG RELOAD NOSAVE").starts_with("-ERR Error trying to load"));
    assert_eq!(client.show("CONFIG SET appendonly no"), "+OK");
    assert_eq!(client.show("SET a kept"), "+OK");
}

/// The journal has records behind its moment, which no start would come to.
#[test]
fn writes_are_refused_until_a_rewrite_behind_a_load_is_in_place() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    assert_eq!(client.show("RPUSH a 1"), ":1");
    assert_eq!(client.show("SAVE"), "+OK");
    // Its snapshot finds a directory in its place, whatever its position.
    let folder = owner.directory().join("appendonlydir");
    let places = (0..1_000).map(|position| folder.join(format!("snapshot.{position}.rdb")));
    let taken: Vec<PathBuf> = places.filter(|place| fs::create_dir(place).is_ok()).collect();
    let reply = client.show("DEBUG RELOAD NOSAVE");
    assert!(reply.contains("the journal could not be begun anew"), "{reply}");
    for line in ["RPUSH a lost", "SET lost 1"] {
        assert!(client.show(line).starts_with("-MISCONF Data was loaded"), "{line}");
    }
    taken.iter().for_each(|place| fs::remove_dir(place).expect("it is empty"));
    assert!(client.show("BGREWRITEAOF").starts_with('+'));
    wait_for_rewrite(&mut client);
    assert_eq!(client.show("RPUSH a 2"), ":2");
    server.kill();
    let server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    assert_eq!(client.show("LRANGE a 0 -1"), "[$1 $2]");
    assert_eq!(client.show("EXISTS lost"), ":0");
}

/// A start that looks elsewhere would find nothing.
#[test]
fn the_journal_stays_where_it_is() {
    let owner = Server::kelvin(&[]);
    let options = [&ALWAYS[..], &["--enable-protected-configs", "yes"]].concat();
    let server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    let (here, there) = (owner.directory(), owner.directory().join("there"));
    fs::create_dir(&there).expect("a directory");
    let set = |dir: &Path| format!("CONFIG SET dir {}", dir.display());
    assert_eq!(client.show(&set(here)), "+OK");
    let refused =
        "-ERR CONFIG SET failed (possibly related to argument 'dir') - the journal stays in ";
    assert!(client.show(&set(&there)).starts_with(refused));
    assert_eq!(client.show("CONFIG SET appendonly no"), "+OK");
    assert_eq!(client.show(&set(&there)), "+OK");
    assert!(client.show("CONFIG SET appendonly yes").starts_with(refused));
    assert_eq!(client.show(&set(here)), "+OK");
    assert_eq!(client.show("CONFIG SET appendonly yes"), "+OK");
}

/// What a start has to run is not compressed, so a checkpoint that is short since it is comes no sooner.
#[test]
fn growth_is_measured_without_compression_behind_a_start_as_well() {
    let owner = Server::kelvin(&[]);
    let dir = owner.directory().to_str().expect("a path in UTF-8");
    let options = ["--dir", dir, "--auto-aof-rewrite-min-size", "1mb"];
    let mut server = Server::kelvin(&[&ON[..], &options].concat());
    let mut client = server.connect();
    let set = |client: &mut Client, keys: std::ops::Range<usize>| {
        let long = "x".repeat(10_000);
        keys.clone().for_each(|key| client.send(&["SET", &format!("key:{key}"), &long]));
        keys.for_each(|_| assert_eq!(show(&client.read()), "+OK"));
    };
    // A moment behind a rewrite four times as much growth is asked for.
    client.line("CONFIG SET auto-aof-rewrite-percentage 25");
    for is_restarted in [false, true] {
        set(&mut client, 0..1_000);
        wait_for_rewrite(&mut client);
        client.line("BGREWRITEAOF");
        wait_for_rewrite(&mut client);
        if is_restarted {
            server.kill();
            server = Server::kelvin(&[&ON[..], &options].concat());
            client = server.connect();
        }
        let size: u64 = info(&mut client, "aof_base_size").parse().expect("a number");
        assert!(size < 1_000_000, "{size}");
        let before = info(&mut client, "aof_rewrites");
        // More than twice what there is, and more than is always worth it.
        set(&mut client, 0..300);
        thread::sleep(Duration::from_millis(500));
        assert_eq!(info(&mut client, "aof_rewrites"), before);
        set(&mut client, 0..1_000);
        wait_until("a rewrite", || info(&mut client, "aof_rewrites") != before);
        wait_for_rewrite(&mut client);
    }
}

#[test]
fn a_payload_that_was_taken_without_a_look_at_its_checksum_is_there_again() {
    let restore = |client: &mut Client| {
        client.send_bytes(&[b"RESTORE", b"k", b"0", b"\x00\x05value\x0a\x00checksum"]);
        show(&client.read())
    };
    let refused = "-ERR DUMP payload version or checksum are wrong";
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    assert_eq!(restore(&mut client), refused);
    client.line("DEBUG SET-SKIP-CHECKSUM-VALIDATION 1");
    assert_eq!(restore(&mut client), "+OK");
    server.kill();
    let server = on_directory(owner.directory(), &ALWAYS);
    let mut client = server.connect();
    assert_eq!(client.show("GET k"), "$value");
    client.line("DEL k");
    assert_eq!(restore(&mut client), refused);
}
