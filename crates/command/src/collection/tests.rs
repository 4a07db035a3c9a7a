//! Random commands on large collections, some of whose leaves are on flash, beside simple models.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use stdx::Random;

use value::leaf::rows::ROWS_MAX;

use crate::collection::End;
use crate::harness::Harness;
use crate::spec::Handler;

const SEEDS: u64 = 6;
const COMMANDS: u64 = 1_200;
/// Elements that a list or set grows to, before it shrinks again.
const ELEMENTS_MAX: usize = 10_000;

/// A server of which every second seed demotes some values after each command, and every third one reads large
/// collections in windows.
fn server(seed: u64) -> Harness {
    let mut server = Harness::new(seed % 2 == 1);
    server.spared = Some(Random::new(seed));
    server.walked_bytes_max = if seed.is_multiple_of(3) { 3_000 } else { 0 };
    server
}

/// Runs a command, and compares the reply.
fn expect(server: &mut Harness, line: &str, expected: &str) {
    let got = server.run(line);
    assert!(got == expected, "{line:.200}\n  expected {expected:.300}\n  got      {got:.300}");
}

/// How an element of a reply is shown.
fn shown(element: &str) -> String {
    format!("${} {element}", element.len()).trim_end().to_owned()
}

fn shown_all<'e>(elements: impl Iterator<Item = &'e String>) -> String {
    format!("[{}]", elements.map(|element| shown(element)).collect::<Vec<_>>().join(", "))
}

/// The elements of a reply, in order.
fn parse_all(reply: &str) -> Vec<String> {
    let inner = reply.trim_start_matches('~').trim_start_matches('[').trim_end_matches(']');
    let items = inner.split(", ").filter(|item| !item.is_empty());
    items.map(|item| item.split_once(' ').map_or("", |(_, text)| text).to_owned()).collect()
}

/// One of so many elements, of which some are long.
fn element(random: &mut Random, of: u64) -> String {
    let number = random.below(of);
    let len = match number % 97 {
        7 => 300,
        8 => 3_000,
        _ => number % 40,
    };
    format!("e{number}-{}", "x".repeat(len as usize))
}

struct Lists {
    server: Harness,
    random: Random,
    model: VecDeque<String>,
}

impl Lists {
    fn expect(&mut self, line: &str, expected: &str) {
        expect(&mut self.server, line, expected);
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound.max(1) as u64) as usize
    }

    fn push(&mut self) {
        let is_left = self.below(2) == 0;
        let mut line = if is_left { "LPUSH l" } else { "RPUSH l" }.to_owned();
        for _ in 0..=self.below(200) {
            let element = element(&mut self.random, 700);
            line += &format!(" {element}");
            match is_left {
                true => self.model.push_front(element),
                false => self.model.push_back(element),
            }
        }
        self.expect(&line, &format!(":{}", self.model.len()));
    }

    fn pop(&mut self) {
        let count = self.below(60).min(self.model.len());
        let is_left = self.below(2) == 0;
        let popped: Vec<String> = match is_left {
            true => self.model.drain(..count).collect(),
            false => self.model.drain(self.model.len() - count..).rev().collect(),
        };
        let line = format!("{} l {count}", if is_left { "LPOP" } else { "RPOP" });
        self.expect(&line, &shown_all(popped.iter()));
    }

    fn read(&mut self) {
        let (len, at) = (self.model.len(), self.below(self.model.len()));
        let last = (at + self.below(400)).min(len - 1);
        let expected = shown_all(self.model.range(at..=last));
        self.expect(&format!("LRANGE l {at} {last}"), &expected);
        let expected = shown(&self.model[at]);
        self.expect(&format!("LINDEX l {}", at as i64 - len as i64), &expected);
        let sought = self.model[at].clone();
        let found = self.model.iter().enumerate().filter(|(_, other)| **other == sought);
        let found: Vec<String> = found.map(|(at, _)| format!(":{at}")).collect();
        let line = format!("LPOS l {sought} COUNT 0");
        self.expect(&line, &format!("[{}]", found.join(", ")));
        let last = found.last().expect("it was found").clone();
        self.expect(&format!("LPOS l {sought} RANK -1"), &last);
    }

    fn change_one(&mut self) {
        let at = self.below(self.model.len());
        let new = element(&mut self.random, 900);
        match self.below(3) {
            0 => {
                self.expect(&format!("LSET l {at} {new}"), "+OK");
                self.model[at] = new;
            }
            side => {
                let pivot = self.model[at].clone();
                let first = self.model.iter().position(|other| *other == pivot).expect("there");
                let (word, at) = if side == 1 { ("BEFORE", first) } else { ("AFTER", first + 1) };
                self.model.insert(at, new.clone());
                let expected = format!(":{}", self.model.len());
                self.expect(&format!("LINSERT l {word} {pivot} {new}"), &expected);
            }
        }
    }

    fn remove_equal(&mut self) {
        let at = self.below(self.model.len());
        let (element, count) = (self.model[at].clone(), self.below(7) as i64 - 3);
        let matches = self.model.iter().filter(|other| **other == element).count();
        let removed = if count == 0 { matches } else { matches.min(count.unsigned_abs() as usize) };
        let first = if count < 0 { matches - removed } else { 0 };
        let mut seen = 0;
        self.model.retain(|other| {
            seen += usize::from(*other == element);
            *other != element || !(first..first + removed).contains(&(seen - 1))
        });
        self.expect(&format!("LREM l {count} {element}"), &format!(":{removed}"));
    }

    fn trim(&mut self) {
        let len = self.model.len();
        let some = if self.below(12) == 0 { len / 2 } else { len / 30 };
        let (first, last) = (self.below(some), len - 1 - self.below(some));
        self.expect(&format!("LTRIM l {first} {last}"), "+OK");
        if first > last {
            self.model.clear();
            return;
        }
        self.model.truncate(last + 1);
        self.model.drain(..first);
    }

    fn rotate(&mut self) {
        let ends = ["LEFT", "RIGHT"];
        let (from, to) = (self.below(2), self.below(2));
        let element = match from {
            0 => self.model.pop_front(),
            _ => self.model.pop_back(),
        };
        let element = element.expect("it is not empty");
        let expected = shown(&element);
        match to {
            0 => self.model.push_front(element),
            _ => self.model.push_back(element),
        }
        self.expect(&format!("LMOVE l l {} {}", ends[from], ends[to]), &expected);
    }

    fn carry(&mut self) {
        let len = format!(":{}", self.model.len());
        match self.below(3) {
            0 => {
                self.expect("COPY l copy REPLACE", ":1");
                self.expect("LLEN copy", &len);
                self.expect("LTRIM copy 3 -4", "+OK");
                self.expect("DEL copy", if self.model.len() > 6 { ":1" } else { ":0" });
            }
            1 => {
                self.expect("MOVE l 3", ":1");
                self.server.db = 3;
                self.expect("RENAME l {l}2", "+OK");
                self.expect("LLEN {l}2", &len);
                self.expect("RENAME {l}2 other", "+OK");
                self.expect("RENAME other l", "+OK");
                self.expect("MOVE l 0", ":1");
                self.server.db = 0;
            }
            _ => {
                self.expect("RPUSH {l}2 x", ":1");
                self.expect("RENAME l {l}2", "+OK");
                self.expect("RENAME {l}2 l", "+OK");
            }
        }
        self.expect("LLEN l", &len);
    }

    fn check(&mut self) {
        let expected = shown_all(self.model.iter());
        self.expect("LRANGE l 0 -1", &expected);
        self.server.check_tree("l");
    }
}

#[test]
fn lists_do_what_a_vector_does() {
    for seed in 0..SEEDS {
        let (server, random) = (server(seed), Random::new(seed));
        let mut lists = Lists { server, random, model: VecDeque::new() };
        let (mut is_growing, mut tops) = (true, 0);
        for step in 0..COMMANDS {
            if lists.model.is_empty() {
                lists.expect("EXISTS l", ":0");
                is_growing = true;
            }
            if lists.model.len() > ELEMENTS_MAX {
                is_growing = false;
                tops += 1;
            }
            let choice = lists.below(20);
            if lists.model.is_empty() || choice < if is_growing { 10 } else { 3 } {
                lists.push();
                continue;
            }
            match choice {
                3..=9 => lists.pop(),
                10 => lists.trim(),
                11 | 12 => lists.change_one(),
                13 => lists.remove_equal(),
                14 => lists.rotate(),
                15 if step % 4 == 0 => lists.carry(),
                _ => lists.read(),
            }
            if step % 50 == 0 {
                lists.check();
            }
        }
        assert!(tops > 0 || COMMANDS < 1_000, "seed {seed}: {} elements", lists.model.len());
        lists.check();
        lists.server.run("DEL l {l}2");
        lists.server.check_empty();
    }
}

struct Sets {
    server: Harness,
    random: Random,
    /// Of the keys s0, s1 and s2.
    models: [BTreeSet<String>; 3],
}

impl Sets {
    fn expect(&mut self, line: &str, expected: &str) {
        expect(&mut self.server, line, expected);
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound.max(1) as u64) as usize
    }

    fn members(&mut self, of: u64) -> Vec<String> {
        (0..=self.below(60)).map(|_| element(&mut self.random, of)).collect()
    }

    fn change(&mut self, set: usize, is_added: bool) {
        let members = self.members(20_000);
        let line = members.join(" ");
        let model = &mut self.models[set];
        let (word, changed) = if is_added {
            ("SADD", members.into_iter().filter(|member| model.insert(member.clone())).count())
        } else {
            let removed: Vec<String> = model.iter().skip(7).take(30).cloned().collect();
            let line = format!("SREM s{set} {} {}", line, removed.join(" "));
            let all = members.into_iter().chain(removed);
            let count = all.filter(|member| model.remove(member)).count();
            return self.expect(&line, &format!(":{count}"));
        };
        self.expect(&format!("{word} s{set} {line}"), &format!(":{changed}"));
    }

    fn ask(&mut self, set: usize) {
        let members = self.members(20_000);
        let line = format!("SMISMEMBER s{set} {}", members.join(" "));
        let model = &self.models[set];
        let answers =
            members.iter().map(|member| format!(":{}", i32::from(model.contains(member))));
        let expected = format!("[{}]", answers.collect::<Vec<_>>().join(", "));
        self.expect(&line, &expected);
        let expected = format!(":{}", self.models[set].len());
        self.expect(&format!("SCARD s{set}"), &expected);
    }

    fn take(&mut self, set: usize) {
        let (len, count) = (self.models[set].len(), 1 + self.below(50));
        self.server.random = self.random.next_u64();
        let shown = self.server.run(&format!("SRANDMEMBER s{set} {count}"));
        let chosen: BTreeSet<String> = parse_all(&shown).into_iter().collect();
        assert_eq!(chosen.len(), count.min(len));
        assert!(chosen.is_subset(&self.models[set]));
        let shown = self.server.run(&format!("SRANDMEMBER s{set} -{count}"));
        let chosen = parse_all(&shown);
        assert_eq!(chosen.len(), if len == 0 { 0 } else { count });
        assert!(chosen.iter().all(|member| self.models[set].contains(member)));
        let shown = self.server.run(&format!("SPOP s{set} {count}"));
        let popped = parse_all(&shown);
        assert_eq!(popped.len(), count.min(len));
        for member in popped {
            assert!(self.models[set].remove(&member), "{member}");
        }
    }

    fn combine(&mut self) {
        let [one, two, three] = &self.models;
        let (word, result): (&str, BTreeSet<String>) = match self.random.below(3) {
            0 => {
                ("SINTER", one.intersection(two).filter(|x| three.contains(*x)).cloned().collect())
            }
            1 => ("SUNION", one.union(two).chain(three).cloned().collect()),
            _ => (
                "SDIFF",
                one.iter().filter(|x| !two.contains(*x) && !three.contains(*x)).cloned().collect(),
            ),
        };
        let found: BTreeSet<String> =
            parse_all(&self.server.run(&format!("{word} s0 s1 s2"))).into_iter().collect();
        assert!(found == result, "{word}: {} and {}", found.len(), result.len());
        self.expect(&format!("{word}STORE to s0 s1 s2"), &format!(":{}", result.len()));
        if !result.is_empty() {
            self.server.check_tree("to");
            let found: BTreeSet<String> =
                parse_all(&self.server.run("SMEMBERS to")).into_iter().collect();
            assert!(found == result);
        }
        if word == "SINTER" {
            self.expect("SINTERCARD 3 s0 s1 s2", &format!(":{}", result.len()));
            let line = "SINTERCARD 3 s2 s0 s1 LIMIT 40";
            self.expect(line, &format!(":{}", result.len().min(40)));
        }
        self.server.run("DEL to");
    }

    /// Goes through a set, which others change meanwhile: what is there all the time is listed.
    fn scan(&mut self, set: usize) {
        let mut stayed = self.models[set].clone();
        let mut listed = BTreeSet::new();
        let mut cursor = "0".to_owned();
        loop {
            let reply = self.server.run(&format!("SSCAN s{set} {cursor} COUNT 100"));
            let (next, members) = reply[1..].split_once(", ").expect("two parts");
            cursor = next.split_once(' ').expect("a cursor").1.to_owned();
            listed.extend(parse_all(&members[..members.len() - 1]));
            if cursor == "0" {
                break;
            }
            let is_added = self.below(2) == 0;
            self.change(set, is_added);
            stayed = stayed.intersection(&self.models[set]).cloned().collect();
        }
        assert!(stayed.is_subset(&listed), "a member was passed over");
    }

    fn move_one(&mut self) {
        let Some(member) = self.models[0].iter().nth(3).cloned() else { return };
        self.models[0].remove(&member);
        self.models[1].insert(member.clone());
        self.expect(&format!("SMOVE s0 s1 {member}"), ":1");
        self.expect(&format!("SMOVE s0 s1 {member}"), ":0");
    }

    fn check(&mut self, set: usize) {
        if self.models[set].is_empty() {
            return self.expect(&format!("EXISTS s{set}"), ":0");
        }
        let shown = self.server.run(&format!("SMEMBERS s{set}"));
        let found: BTreeSet<String> = parse_all(&shown).into_iter().collect();
        assert!(found == self.models[set]);
        self.server.check_tree(format!("s{set}"));
    }
}

#[test]
fn sets_do_what_sets_do() {
    for seed in 0..SEEDS {
        let (server, random) = (server(seed), Random::new(seed));
        let mut sets = Sets { server, random, models: Default::default() };
        let mut is_growing = true;
        for step in 0..COMMANDS {
            let set = sets.below(3);
            if sets.models[set].len() > ELEMENTS_MAX / 2 {
                is_growing = false;
            }
            match sets.below(20) {
                0..=9 => sets.change(set, is_growing),
                10..=12 => sets.change(set, !is_growing),
                13 => sets.take(set),
                14 => sets.move_one(),
                15 if step % 8 == 0 => sets.combine(),
                16 if step % 8 == 0 => sets.scan(set),
                17 => sets.check(set),
                _ => sets.ask(set),
            }
        }
        (0..3).for_each(|set| sets.check(set));
        sets.server.run("DEL s0 s1 s2");
        sets.server.check_empty();
    }
}

/// A value, which is one time in eight so long that its field gets a leaf of its own.
fn value(random: &mut Random) -> String {
    let len = match random.below(8) {
        0 => 2_000 + random.below(2_000),
        _ => random.below(60),
    };
    format!("v{}", "x".repeat(len as usize))
}

/// Values that become long and short again, some of them with an expiry that is kept or not.
#[test]
fn hashes_of_long_values_do_what_maps_do() {
    for seed in 0..SEEDS {
        let (mut server, mut random) = (server(seed), Random::new(seed));
        // The value of each field, and whether it expires.
        let mut model: BTreeMap<String, (String, bool)> = BTreeMap::new();
        for _ in 0..COMMANDS {
            let field = format!("f{}", random.below(60));
            let old = model.get(&field).cloned();
            let value = value(&mut random);
            match random.below(12) {
                0..=3 => {
                    let is_new = i32::from(old.is_none());
                    expect(&mut server, &format!("HSET h {field} {value}"), &format!(":{is_new}"));
                    model.insert(field, (value, false));
                }
                4 | 5 => {
                    let line = format!("HSETEX h KEEPTTL FIELDS 1 {field} {value}");
                    expect(&mut server, &line, ":1");
                    model.insert(field, (value, old.is_some_and(|(_, expires)| expires)));
                }
                6 => {
                    let is_new = i32::from(old.is_none());
                    let line = format!("HSETNX h {field} {value}");
                    expect(&mut server, &line, &format!(":{is_new}"));
                    model.entry(field).or_insert((value, false));
                }
                7 if old.is_some() => {
                    let line = format!("HPEXPIRE h 100000 FIELDS 1 {field}");
                    expect(&mut server, &line, "[:1]");
                    model.entry(field).and_modify(|(_, expires)| *expires = true);
                }
                8 => {
                    let is_there = i32::from(old.is_some());
                    expect(&mut server, &format!("HDEL h {field}"), &format!(":{is_there}"));
                    model.remove(&field);
                }
                _ => {
                    let (value, time) = match &old {
                        None => ("_".to_owned(), None),
                        Some((value, expires)) => (shown(value), Some(*expires)),
                    };
                    expect(&mut server, &format!("HGET h {field}"), &value);
                    if let Some(expires) = time {
                        let told = server.run(&format!("HPTTL h FIELDS 1 {field}"));
                        assert_eq!(told != "[:-1]", expires, "{told}");
                    }
                }
            }
            expect(&mut server, "HLEN h", &format!(":{}", model.len()));
            if !model.is_empty() {
                server.check_tree("h");
            }
        }
        let fields: Vec<&str> = model.keys().map(String::as_str).collect();
        server.run(&format!("HDEL h {}", fields.join(" ")));
        server.check_empty();
    }
}

/// Members that begin alike for longer than bounds usually are.
#[test]
fn sorted_sets_of_long_members_do_what_maps_do() {
    for seed in 0..SEEDS {
        let (mut server, mut random) = (server(seed), Random::new(seed));
        let mut model: BTreeMap<String, i64> = BTreeMap::new();
        let member = |random: &mut Random| {
            let number = random.below(60);
            let same = if number % 8 == 3 { 2_500 } else { number as usize % 40 };
            format!("{}{number}", "m".repeat(same))
        };
        for _ in 0..COMMANDS / 2 {
            let (name, score) = (member(&mut random), random.below(5) as i64 - 2);
            match random.below(8) {
                0..=3 => {
                    let is_new = i32::from(model.insert(name.clone(), score).is_none());
                    expect(&mut server, &format!("ZADD z {score} {name}"), &format!(":{is_new}"));
                }
                4 => {
                    let is_there = i32::from(model.remove(&name).is_some());
                    expect(&mut server, &format!("ZREM z {name}"), &format!(":{is_there}"));
                }
                5 if !model.is_empty() => {
                    let first = model.iter().min_by_key(|(member, score)| (**score, *member));
                    let (first, score) =
                        first.map(|(member, score)| (member.clone(), *score)).expect("one");
                    expect(&mut server, "ZPOPMIN z", &format!("[{}, ,{score}]", shown(&first)));
                    model.remove(&first);
                }
                _ => {
                    let mut sorted: Vec<(i64, &String)> =
                        model.iter().map(|(member, score)| (*score, member)).collect();
                    sorted.sort_unstable();
                    let members = shown_all(sorted.iter().map(|(_, member)| *member));
                    expect(&mut server, "ZRANGE z 0 -1", &members);
                    if let Some((at, (_, member))) =
                        sorted.iter().enumerate().nth(random.below(60) as usize)
                    {
                        expect(&mut server, &format!("ZRANK z {member}"), &format!(":{at}"));
                    }
                }
            }
            expect(&mut server, "ZCARD z", &format!(":{}", model.len()));
            if !model.is_empty() {
                server.check_tree("z");
            }
        }
        server.run("ZREMRANGEBYRANK z 0 -1");
        server.check_empty();
    }
}

/// The first entry makes a tree at once, as a later one does of a stream in one value.
#[test]
fn streams_of_long_entries_hold_them() {
    let long = "x".repeat(3_000);
    for (demote, first) in [(false, &long[..]), (true, &long), (false, "short"), (true, "short")] {
        let mut server = Harness::new(demote);
        expect(&mut server, &format!("XADD x 1-1 f {first}"), "$3 1-1");
        expect(&mut server, &format!("XADD x 2-1 f {long}"), "$3 2-1");
        expect(&mut server, "XADD x 3-1 f end", "$3 3-1");
        let entry = |id: &str, value: &str| format!("[{}, [$1 f, {}]]", shown(id), shown(value));
        let entries = [entry("1-1", first), entry("2-1", &long), entry("3-1", "end")].join(", ");
        expect(&mut server, "XRANGE x - +", &format!("[{entries}]"));
        expect(&mut server, "XDEL x 2-1 1-1 3-1", ":3");
        expect(&mut server, "XLEN x", ":0");
        server.run("DEL x");
        server.check_empty();
    }
}

/// One push brings more elements than a leaf can have.
#[test]
fn more_elements_are_pushed_at_once_than_a_leaf_can_have() {
    const PUSHED: usize = ROWS_MAX + 1;
    let handler: Handler = |cx, _, reply| {
        let elements = std::iter::repeat_n(&b"e"[..], PUSHED);
        reply.integer(cx.push_elements(&cx.key(0), End::Right, elements)? as i64);
        Ok(())
    };
    let mut server = Harness::new(false);
    assert_eq!(server.run_by("RPUSH l e", Some(handler)), format!(":{PUSHED}"));
    assert_eq!(server.run("LLEN l"), format!(":{PUSHED}"));
    server.check_tree("l");
}

/// Pushes of more elements than go into a leaf at once keep their order.
#[test]
fn long_pushes_are_in_order() {
    for demote in [false, true] {
        for command in ["LPUSH", "RPUSH"] {
            let mut server = Harness::new(demote);
            let mut model: VecDeque<String> = VecDeque::new();
            for count in [3, 2_500, 1_024, 3_000] {
                let elements: Vec<String> =
                    (0..count).map(|number| format!("e{}", number + model.len())).collect();
                for element in &elements {
                    match command {
                        "LPUSH" => model.push_front(element.clone()),
                        _ => model.push_back(element.clone()),
                    }
                }
                let len = format!(":{}", model.len());
                expect(&mut server, &format!("{command} l {}", elements.join(" ")), &len);
                expect(&mut server, "LRANGE l 0 -1", &shown_all(model.iter()));
                server.check_tree("l");
            }
        }
    }
}
