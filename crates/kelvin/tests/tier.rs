//! TIER and INFO tiering: values move where they are told to, and the figures say so.

mod support;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use resp::Frame;
use support::{Client, Server, show, text};

fn number(client: &mut Client, name: &str) -> u64 {
    let info = text(&client.call(&["INFO", "tiering"]));
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// The state of a key's value.
fn state(client: &mut Client, key: &str) -> String {
    state_of(&client.call(&["TIER", "LOCATE", key]))
}

/// The state that a reply to TIER LOCATE tells.
fn state_of(reply: &Frame) -> String {
    let Frame::Array(items) = reply else { panic!("{}", show(reply)) };
    assert_eq!(text(&items[0]), "state");
    text(&items[1])
}

#[test]
fn a_value_goes_to_flash_and_comes_back() {
    let kelvin = Server::kelvin_with_flash("64mb", &["--flash-segment-size", "1mb"]);
    let mut client = kelvin.connect();
    let value = "x".repeat(2000);
    assert_eq!(state(&mut client, "k"), "missing");
    assert_eq!(client.show("TIER DEMOTE k"), ":0");
    client.call(&["SET", "k", &value]);
    assert_eq!(state(&mut client, "k"), "hot");
    assert_eq!(client.show("TIER PROMOTE k"), ":0");
    assert_eq!(client.show("TIER DEMOTE k"), ":1");
    assert_eq!(client.show("TIER DEMOTE k"), ":0");
    assert_eq!(state(&mut client, "k"), "cold");
    assert_eq!(client.show("STRLEN k"), ":2000");
    assert_eq!(state(&mut client, "k"), "cold", "its length is known");
    assert_eq!(text(&client.line("GET k")), value);
    assert_eq!(state(&mut client, "k"), "clean");
    assert_eq!(client.show("TIER DEMOTE k"), ":1");
    assert_eq!(client.show("TIER PROMOTE k"), ":1");
    assert_eq!(state(&mut client, "k"), "clean");
    assert_eq!(text(&client.line("GET k")), value);
    client.line("APPEND k y");
    assert_eq!(state(&mut client, "k"), "hot");
    client.line("SET short v");
    assert_eq!(client.show("TIER DEMOTE short"), ":0", "its place would take as much RAM");
    let figures = [
        ("tier_demoted_dirty", 1),
        ("tier_demoted_clean", 1),
        ("tier_promoted", 2),
        ("tier_read_flash", 1),
        ("tier_values_hot", 2),
        ("tier_values_cold", 0),
        ("flash_appends", 1),
        ("flash_enabled", 1),
    ];
    for (name, expected) in figures {
        assert_eq!(number(&mut client, name), expected, "{name}");
    }
    assert!(number(&mut client, "tier_user_written_bytes") > 2000);
}

#[test]
fn a_place_on_flash_is_told_in_full() {
    let options = ["--flash-segment-size", "1mb", "--tier-compression-min-bytes", "64"];
    let kelvin = Server::kelvin_with_flash("64mb", &options);
    let mut client = kelvin.connect();
    client.line("HELLO 3");
    client.call(&["SET", "k", &"x".repeat(2000)]);
    client.line("TIER DEMOTE k");
    let frame = client.line("TIER LOCATE k");
    let Frame::Map(pairs) = &frame else { panic!("{}", show(&frame)) };
    let names: Vec<String> = pairs.iter().map(|(name, _)| text(name)).collect();
    let expected =
        ["state", "value-bytes", "frequency", "stored-bytes", "compressed", "segment", "offset"];
    assert_eq!(names, expected);
    let value = |name: &str| {
        let pair = pairs.iter().find(|(found, _)| text(found) == name).expect(name);
        match pair.1 {
            Frame::Integer(number) => number,
            _ => panic!("{name} is no number"),
        }
    };
    assert_eq!(value("value-bytes"), 2000);
    assert_eq!(value("compressed"), 1);
    assert!((1..2000).contains(&value("stored-bytes")));
    assert!((0..64).contains(&value("segment")));
    assert!((0..1 << 20).contains(&value("offset")));
    assert!(number(&mut client, "tier_compressed_away_bytes") > 1000);
}

#[test]
fn a_large_collection_in_the_place_of_a_string_of_its_length_stays_in_ram() {
    const ELEMENTS: usize = 200;
    let kelvin = Server::kelvin_with_flash("64mb", &["--flash-segment-size", "1mb"]);
    let mut client = kelvin.connect();
    let element = |number: usize| format!("e{number}").repeat(10);
    let elements: Vec<String> = (0..ELEMENTS).map(element).collect();
    let elements: Vec<&str> = elements.iter().map(String::as_str).collect();
    client.call(&[&["RPUSH", "list"], &elements[..]].concat());
    client.call(&[&["SADD", "set"], &elements[..]].concat());
    // Its root has one of these lengths.
    for len in 32..400 {
        for (kind, count) in [("list", "LLEN"), ("set", "SCARD")] {
            client.call(&["SET", "over", &"x".repeat(len)]);
            client.call(&["COPY", kind, "over", "REPLACE"]);
            client.line("TIER DEMOTE ALL");
            assert_eq!(client.call(&[count, "over"]), Frame::Integer(ELEMENTS as i64), "{len}");
        }
    }
    client.call(&["COPY", "list", "over", "REPLACE"]);
    client.line("TIER DEMOTE ALL");
    for number in [0, ELEMENTS - 1] {
        let index = number.to_string();
        assert_eq!(text(&client.call(&["LINDEX", "over", &index])), element(number));
    }
}

#[test]
fn clients_are_not_told_where_a_value_that_cannot_be_read_is() {
    const KEYS: usize = 500;
    let kelvin = Server::kelvin_with_flash("64mb", &["--flash-segment-size", "1mb"]);
    let mut client = kelvin.connect();
    for key in 0..KEYS {
        client.call(&["SET", &key.to_string(), &"x".repeat(2000)]);
    }
    // What is still in write buffers is served from there, and may be written over the damage; and what
    // was read has come to RAM.
    let damage = (0..1000).find_map(|_| {
        client.line("TIER DEMOTE ALL");
        damage_files(kelvin.directory());
        (0..KEYS).find_map(|key| match client.call(&["GET", &key.to_string()]) {
            Frame::Error(text) => Some(String::from_utf8_lossy(&text).into_owned()),
            _ => None,
        })
    });
    let damage = damage.expect("a value cannot be read");
    assert!(
        damage.starts_with("ERR cannot read the value of a key: flash record damaged: segment")
    );
    assert!(!damage.contains('/'), "{damage}");
    let directory = kelvin.directory().display().to_string();
    client.write(b"SHUTDOWN\r\n");
    drop(client);
    let log = kelvin.log_to_its_end();
    let told = log.lines().find(|line| line.contains("flash cannot be read"));
    assert!(told.is_some_and(|line| line.contains(&directory)), "{log}");
}

/// Overwrites what values have been written to the flash of a server.
fn damage_files(directory: &Path) {
    for entry in directory.read_dir().expect("the server's directory") {
        let path = entry.expect("an entry").path();
        let file = OpenOptions::new().write(true).open(&path).expect("a file of the server's");
        file.write_all_at(&vec![0xA5; 2 << 20], 0).expect("it can be written");
        file.sync_all().expect("it can be written");
    }
}

#[test]
fn short_values_stay_as_long_as_they_are_told_to() {
    let options = ["--flash-segment-size", "1mb", "--tier-value-bytes-min", "100"];
    let kelvin = Server::kelvin_with_flash("64mb", &options);
    let mut client = kelvin.connect();
    for (key, bytes) in [("tiny", 31), ("short", 99), ("long", 100)] {
        client.call(&["SET", key, &"x".repeat(bytes)]);
    }
    assert_eq!(client.show("TIER DEMOTE short"), ":0");
    assert_eq!(client.show("TIER DEMOTE ALL"), ":1");
    assert_eq!(client.show("TIER DEMOTE long"), ":0");
    client.line("CONFIG SET tier-value-bytes-min 32");
    assert_eq!(client.show("TIER DEMOTE ALL"), ":1");
    assert_eq!(client.show("TIER DEMOTE short"), ":0");
    assert_eq!(client.show("TIER DEMOTE tiny"), ":0");
    // Not even when a copy of it is on flash already.
    client.line("TIER PROMOTE short");
    client.line("CONFIG SET tier-value-bytes-min 100");
    assert_eq!(client.show("TIER DEMOTE short"), ":0");
    assert_eq!(client.call(&["GET", "short"]), Frame::Bulk("x".repeat(99).into()));
}

#[test]
fn everything_goes_to_flash_while_others_write() {
    const KEYS: usize = 20_000;
    let options = ["--workers", "2", "--maxmemory", "200mb", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut client = kelvin.connect();
    let value = |index: usize| format!("{index:04}").repeat(150);
    for index in 0..KEYS {
        client.send(&["SET", &format!("k{index}"), &value(index)]);
    }
    for _ in 0..KEYS {
        assert_eq!(client.read(), Frame::Simple(b"OK".to_vec()));
    }
    let mut writer = kelvin.connect();
    let writing = std::thread::spawn(move || {
        for index in 0..KEYS {
            writer.call(&["APPEND", &format!("w{}", index % 100), "some more bytes"]);
        }
    });
    let Frame::Integer(demoted) = client.line("TIER DEMOTE ALL") else { panic!("a count") };
    assert!(demoted as usize >= KEYS, "{demoted}");
    writing.join().expect("the writer is served");
    assert!(number(&mut client, "tier_values_cold") >= KEYS as u64);
    for index in (0..KEYS).step_by(7) {
        assert_eq!(text(&client.call(&["GET", &format!("k{index}")])), value(index));
    }
    assert!(number(&mut client, "tier_read_flash") >= (KEYS / 7) as u64);
    // What was read stays on flash too: to demote it again writes nothing.
    let appends = number(&mut client, "flash_appends");
    client.line("TIER DEMOTE ALL");
    let more = number(&mut client, "flash_appends") - appends;
    assert!(more <= 100, "{more} values were written twice");
    assert_eq!(client.show("TIER FLUSH"), "+OK");
}

/// Sets more than 64 MB.
fn leave_no_free_room(client: &mut Client) {
    let value = "x".repeat(500);
    for index in 0..150_000 {
        client.send(&["SET", &format!("filler-{index}"), &value]);
        if index % 1_000 == 999 {
            (0..1_000).for_each(|_| assert_eq!(client.read(), Frame::Simple(b"OK".to_vec())));
        }
    }
}

/// Has one request use a cold key when there is no free room, and another use it again: it stays cold behind the first,
/// and is as `state_behind` says behind the second. A busy machine may have given the server time to make room before
/// the first, or none to end its demotions before either: then that is done once more, a little later behind the fill
/// each time, and with nothing left of the try before, whose fillers would stay cold and fill no RAM.
fn use_twice_without_room(client: &mut Client, key: &str, uses: [&[&str]; 2], state_behind: &str) {
    let set = |client: &mut Client| drop(client.call(&["SET", key, &"x".repeat(500)]));
    use_what_is_set_twice_without_room(client, key, set, uses, state_behind);
}

/// The same of a key that `set` makes, with others.
fn use_what_is_set_twice_without_room(
    client: &mut Client,
    key: &str,
    set: impl Fn(&mut Client),
    uses: [&[&str]; 2],
    state_behind: &str,
) {
    const TRIES: u32 = 10;
    const PAUSE: Duration = Duration::from_millis(2);
    let mut states = Vec::new();
    for index in 0..TRIES {
        client.call(&["FLUSHALL"]);
        set(client);
        client.line("TIER DEMOTE ALL");
        leave_no_free_room(client);
        std::thread::sleep(PAUSE * index);
        assert_eq!(state(client, key), "cold");
        states.push(uses.map(|request| {
            client.call(request);
            state(client, key)
        }));
        if states.last().is_some_and(|states| states[0] == "cold" && states[1] == state_behind) {
            return;
        }
    }
    panic!("{key}: {states:?}");
}

#[test]
fn a_value_comes_back_at_its_second_use_and_at_its_first_while_there_is_room() {
    let options = ["--maxmemory", "64mb", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut client = kelvin.connect();
    let value = "x".repeat(500);
    client.call(&["SET", "roomy", &value]);
    client.line("TIER DEMOTE roomy");
    assert_eq!(text(&client.line("GET roomy")), value);
    assert_eq!(state(&mut client, "roomy"), "clean");
    use_twice_without_room(&mut client, "full", [&["GET", "full"]; 2], "clean");
    assert_eq!(text(&client.line("GET full")), value);
}

#[test]
fn a_list_comes_back_at_its_second_use_though_that_is_a_sort_by_values_that_were_not_used_before() {
    let options = ["--maxmemory", "64mb", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut client = kelvin.connect();
    let set = |client: &mut Client| {
        let numbers: Vec<String> = (0..300).map(|number| number.to_string()).collect();
        let mut push = vec!["RPUSH", "list"];
        push.extend(numbers.iter().map(String::as_str));
        client.call(&push);
        for number in 0..3 {
            client.call(&["SET", &format!("by-{number}"), &"7".repeat(500)]);
        }
    };
    let uses: [&[&str]; 2] = [
        &["LRANGE", "list", "0", "0"],
        &["SORT", "list", "BY", "by-*", "ALPHA", "LIMIT", "0", "1"],
    ];
    use_what_is_set_twice_without_room(&mut client, "list", set, uses, "clean");
}

#[test]
fn a_value_written_to_a_cold_key_stays_at_its_second_use_and_at_its_first_while_there_is_room() {
    let options = ["--maxmemory", "64mb", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut client = kelvin.connect();
    let value = |digit: &str| digit.repeat(500);
    client.call(&["SET", "roomy", &value("x")]);
    client.line("TIER DEMOTE roomy");
    client.call(&["SET", "roomy", &value("0")]);
    assert_eq!(state(&mut client, "roomy"), "hot");
    let uses: [&[&str]; 2] = [&["SET", "full", &value("1")], &["SET", "full", &value("2")]];
    use_twice_without_room(&mut client, "full", uses, "hot");
    assert_eq!(text(&client.line("GET full")), value("2"));
    client.call(&["CONFIG", "SET", "tier-promotion", "access"]);
    client.line("TIER DEMOTE full");
    client.call(&["SET", "full", &value("3")]);
    assert_eq!(state(&mut client, "full"), "hot");
}

#[test]
fn promotion_on_access_brings_a_value_back_at_its_first_use() {
    let options =
        ["--tier-promotion", "access", "--maxmemory", "64mb", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut client = kelvin.connect();
    let value = "x".repeat(500);
    leave_no_free_room(&mut client);
    client.call(&["SET", "k", &value]);
    client.line("TIER DEMOTE k");
    client.line("GET k");
    assert_eq!(state(&mut client, "k"), "clean");
}

#[test]
fn refusals_say_why() {
    let kelvin = Server::kelvin(&[]);
    let mut client = kelvin.connect();
    let cases = [
        ("TIER", "-ERR wrong number of arguments for 'tier' command"),
        ("TIER NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try TIER HELP."),
        ("TIER DEMOTE", "-ERR wrong number of arguments for 'tier|demote' command"),
        ("TIER DEMOTE k", "-ERR there is no flash: CONFIG SET flash-path and flash-size make it"),
        ("TIER DEMOTE ALL", "-ERR there is no flash: CONFIG SET flash-path and flash-size make it"),
        ("TIER PROMOTE k", ":0"),
        ("TIER LOCATE k", "[$state $missing]"),
        ("MULTI", "+OK"),
        ("TIER LOCATE k", "-ERR Command not allowed inside a transaction"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
    ];
    for (line, expected) in cases {
        assert_eq!(client.show(line), expected, "{line}");
    }
    assert!(show(&client.line("TIER HELP")).contains("DEMOTE ALL"));
    assert_eq!(number(&mut client, "flash_enabled"), 0);
}

#[test]
fn a_small_flash_needs_no_segment_size() {
    let kelvin = Server::kelvin_with_flash("256mb", &["--workers", "2"]);
    let mut client = kelvin.connect();
    assert_eq!(number(&mut client, "flash_segment_bytes"), 4 << 20);
}

#[test]
fn paths_are_added_and_drained_while_values_are_demoted() {
    const KEYS: usize = 10_000;
    let options = ["--flash-segment-size", "1mb", "--tier-compression", "none", "--workers", "2"];
    let kelvin = Server::kelvin_with_flash("64mb", &options);
    let mut client = kelvin.connect();
    let old = kelvin.directory().to_owned();
    let new = old.join("new");
    std::fs::create_dir(&new).expect("a directory");
    let file = new.join("kelvin.flash");
    let value = |index: usize, round: usize| format!("{index:05}-{round}-").repeat(200);
    let fill = |client: &mut Client, round: usize| {
        for index in 0..KEYS {
            client.send(&["SET", &format!("k{index}"), &value(index, round)]);
        }
        (0..KEYS).for_each(|_| assert_eq!(client.read(), Frame::Simple(b"OK".to_vec())));
        client.line("TIER DEMOTE ALL");
    };
    let check = |client: &mut Client, round: usize| {
        for index in 0..KEYS {
            client.send(&["GET", &format!("k{index}")]);
        }
        (0..KEYS).for_each(|index| assert_eq!(text(&client.read()), value(index, round)));
    };
    fill(&mut client, 0);
    let set = |client: &mut Client, paths: &[&std::path::Path]| {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        show(&client.call(&["CONFIG", "SET", "flash-path", &paths.join(" ")]))
    };
    let refused = [
        (vec![&*old, &new, std::path::Path::new("/nonexistent")], "is not a directory"),
        (vec![&*old, &old], "is given twice"),
    ];
    for (paths, reason) in refused {
        let reply = set(&mut client, &paths);
        assert!(reply.starts_with("-ERR CONFIG SET failed (possibly related to"), "{reply}");
        assert!(reply.contains(reason), "{reply}");
        assert!(!file.exists());
        assert_eq!(number(&mut client, "flash_paths"), 1);
    }
    let drain = |client: &mut Client| {
        // The file goes some moments after the last segment was moved.
        while number(client, "flash_paths_draining") > 0 {
            client.line("PING");
        }
    };
    // What is refused later in the same command takes the new path away again.
    let both = format!("{} {}", old.display(), new.display());
    let reply = client.call(&["CONFIG", "SET", "flash-path", &both, "flash-size", "1"]);
    assert!(show(&reply).contains("flash size too small"), "{}", show(&reply));
    assert_eq!(number(&mut client, "flash_paths"), 1);
    drain(&mut client);
    assert!(!file.exists());
    assert_eq!(set(&mut client, &[&old, &new]), "+OK");
    assert_eq!(number(&mut client, "flash_paths"), 2);
    fill(&mut client, 1);
    let written = std::fs::read(&file).expect("the new file");
    assert!(written.iter().any(|&byte| byte != 0), "the new path is used");
    check(&mut client, 1);
    assert_eq!(set(&mut client, &[&new]), "+OK");
    assert_eq!(number(&mut client, "flash_paths"), 1);
    check(&mut client, 1);
    drain(&mut client);
    assert!(!old.join("kelvin.flash").exists());
    assert_eq!(number(&mut client, "flash_draining_bytes"), 0);
    client.line("TIER DEMOTE ALL");
    check(&mut client, 1);
    fill(&mut client, 2);
    check(&mut client, 2);
}

#[test]
fn stats_are_the_fields_of_info() {
    let kelvin = Server::kelvin_with_flash("64mb", &["--flash-segment-size", "1mb"]);
    let mut client = kelvin.connect();
    client.line("HELLO 3");
    let frame = client.line("TIER STATS");
    let Frame::Map(pairs) = &frame else { panic!("{}", show(&frame)) };
    let names: Vec<String> = pairs.iter().map(|(name, _)| text(name)).collect();
    let info = text(&client.line("INFO tiering"));
    let fields: Vec<&str> = info.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert_eq!(names, fields);
}

#[test]
fn statistics_begin_again_and_values_stay() {
    let kelvin = Server::kelvin_with_flash("64mb", &["--flash-segment-size", "1mb"]);
    let mut client = kelvin.connect();
    client.call(&["SET", "k", &"x".repeat(500)]);
    client.line("TIER DEMOTE ALL");
    client.line("CONFIG RESETSTAT");
    for name in ["tier_demoted_dirty", "flash_appends", "tier_user_written_bytes"] {
        assert_eq!(number(&mut client, name), 0, "{name}");
    }
    assert_eq!(number(&mut client, "tier_values_cold"), 1);
}

/// The states that a reply of `TIER LOCATE` tells, of a large collection which leaves are in RAM.
fn located(frame: &Frame) -> String {
    let Frame::Array(items) = frame else { panic!("{}", show(frame)) };
    match text(&items[1]).as_str() {
        "leaves" => format!("hot {} clean {}", show(&items[7]), show(&items[9])),
        state => state.to_owned(),
    }
}

#[test]
fn what_a_command_has_worked_on_is_demoted_behind_it() {
    let options = ["--enable-debug-command", "yes", "--workers", "2"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut client = kelvin.connect();
    assert_eq!(client.show("DEBUG DEMOTE-AFTER-COMMAND 1"), "+OK");
    let value = "x".repeat(40);
    let elements = format!("{value} ").repeat(1000);
    let locate = "TIER LOCATE k\r\n";
    let lines = [
        &format!("SET k {value}\r\n"),
        locate,
        "APPEND k x\r\n",
        locate,
        "GETRANGE k 38 -1\r\n",
        locate,
        "MULTI\r\n",
        "APPEND k y\r\n",
        &format!("RPUSH list {elements}\r\n"),
        "EXEC\r\n",
        locate,
        "TIER LOCATE list\r\n",
        "LINDEX list 500\r\n",
        "TIER LOCATE list\r\n",
        "DEBUG POPULATE 1 p 40\r\n",
        "TIER LOCATE p:0\r\n",
        // Memory alone would have it stay until it expires.
        &format!("SET k {value} PX 4900\r\n"),
        locate,
    ];
    // In one batch.
    client.write(lines.concat().as_bytes());
    let mut replies = (0..lines.len()).map(|_| client.read()).collect::<Vec<_>>();
    let states = [1, 3, 5, 10, 15, 17].map(|at| located(&replies[at]));
    assert_eq!(states, ["cold"; 6]);
    assert_eq!([11, 13].map(|at| located(&replies[at])), ["hot :0 clean :0"; 2]);
    assert_eq!(show(&replies.swap_remove(4)), "$xxx");
    assert_eq!(client.show("DEBUG DEMOTE-AFTER-COMMAND 0"), "+OK");
    client.line("GET p:0");
    assert_eq!(state(&mut client, "p:0"), "clean");
    let kelvin = Server::kelvin(&options);
    let refusal = "-ERR there is no flash: CONFIG SET flash-path and flash-size make it";
    assert_eq!(kelvin.connect().show("DEBUG DEMOTE-AFTER-COMMAND 1"), refusal);
}
