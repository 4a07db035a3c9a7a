//! What is made of values: copies that commands store, strings that grow, collections that move.

use super::*;

#[test]
fn large_strings_are_combined_only_if_they_fit() {
    let server = start("200mb", "1gb");
    let mut client = server.connect();
    let value = "v".repeat(40_000_000);
    for key in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(show(&client.call(&["SET", key, &value])), "+OK");
    }
    client.line("TIER DEMOTE ALL");
    assert_eq!(client.show("BITOP XOR target a b c d e f"), refusal(200));
    assert_eq!(client.show("EXISTS target"), ":0");
    assert_eq!(text(&client.line("GET a")).len(), value.len());
    assert_peak(&server, 200);
}

/// Without `maxmemory`, too.
#[test]
fn an_old_value_that_does_not_fit_beside_a_new_one_stays() {
    const OLD_BYTES: usize = 12 << 20;
    let server = start("64mb", "256mb");
    let mut client = server.connect();
    for line in ["SET GET", "GETSET"] {
        client.line("DEL k");
        client.call(&["SETRANGE", "k", &(OLD_BYTES - 1).to_string(), "x"]);
        client.line("TIER DEMOTE ALL");
        let new = "n".repeat(10 << 20);
        let request = match line {
            "GETSET" => vec!["GETSET", "k", &new],
            _ => vec!["SET", "k", &new, "GET"],
        };
        assert_eq!(show(&client.call(&request)), refusal(64), "{line}");
        assert_eq!(client.show("STRLEN k"), format!(":{OLD_BYTES}"), "{line}");
        // What fits beside it is taken.
        assert_eq!(text(&client.call(&["SET", "k", "new", "GET"])).len(), OLD_BYTES, "{line}");
    }
}

#[test]
fn a_stored_range_counts_with_what_it_takes_beside_its_members() {
    const MEMBERS: usize = 400_000;
    let server = start("64mb", "256mb");
    let mut client = server.connect();
    for first in (0..MEMBERS).step_by(2000) {
        let pairs = (first..first + 2000).flat_map(|rank| [rank.to_string(), format!("m{rank}")]);
        let request: Vec<String> =
            ["ZADD", "z"].map(String::from).into_iter().chain(pairs).collect();
        client.call(&request.iter().map(String::as_str).collect::<Vec<_>>());
    }
    client.line("TIER DEMOTE ALL");
    for target in 0..4 {
        assert_eq!(client.show(&format!("ZRANGESTORE d{target} z 0 -1")), OOM);
        assert_eq!(client.show(&format!("ZRANGESTORE d{target} z 0 49999")), ":50000");
    }
    assert_peak(&server, 64);
}

#[test]
fn a_sorted_copy_counts_with_what_it_takes_to_sort() {
    const ELEMENTS: usize = 1_000_000;
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    for first in (0..ELEMENTS).step_by(2_000) {
        // Short ones, which take more for where they are than for what they are.
        let elements = (first..first + 2_000).map(|number| number.to_string());
        let request: Vec<String> =
            ["RPUSH", "l"].map(String::from).into_iter().chain(elements).collect();
        client.call(&request.iter().map(String::as_str).collect::<Vec<_>>());
    }
    client.line("TIER DEMOTE ALL");
    for line in [
        "SORT l ALPHA STORE to",
        "SORT l BY nosort STORE to",
        "SORT l BY nosort GET # GET # GET # STORE to",
        "SORT l ALPHA LIMIT 0 3",
    ] {
        assert_eq!(client.show(line), refusal(64), "{line}");
    }
    assert_eq!(client.show("SORT l BY nosort LIMIT 0 50000 STORE to"), ":50000");
    assert_peak(&server, 64);
}

/// Has so many clients store copies at once, each for so many rounds. All are answered in a few tries, and
/// no more is resident than may be.
fn copy_from_many_sides(
    server: &Server,
    (clients, rounds): (usize, usize),
    line: &str,
    reply: &str,
) {
    std::thread::scope(|scope| {
        for number in 0..clients {
            scope.spawn(move || {
                let mut client = server.connect();
                for round in 0..rounds {
                    let line = line.replace("TARGET", &format!("to-{number}-{}", round % 2));
                    let answer = |_| match client.show(&line) {
                        answer if answer == OOM => {
                            std::thread::sleep(RETRY_EVERY);
                            None
                        }
                        answer => Some(answer),
                    };
                    let answer = (0..RETRIES_MAX).find_map(answer);
                    assert_eq!(answer.as_deref(), Some(reply), "{line}");
                }
            });
        }
    });
    assert_peak(server, 64);
}

#[test]
fn sets_that_are_stored_from_many_sides_take_turns() {
    let server = start_with("SADD", |number| vec![member(number)]);
    copy_from_many_sides(&server, (8, 6), "SINTERSTORE TARGET s s", ":100000");
    copy_from_many_sides(&server, (40, 2), "COPY s TARGET REPLACE", ":1");
}

#[test]
fn lists_that_are_stored_from_many_sides_take_turns() {
    let server = start_with("RPUSH", |number| vec![member(number)]);
    copy_from_many_sides(&server, (40, 2), "SORT s BY nosort STORE TARGET", ":100000");
}

#[test]
fn strings_that_are_lengthened_from_many_sides_take_turns() {
    let server = start_with("RPUSH", |number| vec![member(number)]);
    copy_from_many_sides(&server, (24, 2), "SETRANGE TARGET 3000000 x", ":3000001");
    copy_from_many_sides(&server, (24, 2), "SETBIT TARGET 32000000 1", ":0");
    let line = "BITFIELD TARGET SET u8 40000000 1";
    copy_from_many_sides(&server, (24, 2), line, "[:0]");
}

#[test]
fn strings_that_are_combined_from_many_sides_take_turns() {
    let server = start_with("RPUSH", |number| vec![member(number)]);
    fill(&server, 100_000, 200);
    let mut client = server.connect();
    for name in ["a", "b"] {
        assert_eq!(show(&client.call(&["SET", name, &name.repeat(4_700_000)])), "+OK");
    }
    client.line("TIER DEMOTE ALL");
    copy_from_many_sides(&server, (8, 3), "BITOP AND TARGET a b", ":4700000");
    copy_from_many_sides(&server, (30, 2), "BITOP NOT TARGET a", ":4700000");
}

/// To grow by a part of its length a string moves, and is there twice meanwhile.
#[test]
fn strings_that_are_appended_to_from_many_sides_take_turns() {
    const PARTS: usize = 48;
    const PART_BYTES: usize = 250_000;
    let server = start_with("RPUSH", |number| vec![member(number)]);
    fill(&server, 100_000, 200);
    let part = "x".repeat(PART_BYTES);
    let append = |mut client: Client, key: String| {
        for count in 1..=PARTS {
            let append = |_| match show(&client.call(&["APPEND", &key, &part])) {
                reply if reply == OOM => {
                    std::thread::sleep(RETRY_EVERY);
                    None
                }
                reply => Some(reply),
            };
            let reply = (0..RETRIES_MAX).find_map(append);
            assert_eq!(reply, Some(format!(":{}", count * PART_BYTES)));
        }
    };
    std::thread::scope(|scope| {
        for number in 0..8 {
            let client = server.connect();
            scope.spawn(move || append(client, format!("to-{number}")));
        }
    });
    assert_peak(&server, 64);
}

#[test]
fn sorted_sets_that_are_stored_from_many_sides_take_turns() {
    let element = |number: usize| vec![number.to_string(), format!("{number:0100}")];
    let server = start_with("ZADD", element);
    fill(&server, 20_000, 1_000);
    let mut client = server.connect();
    assert_eq!(client.show("ZRANGESTORE few s 0 32999"), ":33000");
    for line in
        ["ZRANGESTORE TARGET s 0 32999", "ZUNIONSTORE TARGET 1 few", "ZINTERSTORE TARGET 2 few few"]
    {
        client.line("TIER DEMOTE ALL");
        copy_from_many_sides(&server, (16, 3), line, ":33000");
    }
}

#[test]
fn sorted_sets_of_large_requests_take_turns() {
    const MEMBERS: usize = 25_000;
    const CLIENTS: usize = 12;
    let element = |number: usize| [number.to_string(), format!("{number:098}")];
    let server = start_with("RPUSH", |number| vec![member(number)]);
    fill(&server, 20_000, 1_000);
    let pairs: Vec<String> = (0..MEMBERS).flat_map(element).collect();
    for _ in 0..3 {
        server.connect().line("TIER DEMOTE ALL");
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (mut client, pairs) = (server.connect(), &pairs);
                scope.spawn(move || {
                    let key = format!("to-{number}");
                    client.line(&format!("DEL {key}"));
                    let words = ["ZADD", &key].into_iter().chain(pairs.iter().map(String::as_str));
                    let reply = client.call(&words.collect::<Vec<_>>());
                    assert_eq!(show(&reply), format!(":{MEMBERS}"));
                });
            }
        });
    }
    assert_peak(&server, 64);
}

/// Each first reads a leaf of the index, then all leaves, and then makes its copies.
#[test]
fn places_that_are_stored_from_many_sides_take_turns() {
    let place = |number: usize| {
        let (column, row) = (number % 1_000, number / 1_000);
        vec![format!("13.{column:03}"), format!("38.{row:03}"), member(number)]
    };
    let server = start_with("GEOADD", place);
    let line = "GEOSEARCHSTORE TARGET s FROMLONLAT 13 38 BYRADIUS 999 km";
    copy_from_many_sides(&server, (30, 1), line, ":100000");
}

#[test]
fn collections_that_move_from_flash_to_another_key_ask_for_the_memory() {
    const COLLECTIONS: usize = 5;
    const ELEMENTS: usize = 80_000;
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    let value = "v".repeat(90);
    for number in 0..COLLECTIONS {
        let (command, name) = (["RPUSH", "SADD"][number % 2], format!("a{number}"));
        for first in (0..ELEMENTS).step_by(1_000) {
            let elements = (first..first + 1_000).map(|element| format!("{element}:{value}"));
            let words: Vec<String> =
                [command.to_owned(), name.clone()].into_iter().chain(elements).collect();
            client.call(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    fill(&server, 60_000, 1000);
    for line in ["RENAME a# b#", "MOVE b# 1", "RENAME b# a#"] {
        client.line("TIER DEMOTE ALL");
        for number in 0..COLLECTIONS {
            let reply = client.show(&line.replace('#', &number.to_string()));
            assert!(reply == "+OK" || reply == ":1", "{line}: {reply}");
        }
        if line.starts_with("MOVE") {
            client.line("SELECT 1");
        }
        assert_peak(&server, 64);
    }
    assert_eq!(client.show("LLEN a0"), format!(":{ELEMENTS}"));
    assert_eq!(client.show("SCARD a1"), format!(":{ELEMENTS}"));
}

/// The answer to a request once there is memory for it, at the first tries there may be none.
fn answer_in_time(client: &mut Client, words: &[&str]) -> String {
    let answer = |_| match show(&client.call(words)) {
        answer if answer == OOM => {
            std::thread::sleep(RETRY_EVERY);
            None
        }
        answer => Some(answer),
    };
    (0..RETRIES_MAX).find_map(answer).unwrap_or(OOM.to_owned())
}

#[test]
fn a_common_subsequence_counts_with_the_table_that_it_takes() {
    let server = start("64mb", "256mb");
    let mut client = server.connect();
    for (name, piece) in [("a", "abcdefgh"), ("b", "hgfedcba")] {
        assert_eq!(show(&client.call(&["SET", name, &piece.repeat(1_250)])), "+OK");
        let longer = format!("{name}-longer");
        assert_eq!(show(&client.call(&["SET", &longer, &piece.repeat(1_440)])), "+OK");
    }
    fill(&server, 60_000, 1_000);
    assert_eq!(format!("{:.90}", client.show("LCS a-longer b-longer")), refusal(64));
    for line in ["LCS a b", "LCS a-longer b-longer LEN"] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(!answer_in_time(&mut client, &words).starts_with('-'), "{line}");
    }
    assert_peak(&server, 64);
}

/// Pending entries of one consumer, from all of a stream's, in pieces that are granted without a wait.
fn deliver_all(client: &mut Client, entries: usize) {
    for _ in (0..entries).step_by(1_000) {
        let reply = client.show("XREADGROUP GROUP g a COUNT 1000 STREAMS s >");
        assert!(!reply.starts_with('-'), "{reply}");
    }
}

#[test]
fn what_becomes_of_many_pending_entries_counts_as_it_is_noted() {
    const ENTRIES: usize = 25_000;
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    client.line("XGROUP CREATE s g 0 MKSTREAM");
    for number in 1..=ENTRIES {
        client.send(&["XADD", "s", &format!("{number}-0"), "field", "value-of-an-entry"]);
    }
    (0..ENTRIES).for_each(|_| drop(client.read()));
    fill(&server, 60_000, 1_000);
    let all = format!(":{ENTRIES}");
    for line in [
        "XREADGROUP GROUP g a STREAMS s >",
        "XREADGROUP GROUP g a STREAMS s 0",
        "XAUTOCLAIM s g b 0 0 COUNT 1000000 JUSTID",
        "XAUTOCLAIM s g c 0 0 COUNT 10000",
        "XAUTOCLAIM s g c 0 0 COUNT 1000000 JUSTID",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(!answer_in_time(&mut client, &words).starts_with('-'), "{line}");
    }
    let request = ["XGROUP", "DELCONSUMER", "s", "g", "c"];
    assert_eq!(answer_in_time(&mut client, &request), all);
    client.line("XGROUP SETID s g 0");
    deliver_all(&mut client, ENTRIES);
    let ids: Vec<String> = (1..=ENTRIES).map(|number| number.to_string()).collect();
    let request: Vec<&str> =
        ["XACK", "s", "g"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    assert_eq!(answer_in_time(&mut client, &request), all);
    assert_peak(&server, 64);
}

#[test]
fn pending_entries_that_cannot_be_noted_stay_as_they_are() {
    const ENTRIES: usize = 50_000;
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    client.line("XGROUP CREATE s g 0 MKSTREAM");
    for number in 1..=ENTRIES {
        client.send(&["XADD", "s", &format!("{number}-0"), "field", "value-of-an-entry"]);
    }
    (0..ENTRIES).for_each(|_| drop(client.read()));
    assert_eq!(format!("{:.60}", client.show("XREADGROUP GROUP g a STREAMS s >")), OOM);
    deliver_all(&mut client, ENTRIES);
    fill(&server, 60_000, 1_000);
    let too_high = "-ERR Insufficient memory, failed allocating transient memory, COUNT too high.";
    for (line, refusal) in [
        ("XAUTOCLAIM s g b 0 0 COUNT 1000000", too_high.to_owned()),
        ("XAUTOCLAIM s g b 0 0 COUNT 43000", refusal(64)),
        ("XREADGROUP GROUP g a STREAMS s 0", OOM.to_owned()),
        ("XGROUP DELCONSUMER s g a", OOM.to_owned()),
    ] {
        assert_eq!(format!("{:.90}", client.show(line)), refusal, "{line}");
    }
    let pending = format!("[:{ENTRIES} $1-0 ${ENTRIES}-0 [[$a ${ENTRIES}]]]");
    assert_eq!(client.show("XPENDING s g"), pending);
    assert_peak(&server, 64);
}
