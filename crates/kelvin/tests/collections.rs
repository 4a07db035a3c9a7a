//! Large collections: their leaves go to flash one by one, come back one by one, are moved by garbage
//! collection, and go with their key.

mod support;

use std::time::{Duration, Instant};

use resp::Frame;
use support::{Client, Server, show, text};

const FIELDS: usize = 4_000;
/// How long upkeep may take to free the nodes of a key.
const FREED_WITHIN: Duration = Duration::from_secs(20);

fn number(client: &mut Client, name: &str) -> u64 {
    let info = text(&client.call(&["INFO", "tiering"]));
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// A figure of TIER LOCATE.
fn located(client: &mut Client, key: &str, name: &str) -> u64 {
    let frame = client.call(&["TIER", "LOCATE", key]);
    let Frame::Array(items) = &frame else { panic!("{}", show(&frame)) };
    let at = items.iter().position(|item| *item == Frame::Bulk(name.into()));
    match &items[at.unwrap_or_else(|| panic!("no {name} in {}", show(&frame))) + 1] {
        Frame::Integer(number) => *number as u64,
        other => panic!("{}", show(other)),
    }
}

fn value(number: usize, version: usize) -> String {
    format!("value {number} of version {version}, and many bytes more: {}", "x".repeat(150))
}

/// Sets every `step`-th field of a hash from `first` on.
fn fill(client: &mut Client, key: &str, version: usize, (first, step): (usize, usize)) {
    let numbers: Vec<usize> = (first..FIELDS).step_by(step).collect();
    for some in numbers.chunks(100) {
        let mut words = vec!["HSET".to_owned(), key.to_owned()];
        for &number in some {
            words.extend([format!("field {number}"), value(number, version)]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert!(matches!(client.call(&words), Frame::Integer(_)));
    }
}

fn check(client: &mut Client, key: &str, version_of: impl Fn(usize) -> usize) {
    for number in 0..FIELDS {
        let found = client.call(&["HGET", key, &format!("field {number}")]);
        assert_eq!(text(&found), value(number, version_of(number)), "field {number}");
    }
}

fn wait_until_freed(client: &mut Client, nodes: u64) {
    let start = Instant::now();
    while number(client, "tier_nodes") > nodes {
        assert!(start.elapsed() < FREED_WITHIN, "{} nodes", number(client, "tier_nodes"));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(number(client, "tier_nodes"), nodes);
}

#[test]
fn a_cold_hash_is_read_leaf_by_leaf() {
    let kelvin = Server::kelvin_with_flash("64mb", &["--flash-segment-size", "1mb"]);
    let mut client = kelvin.connect();
    fill(&mut client, "h", 0, (0, 1));
    let leaves = located(&mut client, "h", "leaves-hot");
    assert!(leaves > 100, "{leaves}");
    assert_eq!(client.show("TIER DEMOTE h"), ":1");
    assert_eq!(client.show("TIER DEMOTE h"), ":0");
    assert_eq!(located(&mut client, "h", "leaves-cold"), leaves);
    let reads = number(&mut client, "tier_read_flash");
    client.call(&["HGET", "h", "field 7"]);
    assert_eq!(number(&mut client, "tier_read_flash"), reads + 1);
    assert_eq!(located(&mut client, "h", "leaves-clean"), 1, "there is room for it");
    client.line("TIER DEMOTE h");
    // Those that lie in the same leaf count once.
    let fields: Vec<String> = (0..50).map(|number| format!("field {number}")).collect();
    let words: Vec<&str> =
        ["HMGET", "h"].into_iter().chain(fields.iter().map(String::as_str)).collect();
    let Frame::Array(values) = client.call(&words) else { panic!("an array") };
    assert!(values.iter().enumerate().all(|(at, found)| text(found) == value(at, 0)));
    // A change makes one leaf hot, and leaves the others where they are.
    client.line("TIER DEMOTE h");
    client.call(&["HSET", "h", "field 3", "new"]);
    assert_eq!(located(&mut client, "h", "leaves-hot"), 1);
    assert_eq!(located(&mut client, "h", "leaves-cold"), leaves - 1);
    let Frame::Array(all) = client.line("HGETALL h") else { panic!("an array") };
    assert_eq!(all.len(), 2 * FIELDS);
    client.line("TIER DEMOTE h");
    assert_eq!(client.show("TIER PROMOTE h"), ":1");
    assert_eq!(located(&mut client, "h", "leaves-cold"), 0);
}

#[test]
fn nodes_go_with_their_key() {
    let kelvin = Server::kelvin_with_flash("64mb", &["--flash-segment-size", "1mb"]);
    let mut client = kelvin.connect();
    for end in ["DEL h", "SET h v", "PEXPIRE h 1", "FLUSHDB", "RENAME s h", "EVAL"] {
        client.line("SET s v");
        client.line("DEL h");
        wait_until_freed(&mut client, 0);
        fill(&mut client, "h", 0, (0, 1));
        client.line("TIER DEMOTE h");
        fill(&mut client, "h", 1, (0, 7));
        assert!(number(&mut client, "tier_nodes") > 100);
        match end {
            // Field by field.
            "EVAL" => (0..FIELDS).for_each(|number| {
                let removed = client.call(&["HDEL", "h", &format!("field {number}")]);
                assert_eq!(removed, Frame::Integer(1));
            }),
            _ => drop(client.line(end)),
        }
        wait_until_freed(&mut client, 0);
    }
    client.line("FLUSHALL");
    for name in ["tier_values_hot", "tier_values_clean", "tier_values_cold"] {
        assert_eq!(number(&mut client, name), 0, "{name}");
    }
}

/// Leaves of several hashes that are written again in part, on flash of which half is live, so that
/// others are moved out of their way; one of the hashes moves between names.
#[test]
fn garbage_collection_moves_leaves() {
    const HASHES: usize = 24;
    const STEP: usize = 7;
    let options = ["--flash-segment-size", "1mb", "--tier-compression", "none", "--workers", "2"];
    let kelvin = Server::kelvin_with_flash("48mb", &options);
    let mut client = kelvin.connect();
    let mut names: Vec<String> = (0..HASHES).map(|hash| format!("h{hash}")).collect();
    let mut versions = vec![[0; STEP]; HASHES];
    for name in &names {
        fill(&mut client, name, 0, (0, 1));
    }
    for version in 1..150 {
        let (hash, first) = (version * 5 % HASHES, version % STEP);
        fill(&mut client, &names[hash], version, (first, STEP));
        versions[hash][first] = version;
        if version % 10 == 0 {
            let name = format!("renamed{version}");
            let renamed = client.call(&["RENAME", &names[0], &name]);
            assert_eq!(renamed, Frame::Simple(b"OK".to_vec()));
            names[0] = name;
        }
        client.line("TIER DEMOTE ALL");
    }
    assert!(number(&mut client, "flash_gc_relocated") > 100, "nothing was moved");
    for (name, versions) in names.iter().zip(versions) {
        check(&mut client, name, |number| versions[number % STEP]);
    }
    client.line("FLUSHALL");
    wait_until_freed(&mut client, 0);
}

/// All of a cold hash that is more than a client may have is refused, by itself and in a transaction,
/// and the connection stays.
#[test]
fn a_hash_that_is_too_much_for_a_client_is_refused() {
    let options =
        ["--maxmemory", "64mb", "--maxmemory-clients", "4mb", "--tier-compression", "none"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut client = kelvin.connect();
    let long = "v".repeat(3_000);
    for number in 0..3_000 {
        client.call(&["HSET", "h", &format!("field {number}"), &long]);
    }
    client.line("TIER DEMOTE h");
    let refused = "-ERR request needs more memory than maxmemory-clients allows (4194304 bytes)";
    assert_eq!(client.show("HGETALL h"), refused);
    for line in ["MULTI", "SET before 1", "HGETALL h", "HLEN h"] {
        client.line(line);
    }
    // None of its commands has run.
    let discarded = refused.replace("-ERR", "-EXECABORT Transaction discarded because of:");
    assert_eq!(client.show("EXEC"), discarded);
    assert_eq!(client.show("EXISTS before"), ":0");
    assert_eq!(text(&client.call(&["HGET", "h", "field 7"])), long);
}

/// The limit of a client is about the bytes of what it asks for, not about what these take beside themselves while
/// they are read.
#[test]
fn a_cold_hash_that_a_client_may_have_is_answered() {
    const FIELDS: usize = 8_800;
    let options = ["--maxmemory", "64mb", "--maxmemory-clients", "4mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut client = kelvin.connect();
    let long = |number: usize| format!("{number:0400}");
    for number in 0..FIELDS {
        client.call(&["HSET", "h", &format!("field {number}"), &long(number)]);
    }
    for _ in 0..2 {
        client.line("TIER DEMOTE h");
        let Frame::Array(all) = client.line("HGETALL h") else { panic!("an array") };
        assert_eq!(all.len(), 2 * FIELDS);
        for pair in all.chunks(2) {
            let number = text(&pair[0])["field ".len()..].parse().expect("a number");
            assert_eq!(text(&pair[1]), long(number));
        }
    }
}

/// Puts as many elements behind a list as there are fields in a hash.
fn fill_list(client: &mut Client, key: &str) {
    for first in (0..FIELDS).step_by(100) {
        let mut words = vec!["RPUSH".to_owned(), key.to_owned()];
        words.extend((first..first + 100).map(|number| value(number, 0)));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(client.call(&words), Frame::Integer(first as i64 + 100));
    }
}

#[test]
fn a_cold_list_is_touched_where_it_must_be() {
    let kelvin = Server::kelvin_with_flash("64mb", &["--flash-segment-size", "1mb"]);
    let mut client = kelvin.connect();
    fill_list(&mut client, "l");
    let leaves = located(&mut client, "l", "leaves-hot");
    assert!(leaves > 100, "{leaves}");
    let reads = |client: &mut Client| number(client, "flash_device_reads");
    // The ends of a cold list get elements without a read: they go into new leaves, or the last one.
    client.line("TIER DEMOTE l");
    client.line("TIER FLUSH");
    let before = reads(&mut client);
    assert_eq!(client.show("LPUSH l a b"), ":4002");
    assert!(located(&mut client, "l", "leaves-cold") >= leaves - 1);
    assert!(reads(&mut client) <= before + 1);
    assert_eq!(client.show("LPOP l 2"), "[$b $a]");
    // One element in the middle is one read.
    client.line("TIER DEMOTE l");
    let before = number(&mut client, "tier_read_flash");
    assert_eq!(text(&client.line("LINDEX l 2000")), value(2_000, 0));
    assert_eq!(number(&mut client, "tier_read_flash"), before + 1);
    // Leaves that are dropped whole are not read.
    client.line("TIER DEMOTE l");
    let before = number(&mut client, "tier_read_flash");
    assert_eq!(client.show("LTRIM l 1000 1999"), "+OK");
    assert!(number(&mut client, "tier_read_flash") <= before + 2);
    assert_eq!(client.show("LLEN l"), ":1000");
    client.line("TIER DEMOTE l");
    let Frame::Array(all) = client.line("LRANGE l 0 -1") else { panic!("an array") };
    assert!(all.iter().enumerate().all(|(at, found)| text(found) == value(1_000 + at, 0)));
    let nodes =
        located(&mut client, "l", "leaves-cold") + located(&mut client, "l", "leaves-clean");
    assert!(nodes < leaves / 3, "{nodes} of {leaves}");
    client.line("DEL l");
    wait_until_freed(&mut client, 0);
}

#[test]
fn a_cold_set_is_read_leaf_by_leaf() {
    let kelvin = Server::kelvin_with_flash("64mb", &["--flash-segment-size", "1mb"]);
    let mut client = kelvin.connect();
    for key in ["s", "t"] {
        for number in 0..FIELDS {
            client.call(&["SADD", key, &value(number, 0)]);
        }
    }
    let leaves = located(&mut client, "s", "leaves-hot");
    client.line("TIER DEMOTE s");
    let before = number(&mut client, "tier_read_flash");
    assert_eq!(client.call(&["SISMEMBER", "s", &value(7, 0)]), Frame::Integer(1));
    assert_eq!(client.call(&["SISMEMBER", "s", &value(7, 1)]), Frame::Integer(0));
    assert!(number(&mut client, "tier_read_flash") <= before + 2);
    client.line("TIER DEMOTE ALL");
    assert_eq!(client.call(&["SADD", "s", &value(0, 1)]), Frame::Integer(1));
    assert!(located(&mut client, "s", "leaves-hot") <= 2);
    assert!(located(&mut client, "s", "leaves-cold") >= leaves - 2);
    client.line("TIER DEMOTE ALL");
    assert_eq!(client.show("SINTERCARD 2 s t"), format!(":{FIELDS}"));
    assert_eq!(client.show("SINTERSTORE u s t"), format!(":{FIELDS}"));
    assert_eq!(client.show("SDIFF u t"), "[]");
    client.line("TIER DEMOTE ALL");
    assert_eq!(client.show("COPY u other"), ":1");
    client.line("TIER DEMOTE ALL");
    assert_eq!(client.show("RENAME u v"), "+OK");
    assert_eq!(client.show("MOVE v 5"), ":1");
    client.line("SELECT 5");
    assert_eq!(client.show("SCARD v"), format!(":{FIELDS}"));
    client.line("FLUSHALL");
    wait_until_freed(&mut client, 0);
    for name in ["tier_values_hot", "tier_values_clean", "tier_values_cold"] {
        assert_eq!(number(&mut client, name), 0, "{name}");
    }
}

/// What a large collection that was evicted frees later counts at once: no more keys go than it takes.
#[test]
fn few_large_collections_are_evicted_for_little_room() {
    const LISTS: usize = 60;
    let options = ["--maxmemory", "40mb", "--maxmemory-policy", "allkeys-lru"];
    let kelvin = Server::kelvin(&options);
    let mut client = kelvin.connect();
    for list in 0..LISTS {
        fill_list(&mut client, &format!("l{list}"));
    }
    let left = |client: &mut Client| {
        let exists = |list: &usize| client.show(&format!("EXISTS l{list}")) == ":1";
        (0..LISTS).filter(exists).count()
    };
    let before = left(&mut client);
    assert!((20..LISTS).contains(&before), "{before} lists fit in memory");
    // A list takes about 0.9 MB, and all that is written less than two. Some of these keys go, too.
    for key in 0..1_000 {
        client.call(&["SET", &format!("k{key}"), &"x".repeat(1_500)]);
    }
    let after = left(&mut client);
    assert!(before - after <= 5, "{before} lists were there, and {after} are");
}

/// A reply of what is in RAM is bounded in a transaction as by itself.
#[test]
fn a_list_in_ram_that_is_too_much_for_a_client_is_refused() {
    let options = ["--maxmemory", "64mb", "--maxmemory-clients", "4mb"];
    let kelvin = Server::kelvin(&options);
    let mut client = kelvin.connect();
    for number in 0..3_000 {
        client.call(&["RPUSH", "l", &format!("{number} {}", "v".repeat(3_000))]);
        client.call(&["SADD", "s", &format!("{number} {}", "v".repeat(3_000))]);
    }
    let refused = "-ERR request needs more memory than maxmemory-clients allows (4194304 bytes)";
    for command in ["LRANGE l 0 -1", "SMEMBERS s", "SRANDMEMBER s 2999", "SUNION s"] {
        let by_itself = client.show(command);
        assert!(by_itself.starts_with("-ERR request needs more memory"), "{by_itself}");
        client.line("MULTI");
        client.line(command);
        client.line("LLEN l");
        let discarded = refused.replace("-ERR", "-EXECABORT Transaction discarded because of:");
        assert_eq!(client.show("EXEC"), discarded, "{command}");
    }
    assert_eq!(client.show("SCARD s"), ":3000");
}
