//! Sets and sorted sets that are combined, stored and compared: with a model at quiet moments, and at all
//! times within one transaction.
//!
//! Several connections change members of their own at once, so that what each is replied and what all of it
//! comes to are known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use resp::Frame;
use stdx::Random;

use crate::support::{Client, text};
use crate::{Run, call, integer, padded, send, texts, transaction, words};

const SETS: u64 = 4;
const SORTED: u64 = 3;
/// Connections that change sets at once, and the members that each has for every set.
const CHANGERS: u64 = 4;
const MEMBERS: u64 = 150;
const MEMBER_BYTES: usize = 40;
/// Requests of each connection between two quiet moments.
const CHANGES: usize = 40;
/// Members of one request.
const MEMBERS_MAX: u64 = 12;

#[derive(Default)]
struct Model {
    sets: [BTreeSet<String>; SETS as usize],
    sorted: [BTreeMap<String, i64>; SORTED as usize],
}

pub fn check(run: &Run) -> String {
    let (rounds, stored) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| run.guard(|| change(run, &rounds)));
        for seed in 0..2 {
            let stored = &stored;
            scope.spawn(move || run.guard(|| store(run, seed, stored)));
        }
    });
    format!("{rounds:?} quiet moments with sets as they should be, {stored:?} stored in between")
}

/// Changes sets by all connections at once, again and again, and compares what they come to.
fn change(run: &Run, rounds: &AtomicUsize) {
    let mut changers: Vec<Client> = (0..CHANGERS).map(|_| run.server.connect()).collect();
    let mut random = Random::new(1);
    let mut model = Model::default();
    loop {
        let goes_on = run.goes_on();
        let mut expected = Vec::new();
        for changer in 0..CHANGERS {
            for _ in 0..CHANGES {
                let (request, reply) = model.change(changer, &mut random);
                send(&mut changers[changer as usize], &request);
                expected.push((changer as usize, request, reply));
            }
        }
        for (changer, request, reply) in expected {
            let found = changers[changer].read();
            let found = match &found {
                Frame::Bulk(_) => text(&found).parse().expect("a whole number"),
                other => integer(other),
            };
            assert_eq!(found, reply, "{}", request.join(" "));
        }
        model.compare(&mut changers[0], &mut random);
        rounds.fetch_add(1, Ordering::Relaxed);
        if !goes_on {
            break;
        }
    }
}

/// Combines sets while they change: within a transaction the result is that of what is read there.
fn store(run: &Run, seed: u64, stored: &AtomicUsize) {
    let mut client = run.server.connect();
    let mut random = Random::new(100 + seed);
    while run.goes_on() {
        let [one, other] = [(); 2].map(|()| random.below(SETS));
        let command = ["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"][random.below(3) as usize];
        let replies = transaction(
            &mut client,
            &[
                words(&format!("SMEMBERS set-{one}")),
                words(&format!("{command} stored-{seed} set-{one} set-{other}")),
                words(&format!("SMEMBERS stored-{seed}")),
                words(&format!("SMEMBERS set-{other}")),
            ],
        );
        let [one, count, found, other] = <[Frame; 4]>::try_from(replies).expect("four replies");
        let [one, found, other] = [one, found, other].map(|set| set_of(texts(set)));
        let expected = combine(command, &one, &other);
        assert_eq!(integer(&count), expected.len() as i64, "{command}");
        assert_eq!(found, expected, "{command}");
        stored.fetch_add(1, Ordering::Relaxed);
    }
}

fn combine(command: &str, one: &BTreeSet<String>, other: &BTreeSet<String>) -> BTreeSet<String> {
    match command {
        "SINTERSTORE" => one & other,
        "SUNIONSTORE" => one | other,
        _ => one - other,
    }
}

/// The members of a reply. Panics: when one is there twice.
fn set_of(members: Vec<String>) -> BTreeSet<String> {
    let count = members.len();
    let set: BTreeSet<String> = members.into_iter().collect();
    assert_eq!(set.len(), count, "a member is there twice");
    set
}

impl Model {
    /// A request that changes members of this connection, and what it is replied.
    fn change(&mut self, changer: u64, random: &mut Random) -> (Vec<String>, i64) {
        let members: BTreeSet<String> = (0..random.between(1, MEMBERS_MAX))
            .map(|_| padded(&format!("{changer}:{}", random.below(MEMBERS)), MEMBER_BYTES))
            .collect();
        let first = members.first().expect("a member").clone();
        let set = random.below(SETS) as usize;
        let key = random.below(SORTED) as usize;
        let count = |changed: usize| changed as i64;
        match random.below(8) {
            0..=2 => {
                let added =
                    members.iter().filter(|member| self.sets[set].insert((*member).clone()));
                let added = count(added.count());
                (with_members(&format!("SADD set-{set}"), &members), added)
            }
            3 => {
                let removed =
                    count(members.iter().filter(|member| self.sets[set].remove(*member)).count());
                (with_members(&format!("SREM set-{set}"), &members), removed)
            }
            4 => {
                let to = random.below(SETS) as usize;
                let moved = self.sets[set].remove(&first);
                if moved {
                    self.sets[to].insert(first.clone());
                }
                (words(&format!("SMOVE set-{set} set-{to} {first}")), i64::from(moved))
            }
            5 => {
                let by = random.between(1, 100) as i64;
                let score = self.sorted[key].entry(first.clone()).or_default();
                *score += by;
                (words(&format!("ZINCRBY sorted-{key} {by} {first}")), *score)
            }
            6 => {
                let removed =
                    members.iter().filter(|member| self.sorted[key].remove(*member).is_some());
                let removed = count(removed.count());
                (with_members(&format!("ZREM sorted-{key}"), &members), removed)
            }
            _ => {
                let mut request = words(&format!("ZADD sorted-{key}"));
                let mut added = 0;
                for member in members {
                    let score = random.below(1000) as i64;
                    request.extend([score.to_string(), member.clone()]);
                    added += i64::from(self.sorted[key].insert(member, score).is_none());
                }
                (request, added)
            }
        }
    }

    /// Compares everything, and what commands make of it, with the server's.
    fn compare(&self, client: &mut Client, random: &mut Random) {
        for (index, set) in self.sets.iter().enumerate() {
            let found = set_of(texts(client.line(&format!("SMEMBERS set-{index}"))));
            assert_eq!(found, *set, "set-{index}");
        }
        for (index, sorted) in self.sorted.iter().enumerate() {
            compare_sorted(client, &format!("sorted-{index}"), sorted);
        }
        for command in ["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"] {
            let [one, other] = [(); 2].map(|()| random.below(SETS) as usize);
            let expected = combine(command, &self.sets[one], &self.sets[other]);
            let request = words(&format!("{command} stored set-{one} set-{other}"));
            assert_eq!(integer(&call(client, &request)), expected.len() as i64, "{command}");
            let found = set_of(texts(client.line("SMEMBERS stored")));
            assert_eq!(found, expected, "{command} of set-{one} and set-{other}");
        }
        for command in ["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"] {
            self.compare_scores(client, random, command);
        }
    }

    /// Combines two sorted sets, the second of which may be a set, whose members have the score 1.
    fn compare_scores(&self, client: &mut Client, random: &mut Random, command: &str) {
        let one = random.below(SORTED) as usize;
        let other = random.below(SORTED + SETS) as usize;
        let (name, others) = match other.checked_sub(SORTED as usize) {
            None => (format!("sorted-{other}"), self.sorted[other].clone()),
            Some(set) => {
                let scores = self.sets[set].iter().map(|member| (member.clone(), 1));
                (format!("set-{set}"), scores.collect())
            }
        };
        let mut expected = self.sorted[one].clone();
        let mut weights = "";
        match command {
            "ZUNIONSTORE" => {
                weights = " WEIGHTS 1 3";
                others.iter().for_each(|(member, score)| {
                    *expected.entry(member.clone()).or_default() += 3 * score
                });
            }
            "ZINTERSTORE" => {
                weights = " WEIGHTS 1 3";
                expected.retain(|member, _| others.contains_key(member));
                expected.iter_mut().for_each(|(member, score)| *score += 3 * others[member]);
            }
            _ => expected.retain(|member, _| !others.contains_key(member)),
        }
        let request = format!("{command} stored-sorted 2 sorted-{one} {name}{weights}");
        assert_eq!(integer(&client.line(&request)), expected.len() as i64, "{request}");
        compare_sorted(client, "stored-sorted", &expected);
    }
}

/// A sorted set has these members, in the order of their scores.
fn compare_sorted(client: &mut Client, key: &str, expected: &BTreeMap<String, i64>) {
    let mut expected: Vec<(i64, &String)> =
        expected.iter().map(|(member, score)| (*score, member)).collect();
    expected.sort_unstable();
    let expected: Vec<String> = expected
        .into_iter()
        .flat_map(|(score, member)| [member.clone(), score.to_string()])
        .collect();
    assert_eq!(texts(client.line(&format!("ZRANGE {key} 0 -1 WITHSCORES"))), expected, "{key}");
}

fn with_members(line: &str, members: &BTreeSet<String>) -> Vec<String> {
    let mut request = words(line);
    request.extend(members.iter().cloned());
    request
}
