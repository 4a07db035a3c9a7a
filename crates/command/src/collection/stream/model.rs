//! Streams compared with a map, and their groups with maps of what is pending.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::Harness;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// A stream whose entries have IDs of the form `N-0`, and a group with consumers 0 to 2.
#[derive(Default)]
struct Model {
    entries: BTreeMap<u64, String>,
    last: u64,
    delivered: u64,
    pending: BTreeMap<u64, u64>,
}

impl Model {
    fn show<'e>(entries: impl Iterator<Item = (&'e u64, &'e String)>) -> String {
        let show = |(id, value): (&u64, &String)| {
            let id = format!("{id}-0");
            format!("[${} {id}, [$1 f, ${} {value}]]", id.len(), value.len())
        };
        format!("[{}]", entries.map(show).collect::<Vec<_>>().join(", "))
    }

    fn step(&mut self, random: &mut Random) -> (String, String) {
        let some = |random: &mut Random, last: u64| 1 + random.below(last + 2);
        match random.below(20) {
            0..9 => {
                self.last += 1 + random.below(3);
                let value = "v".repeat(1 + random.below(90) as usize);
                let id = format!("{}-0", self.last);
                let line = format!("XADD s {id} f {value}");
                self.entries.insert(self.last, value);
                (line, format!("${} {id}", id.len()))
            }
            9 => {
                let ids = [some(random, self.last), some(random, self.last)];
                let removed = ids.iter().filter(|id| self.entries.remove(id).is_some()).count();
                (format!("XDEL s {} {}", ids[0], ids[1]), format!(":{removed}"))
            }
            10 if random.below(8) == 0 => {
                let kept = random.below(400) as usize;
                let removed = self.entries.len().saturating_sub(kept);
                (0..removed).for_each(|_| drop(self.entries.pop_first()));
                (format!("XTRIM s MAXLEN {kept}"), format!(":{removed}"))
            }
            10 if random.below(8) == 0 => {
                let id = some(random, self.last);
                let kept = self.entries.split_off(&id);
                let removed = std::mem::replace(&mut self.entries, kept).len();
                (format!("XTRIM s MINID {id}"), format!(":{removed}"))
            }
            10..13 => {
                let (first, count) = (some(random, self.last), 1 + random.below(150));
                let found = self.entries.range(first..).take(count as usize);
                (format!("XRANGE s {first} + COUNT {count}"), Model::show(found))
            }
            13 => {
                let (last, count) = (some(random, self.last), 1 + random.below(150));
                let found = self.entries.range(..=last).rev().take(count as usize);
                (format!("XREVRANGE s {last} - COUNT {count}"), Model::show(found))
            }
            14..16 => {
                let (consumer, count) = (random.below(3), 1 + random.below(40));
                let found: Vec<_> =
                    self.entries.range(self.delivered + 1..).take(count as usize).collect();
                let shown = match found.is_empty() {
                    true => "_".to_owned(),
                    false => format!("{{$1 s: {}}}", Model::show(found.iter().copied())),
                };
                for (id, _) in found {
                    self.delivered = *id;
                    self.pending.insert(*id, consumer);
                }
                (format!("XREADGROUP GROUP g c{consumer} COUNT {count} STREAMS s >"), shown)
            }
            16..18 => {
                let ids: Vec<u64> = (0..8).map(|_| some(random, self.last)).collect();
                let count = ids.iter().filter(|id| self.pending.remove(id).is_some()).count();
                let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
                (format!("XACK s g {}", ids.join(" ")), format!(":{count}"))
            }
            18 => {
                let (id, consumer) = (some(random, self.last), random.below(3));
                let claimed = self.pending.contains_key(&id) && self.entries.contains_key(&id);
                let shown = format!("{id}-0");
                match claimed {
                    true => drop(self.pending.insert(id, consumer)),
                    false => drop(self.pending.remove(&id)),
                }
                let line = format!("XCLAIM s g c{consumer} 0 {id} JUSTID");
                (line, if claimed { format!("[${} {shown}]", shown.len()) } else { "[]".into() })
            }
            _ => {
                let owners: BTreeSet<u64> = self.pending.values().copied().collect();
                let of = |owner: &u64| self.pending.values().filter(|one| *one == owner).count();
                let owners: Vec<String> = owners
                    .iter()
                    .map(|owner| {
                        format!("[$2 c{owner}, ${} {}]", of(owner).to_string().len(), of(owner))
                    })
                    .collect();
                let edge = |id: Option<&u64>| match id {
                    Some(id) => format!("${} {id}-0", id.to_string().len() + 2),
                    None => "_".to_owned(),
                };
                let (first, last) =
                    (edge(self.pending.keys().next()), edge(self.pending.keys().next_back()));
                let owners = match owners.is_empty() {
                    true => "_".to_owned(),
                    false => format!("[{}]", owners.join(", ")),
                };
                let count = self.pending.len();
                ("XPENDING s g".into(), format!("[:{count}, {first}, {last}, {owners}]"))
            }
        }
    }
}

#[test]
fn a_stream_and_its_group_hold_what_maps_hold() {
    for seed in 0..6 {
        let (mut random, mut model) = (Random(seed), Model::default());
        let mut server = Harness::new(seed % 2 == 0);
        server.run("XGROUP CREATE s g 0 MKSTREAM");
        for step in 0..3_000 {
            let (line, expected) = model.step(&mut random);
            assert_eq!(server.run(&line), expected, "seed {seed}, step {step}: {line}");
        }
        assert_eq!(server.run("XLEN s"), format!(":{}", model.entries.len()));
        assert_eq!(server.run("XRANGE s - +"), Model::show(model.entries.iter()));
        server.run("DEL s");
        assert_eq!(server.nodes(), 0);
        server.check_counts();
    }
}
