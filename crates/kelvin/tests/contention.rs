//! Contention on a real server: clients of several workers change the same keys while all values are
//! forced to flash, and every read of several keys sees one state of them.

mod support;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use resp::Frame;
use support::{Client, Server, show};

/// Bytes of a value: a number, and enough behind it that the value can leave RAM.
const VALUE_BYTES: usize = 200;
const ACCOUNTS: usize = 12;
/// How often the longest reads name each account: so many keys are read in several windows.
const COPIES: usize = 200;
/// What each account holds at first, in each database.
const DEPOSITS: [i64; 2] = [1000, 3000];
/// Transfers, or reads of all accounts, of one client.
const ROUNDS: usize = 120;
/// Rounds of write skew, and the reads that each transaction of them does meanwhile.
const SKEW_ROUNDS: usize = 6;
const SKEW_READS: usize = 20_000;

fn account(index: usize) -> Vec<u8> {
    format!("account-{index}").into_bytes()
}

fn value_of(number: i64) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(VALUE_BYTES, b'.');
    value
}

/// The number of a value.
fn number(frame: &Frame) -> i64 {
    match frame {
        Frame::Bulk(value) if value.len() == VALUE_BYTES => {
            i64::from_be_bytes(value[..8].try_into().expect("eight bytes"))
        }
        other => panic!("no value of a number: {}", show(other)),
    }
}

/// The sum of the numbers of an array of values.
fn sum(frame: &Frame) -> i64 {
    let [sum] = sums(frame, 1)[..] else { panic!("{}", show(frame)) };
    sum
}

/// The sum of each of so many copies of all accounts.
fn sums(frame: &Frame, copies: usize) -> Vec<i64> {
    let Frame::Array(values) = frame else { panic!("{}", show(frame)) };
    assert_eq!(values.len(), copies * ACCOUNTS);
    values.chunks(ACCOUNTS).map(|copy| copy.iter().map(number).sum()).collect()
}

/// Sends requests at once and reads the reply of the last.
fn pipeline(client: &mut Client, requests: &[&[&[u8]]]) -> Frame {
    requests.iter().for_each(|request| client.send_bytes(request));
    requests.iter().map(|_| client.read()).last().expect("a request")
}

/// Two accounts, not the same, and an amount.
fn transfer(seed: usize, round: usize) -> (Vec<u8>, Vec<u8>, i64) {
    let from = (seed * 5 + round * 7) % ACCOUNTS;
    let to = (from + 1 + (seed + round) % (ACCOUNTS - 1)) % ACCOUNTS;
    (account(from), account(to), 1 + round as i64 % 9)
}

/// Transfers with additions inside MULTI. Returns how many were made: all.
fn transfer_by_addition(client: &mut Client, seed: usize) -> i64 {
    for round in 0..ROUNDS {
        let (from, to, amount) = transfer(seed, round);
        let (less, more) = (format!("-{amount}"), format!("{amount}"));
        let add =
            |key, amount| -> [&[u8]; 6] { [b"BITFIELD", key, b"INCRBY", b"i64", b"0", amount] };
        let done = pipeline(
            client,
            &[
                &[b"MULTI"],
                &add(&from, less.as_bytes()),
                &add(&to, more.as_bytes()),
                &add(b"transfers", b"1"),
                &[b"EXEC"],
            ],
        );
        assert!(matches!(&done, Frame::Array(items) if items.len() == 3), "{}", show(&done));
    }
    ROUNDS as i64
}

/// Transfers that read first and write only if nobody else wrote. Returns how many were made.
fn transfer_by_watch(client: &mut Client, seed: usize) -> i64 {
    let mut made = 0;
    for round in 0..ROUNDS {
        let (from, to, amount) = transfer(seed, round);
        let read = pipeline(client, &[&[b"WATCH", &from, &to], &[b"MGET", &from, &to]]);
        let Frame::Array(values) = &read else { panic!("{}", show(&read)) };
        let (less, more) = (number(&values[0]) - amount, number(&values[1]) + amount);
        let done = pipeline(
            client,
            &[
                &[b"MULTI"],
                &[b"SET", &from, &value_of(less)],
                &[b"SET", &to, &value_of(more)],
                &[b"BITFIELD", b"transfers", b"INCRBY", b"i64", b"0", b"1"],
                &[b"EXEC"],
            ],
        );
        made += i64::from(matches!(done, Frame::Array(_)));
    }
    made
}

/// Reads all accounts, with one command, with one that names each many times, and with a transaction
/// of many: each time their sum is that of one database.
fn audit(client: &mut Client) {
    let totals = DEPOSITS.map(|deposit| deposit * ACCOUNTS as i64);
    let keys: Vec<Vec<u8>> = (0..ACCOUNTS).map(account).collect();
    let mut all: Vec<&[u8]> = vec![b"MGET"];
    all.extend(keys.iter().map(Vec::as_slice));
    let mut copies: Vec<&[u8]> = vec![b"MGET"];
    copies.extend((0..COPIES).flat_map(|_| keys.iter().map(Vec::as_slice)));
    for round in 0..ROUNDS {
        let found = match round % 3 {
            0 => sum(&pipeline(client, &[&all])),
            1 => {
                let found = sums(&pipeline(client, &[&copies]), COPIES);
                assert!(found.iter().all(|one| *one == found[0]), "round {round}: {found:?}");
                found[0]
            }
            _ => {
                client.send(&["MULTI"]);
                keys.iter().for_each(|key| client.send_bytes(&[b"GET", key]));
                client.send(&["EXEC"]);
                (0..=ACCOUNTS).for_each(|_| drop(client.read()));
                sum(&client.read())
            }
        };
        assert!(totals.contains(&found), "round {round}: {found}");
    }
}

/// Forces everything to flash until told to stop. Returns how many values went.
fn demote_all(client: &mut Client, stop: &AtomicBool) -> i64 {
    let mut demoted = 0;
    while !stop.load(Ordering::Relaxed) {
        match client.call(&["TIER", "DEMOTE", "ALL"]) {
            Frame::Integer(values) => demoted += values,
            other => panic!("{}", show(&other)),
        }
    }
    demoted
}

/// Exchanges the databases until told to stop, and then back to where they were.
fn swap_all(client: &mut Client, stop: &AtomicBool) {
    let mut swaps = 0;
    while !stop.load(Ordering::Relaxed) || swaps % 2 == 1 {
        assert_eq!(client.show("SWAPDB 0 1"), "+OK");
        swaps += 1;
        // Most of the time is the others'.
        assert_eq!(client.show("PING"), "+PONG");
    }
}

fn open_accounts(client: &mut Client) {
    for (db, deposit) in DEPOSITS.iter().enumerate() {
        assert_eq!(client.show(&format!("SELECT {db}")), "+OK");
        for index in 0..ACCOUNTS {
            client.send_bytes(&[b"SET", &account(index), &value_of(*deposit)]);
            assert_eq!(show(&client.read()), "+OK");
        }
        client.send_bytes(&[b"SET", b"transfers", &value_of(0)]);
        assert_eq!(show(&client.read()), "+OK");
    }
}

/// The sum of the accounts and the number of transfers, in all databases.
fn close_accounts(client: &mut Client) -> (i64, i64) {
    let (mut total, mut transfers) = (0, 0);
    for db in 0..DEPOSITS.len() {
        assert_eq!(client.show(&format!("SELECT {db}")), "+OK");
        let of = |client: &mut Client, key: &[u8]| {
            client.send_bytes(&[b"GET", key]);
            number(&client.read())
        };
        total += (0..ACCOUNTS).map(|index| of(client, &account(index))).sum::<i64>();
        transfers += of(client, b"transfers");
    }
    (total, transfers)
}

fn contend(workers: &str, swaps: bool) {
    let options = ["--workers", workers, "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("64mb", &options);
    let mut control = kelvin.connect();
    open_accounts(&mut control);
    let stop = AtomicBool::new(false);
    let mut made = 0;
    thread::scope(|scope| {
        let (stop, kelvin) = (&stop, &kelvin);
        let demoter = scope.spawn(move || demote_all(&mut kelvin.connect(), stop));
        let swapper = swaps.then(|| scope.spawn(move || swap_all(&mut kelvin.connect(), stop)));
        let clients: Vec<_> = (0..4)
            .map(|seed| {
                let act = if seed % 2 == 0 { transfer_by_addition } else { transfer_by_watch };
                scope.spawn(move || act(&mut kelvin.connect(), seed))
            })
            .collect();
        let auditors: Vec<_> =
            (0..2).map(|_| scope.spawn(move || audit(&mut kelvin.connect()))).collect();
        let transfers = clients.into_iter().map(|client| client.join());
        let results: Vec<_> = transfers.collect();
        let audits: Vec<_> = auditors.into_iter().map(|auditor| auditor.join()).collect();
        // Whoever failed, the others are not to go on for ever.
        stop.store(true, Ordering::Relaxed);
        let demoted = demoter.join().expect("a client that demotes");
        assert!(demoted > 0, "nothing was forced to flash");
        if let Some(swapper) = swapper {
            swapper.join().expect("a client that swaps");
        }
        assert!(audits.iter().all(Result::is_ok), "an audit failed");
        made = results.into_iter().map(|result| result.expect("a client that transfers")).sum();
    });
    let total = DEPOSITS.iter().sum::<i64>() * ACCOUNTS as i64;
    assert_eq!(close_accounts(&mut control), (total, made));
}

#[test]
fn transfers_lose_nothing_and_reads_see_one_sum_with_two_workers() {
    contend("2", false);
}

#[test]
fn transfers_lose_nothing_and_reads_see_one_sum_with_four_workers() {
    contend("4", false);
}

#[test]
fn transfers_lose_nothing_while_databases_are_swapped() {
    contend("2", true);
}

/// One of two clients that each go off duty if both are on. Returns whether its transaction ran.
fn go_off_duty(client: &mut Client, own: &str, start: &Barrier) -> bool {
    let read = pipeline(client, &[&[b"WATCH", b"one", b"two"], &[b"MGET", b"one", b"two"]]);
    assert_eq!(show(&read), "[$on $on]");
    client.send(&["MULTI"]);
    // They keep EXEC busy before it writes, on another slot than the other client's.
    let filler = format!("filler-{own}");
    (0..SKEW_READS).for_each(|_| client.send(&["GET", &filler]));
    client.send(&["SET", own, "off"]);
    (0..SKEW_READS + 2).for_each(|_| drop(client.read()));
    start.wait();
    !matches!(client.call(&["EXEC"]), Frame::Null | Frame::NullArray)
}

#[test]
fn of_two_that_watch_what_the_other_writes_one_commits() {
    for workers in ["2", "4"] {
        let kelvin = Server::kelvin(&["--workers", workers]);
        let mut control = kelvin.connect();
        let start = Barrier::new(2);
        // Connected one after the other: they have workers of their own.
        let (mut one, mut two) = (kelvin.connect(), kelvin.connect());
        for round in 0..SKEW_ROUNDS {
            assert_eq!(control.show("MSET one on two on"), "+OK");
            let ran = thread::scope(|scope| {
                let first = scope.spawn(|| go_off_duty(&mut one, "one", &start));
                let second = scope.spawn(|| go_off_duty(&mut two, "two", &start));
                [first, second].map(|client| client.join().expect("a client"))
            });
            let left = control.show("MGET one two");
            assert_eq!(ran.iter().filter(|ran| **ran).count(), 1, "round {round}: {ran:?}, {left}");
            let expected = if ran[0] { "[$off $on]" } else { "[$on $off]" };
            assert_eq!(left, expected, "round {round}");
        }
    }
}

#[test]
fn keys_are_listed_as_of_one_moment() {
    const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    const LISTS: usize = 2_000;
    let server = Server::kelvin(&["--workers", "2"]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.connect();
            let set: Vec<&str> =
                ["MSET"].into_iter().chain(NAMES.iter().flat_map(|name| [*name, "v"])).collect();
            let delete: Vec<&str> = ["DEL"].into_iter().chain(NAMES).collect();
            while !is_over.load(Ordering::Relaxed) {
                writer.call(&set);
                writer.call(&delete);
            }
        });
        // On the other worker.
        let mut reader = server.connect();
        let mut seen = [0; 2];
        for _ in 0..LISTS {
            let reply = reader.line("KEYS *");
            let Frame::Array(names) = &reply else { panic!("{}", show(&reply)) };
            assert!([0, NAMES.len()].contains(&names.len()), "{} keys", names.len());
            seen[usize::from(names.is_empty())] += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(seen.iter().all(|&times| times > 0), "{seen:?}");
    });
}
