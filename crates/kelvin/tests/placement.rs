//! Where on flash values are put: what was written together lies together.

mod support;

use resp::Frame;
use support::{Client, Server, text};

const VALUE_BYTES: usize = 500;
/// Bytes of a record of such a value, about.
const RECORD_BYTES_MAX: i64 = 600;
/// Several times what fits into RAM.
const KEYS: usize = 120_000;
/// Keys that a client sets in one go, and how many clients take turns.
const PIPELINE: usize = 8;
const CLIENTS: usize = 16;

fn start() -> Server {
    let options = ["--workers", "1", "--maxmemory", "40mb", "--tier-compression", "none"];
    Server::kelvin_with_flash("256mb", &options)
}

fn key(index: usize) -> String {
    format!("key-{index}")
}

/// The state of a key, and where its value lies on flash, in bytes.
fn locate(client: &mut Client, index: usize) -> (String, Option<i64>) {
    let Frame::Array(words) = client.call(&["TIER", "LOCATE", &key(index)]) else {
        panic!("no place of {index}")
    };
    let number = |name: &str| {
        let at = words.iter().step_by(2).position(|word| text(word) == name)?;
        let Frame::Integer(number) = words[2 * at + 1] else { panic!("{name} of {index}") };
        Some(number)
    };
    // No segment is as long.
    let place = number("segment").map(|segment| (segment << 32) + number("offset").unwrap_or(0));
    (text(&words[1]), place)
}

/// Sets keys in turns, each client a range of its own, and does something behind each turn.
fn fill(server: &Server, mut behind_turn: impl FnMut(usize)) {
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    let value = "v".repeat(VALUE_BYTES);
    let each = KEYS / CLIENTS;
    for turn in (0..each).step_by(PIPELINE) {
        let range = turn..(turn + PIPELINE).min(each);
        for (number, client) in clients.iter_mut().enumerate() {
            range.clone().for_each(|at| client.send(&["SET", &key(number * each + at), &value]));
        }
        for client in &mut clients {
            range.clone().for_each(|_| assert_eq!(client.read(), Frame::Simple(b"OK".to_vec())));
        }
        behind_turn(turn);
    }
}

#[test]
fn new_values_of_keys_numbered_in_a_row_lie_side_by_side_on_flash() {
    let server = start();
    fill(&server, |_| {});
    let mut client = server.connect();
    let each = KEYS / CLIENTS;
    // The first came while RAM was free, those of the middle when it was full. The last are still there.
    for part in [0, each / 4, each / 2] {
        let (mut pairs, mut adjacent) = ([0; 2], [0; 2]);
        for number in 0..CLIENTS {
            let first = number * each + part / PIPELINE * PIPELINE;
            let range = first..first + 20 * PIPELINE;
            let places: Vec<_> = range.map(|index| locate(&mut client, index)).collect();
            for (at, pair) in places.windows(2).enumerate() {
                // Behind the last of a pipeline others have written.
                let is_across = usize::from(at % PIPELINE == PIPELINE - 1);
                pairs[is_across] += 1;
                let step = pair[1].1.zip(pair[0].1).map_or(0, |(next, this)| next - this);
                adjacent[is_across] += usize::from((1..RECORD_BYTES_MAX).contains(&step));
            }
        }
        let within = adjacent[0] * 3 > pairs[0] * 2;
        assert!(within, "{part}: {} of {} of a pipeline lie side by side", adjacent[0], pairs[0]);
        assert!(adjacent[1] * 2 > pairs[1], "{part}: {} of {} across", adjacent[1], pairs[1]);
    }
}

#[test]
fn a_new_value_that_is_used_soon_stays_in_ram() {
    let server = start();
    let mut reader = server.connect();
    // One of each client's pipeline of every tenth turn is read behind it.
    fill(&server, |turn| {
        if turn % (10 * PIPELINE) == 0 {
            assert!(matches!(reader.call(&["GET", &key(turn)]), Frame::Bulk(_)));
        }
    });
    let each = KEYS / CLIENTS;
    let middle = each / 2 - each / 2 % (10 * PIPELINE)..each;
    let states = |client: &mut Client, shift: usize| {
        let used = middle.clone().step_by(10 * PIPELINE);
        used.filter(|&turn| locate(client, turn + shift).0 != "cold").count()
    };
    let count = middle.clone().step_by(10 * PIPELINE).count();
    let (used, unused) = (states(&mut reader, 0), states(&mut reader, 1));
    assert!(used > unused && used > count / 2, "{used} that were used, {unused} others of {count}");
}

#[test]
fn new_values_that_expire_within_minutes_are_left_to_the_hand() {
    const EACH: usize = 6_000;
    /// As many as RAM holds, and more.
    const MORE: usize = 90_000;
    let server = start();
    fill(&server, |_| {});
    let mut client = server.connect();
    let value = "v".repeat(VALUE_BYTES);
    // Every second of the first ones expires.
    for index in KEYS..KEYS + 2 * EACH + MORE {
        let expires = index < KEYS + 2 * EACH && index % 2 == 0;
        let options: &[&str] = if expires { &["EX", "300"] } else { &[] };
        client.send(&[&["SET", &key(index), &value], options].concat());
        if index % 100 == 99 {
            (0..100).for_each(|_| assert_eq!(client.read(), Frame::Simple(b"OK".to_vec())));
        }
    }
    let mut in_ram = |first: usize| {
        let range = (first..first + 2 * EACH).step_by(2);
        range.filter(|&index| locate(&mut client, index).0 != "cold").count()
    };
    let (expiring, lasting) = (in_ram(KEYS), in_ram(KEYS + 1));
    assert!(lasting < EACH / 10, "{lasting} of {EACH} that last");
    assert!(expiring > EACH * 2 / 3, "{expiring} of {EACH} that expire");
}
