//! Runs command lines against a keyspace of their own, for the cases beside each command.
//!
//! Every case runs twice: with all values in RAM, and with every value demoted after each command,
//! so that a handler that forgets about flash fails beside its own code. The counters are summed up
//! as a server would, and compared with a recount at the end. What each run logs is run again on a second
//! keyspace, which must come to hold the same (`replay.rs`). Fuzz targets run it as well (`fuzzing.rs`).

#![cfg_attr(not(test), allow(dead_code, reason = "fuzz targets use less than tests"))]

mod replay;

use std::collections::{BTreeSet, HashMap};

use keyspace::{
    DB_COUNT, FlashRef, Key, Keyspace, ScanPosition, Stored, Tally, Timer, Verdict, node_table,
};
use resp::{ArgRange, Args, Protocol, Reply};
use smallvec::SmallVec;

use crate::collection::{
    DetachedNodes, Encodings, PackedMax, StreamLeafMax, Walk, Window, check_timers, expire_fetched,
    expire_fields,
};
use crate::cx::{Cx, Fetched, Limits, Statistics};
use crate::effect::{Classes, Effect, Effects};
use crate::error::CommandError;
use crate::family::FAMILIES;
use crate::journal_record::Record;
use crate::keys::find_keys;
use crate::spec::{Command, Flags, Handler, Locks, Needs};
use crate::wait::Waits;

/// Runs `(command line, expected reply)` pairs in order; see [`show`] for how replies read.
/// `\xNN` escapes and quotes work as in redis-cli. An expectation of `*` accepts any reply.
pub(crate) fn check(cases: &[(&str, &str)]) {
    for demote in [false, true] {
        let mut server = Harness::new(demote);
        for (line, expected) in cases {
            let got = server.run(line);
            assert!(
                got == *expected || *expected == "*",
                "{line} (values on flash: {demote})\n  expected {expected}\n  got      {got}"
            );
        }
        server.check_counts();
    }
}

/// Runs `(command line, events)` pairs in order: what each reports, as in [`Harness::events`].
pub(crate) fn check_events(cases: &[(&str, &str)]) {
    for demote in [false, true] {
        let mut server = Harness::new(demote);
        for (line, expected) in cases {
            server.events.clear();
            server.run(line);
            let got = server.events.join(", ");
            assert_eq!(got, *expected, "{line} (values on flash: {demote})");
        }
        server.check_counts();
    }
}

/// Runs `(command line, what it logs)` pairs in order, the latter as in [`Harness::logged`].
#[cfg(test)]
pub(crate) fn check_logged(cases: &[(&str, &str)]) {
    for demote in [false, true] {
        let mut server = Harness::new(demote);
        for (line, expected) in cases {
            server.run(line);
            assert_eq!(server.logged(), *expected, "{line} (values on flash: {demote})");
        }
        server.check_counts();
    }
}

/// Runs of a command: more are too many.
const RUNS_MAX: u32 = 50;
/// Bytes that a reply may be longer than was granted: what stands around its last element.
const UNGRANTED_BYTES_MAX: usize = 32;

/// Every class of events, and the journal.
const LISTENED: Classes =
    Classes::ALL.and(Classes::KEY_MISS).and(Classes::NEW).and(Classes::LOGGED);

fn show_effect(effect: &Effect) -> String {
    let (name, key) = (effect.event.name, effect.key.escape_ascii());
    match effect.db {
        0 => format!("{name} {key}"),
        db => format!("{db}:{name} {key}"),
    }
}

/// A keyspace, a clock, and a pretended flash.
pub(crate) struct Harness {
    pub(crate) keyspace: Keyspace,
    flash: FakeFlash,
    counts: Counts,
    demote: bool,
    /// Spares some values, drawn at random, each time that values are demoted.
    pub(crate) spared: Option<stdx::Random>,
    /// The slots where there may be keys.
    slots: BTreeSet<u16>,
    /// The selected database: `SELECT` changes it.
    pub(crate) db: u8,
    /// Whether the eviction policy counts uses.
    pub(crate) lfu: bool,
    /// Whether reads leave frequencies as they are.
    pub(crate) no_touch: bool,
    /// The clock: tests move it by hand.
    pub(crate) now_ms: u64,
    /// Longest string.
    pub(crate) string_bytes_max: usize,
    /// Longest string that there is memory for.
    pub(crate) memory_bytes_max: usize,
    /// Bytes of a reply that need not be granted.
    pub(crate) reply_bytes_free: usize,
    /// Bytes of a reply that are granted at most.
    pub(crate) reply_bytes_max: usize,
    /// Bytes of leaves beyond which a command that can be is run in windows of so many; 0: never.
    pub(crate) walked_bytes_max: u64,
    /// Windows that the last command was run in, 0 if it was not.
    pub(crate) windows: u32,
    /// How often the last command was run.
    pub(crate) runs: u32,
    /// Whether another reply stands in front of that of a command, as in a batch.
    pub(crate) follows: bool,
    /// What the context draws at random.
    pub(crate) random: u64,
    /// Whether commands may wait.
    pub(crate) waits: Waits,
    /// Changes that the commands so far have counted.
    pub(crate) changes: u64,
    /// What they have reported: `set k`, or `1:move_to k` in another database than 0.
    pub(crate) events: Vec<String>,
    /// What the last command has logged, record by record.
    records: Vec<Vec<u8>>,
    /// Bytes of values that may be compared with those of the replica.
    compared_bytes: i64,
    /// Where all that is logged is run again.
    replica: Option<Box<Harness>>,
    /// Whether it is such a replica itself.
    is_replica: bool,
}

struct FixedLimits {
    string_bytes_max: usize,
    memory_bytes_max: usize,
    counts_uses: bool,
}

impl Limits for FixedLimits {
    fn string_bytes_max(&self) -> usize {
        self.string_bytes_max
    }

    fn memory_bytes_max(&self) -> usize {
        self.memory_bytes_max
    }

    fn counts_uses(&self) -> bool {
        self.counts_uses
    }

    fn checks_sums(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct FakeFlash {
    values: HashMap<u64, Vec<u8>>,
    fetched: Vec<u64>,
}

/// Keys of each physical table, and what values come to, summed from the tallies.
#[derive(Default)]
struct Counts([i64; DB_COUNT], [i64; 9]);

impl Counts {
    fn add_tally(&mut self, tally: &Tally) {
        for (count, change) in self.0.iter_mut().zip(tally.keys) {
            *count += change;
        }
        let values = [
            tally.nodes,
            tally.timers,
            tally.value_bytes,
            tally.hot_count,
            tally.hot_bytes,
            tally.clean_count,
            tally.clean_bytes,
            tally.cold_count,
            tally.cold_bytes,
        ];
        for (sum, change) in self.1.iter_mut().zip(values) {
            *sum += change;
        }
    }
}

impl Statistics for Counts {
    fn keys(&self, table: u8) -> u64 {
        self.0[table as usize].try_into().expect("a count is not negative")
    }
}

/// The limits of encodings that Redis 7.0 has by default, or others for the leaves of streams: those of a replica end
/// elsewhere.
struct FixedEncodings {
    stream_leaf: StreamLeafMax,
}

const REDIS_DEFAULTS: FixedEncodings =
    FixedEncodings { stream_leaf: StreamLeafMax { entries: 100, bytes: 4_096 } };
const OF_REPLICA: FixedEncodings =
    FixedEncodings { stream_leaf: StreamLeafMax { entries: 70, bytes: 3_000 } };

impl Encodings for FixedEncodings {
    fn hash(&self) -> PackedMax {
        PackedMax { entries: 512, element_bytes: 64 }
    }

    fn intset_entries_max(&self) -> u64 {
        512
    }

    fn hyperloglog_sparse_bytes_max(&self) -> usize {
        3_000
    }

    fn sorted_set(&self) -> PackedMax {
        PackedMax { entries: 128, element_bytes: 64 }
    }

    fn stream_leaf(&self) -> StreamLeafMax {
        self.stream_leaf
    }
}

impl Fetched for FakeFlash {
    fn value(&self, at: FlashRef) -> Option<&[u8]> {
        let fetched = self.fetched.contains(&at.units);
        fetched.then(|| &*self.values[&at.units])
    }
}

impl FakeFlash {
    /// Fetches for another run as the server does: what the run lacked and what the command's row
    /// names. Of what was there before, only what the command's keys still point at is kept.
    fn fetch(&mut self, lacked: Vec<u64>, cold: impl Iterator<Item = (u64, Needs)>) {
        let before = std::mem::replace(&mut self.fetched, lacked);
        self.fetched.extend(cold.filter_map(|(units, needs)| {
            (needs == Needs::Value || before.contains(&units)).then_some(units)
        }));
    }
}

impl Harness {
    pub(crate) fn new(demote: bool) -> Self {
        let mut server = Harness::with_keyspace(Keyspace::default(), demote);
        server.add_replica(Keyspace::default());
        server
    }

    /// The same with a keyspace that has no keys.
    pub(crate) fn with_keyspace(keyspace: Keyspace, demote: bool) -> Self {
        // So that a test that fails does so again.
        stdx::fix_hash_seed(0x5EED);
        Harness {
            keyspace,
            flash: FakeFlash::default(),
            counts: Counts::default(),
            demote,
            spared: None,
            slots: BTreeSet::new(),
            db: 0,
            lfu: false,
            no_touch: false,
            now_ms: 1_700_000_000_000,
            string_bytes_max: 512 << 20,
            memory_bytes_max: usize::MAX,
            reply_bytes_free: usize::MAX,
            reply_bytes_max: usize::MAX,
            walked_bytes_max: 0,
            windows: 0,
            runs: 0,
            follows: false,
            random: 7,
            waits: Waits::May,
            changes: 0,
            events: Vec::new(),
            records: Vec::new(),
            compared_bytes: 0,
            replica: None,
            is_replica: false,
        }
    }

    /// Runs one line and shows its reply.
    pub(crate) fn run(&mut self, line: &str) -> String {
        self.run_by(line, None)
    }

    /// The same by another handler, if one is given.
    pub(crate) fn run_by(&mut self, line: &str, handler: Option<Handler>) -> String {
        let mut buffer = line.as_bytes().to_vec();
        let mut ranges: Vec<ArgRange> = Vec::new();
        resp::split_words(&mut buffer, &mut ranges).expect("balanced quotes");
        let args = Args::new(&buffer, &ranges);
        if args[0].eq_ignore_ascii_case(b"SELECT") {
            self.records.clear();
            self.db = value::parse_i64(&args[1]).expect("a number") as u8;
            return "+OK".into();
        }
        show(&self.run_args(args, handler))
    }

    /// Runs the command of these arguments, by another handler, if one is given. Returns its reply.
    pub(crate) fn run_args(&mut self, args: Args<'_>, handler: Option<Handler>) -> Vec<u8> {
        let mut reply = Reply::new(Protocol::Resp3);
        if self.follows {
            reply.ok();
        }
        let length = reply.len();
        self.records.clear();
        if handler.is_some() {
            // What it logs is run again by that of the table.
            self.replica = None;
        }
        let command = find(args);
        let command = &Command { run: handler.unwrap_or(command.run), ..*command };
        if command.spec().takes(args.len()) {
            self.execute(command, args, &mut reply);
        } else {
            reply.error(format!(
                "ERR wrong number of arguments for '{}' command",
                command.name.to_ascii_lowercase()
            ));
        }
        self.compare_keys(command, args);
        if self.demote {
            self.demote_all();
        }
        reply.as_slice()[length..].to_vec()
    }

    /// Values that the last command had fetched from flash when it ran for the last time.
    pub(crate) fn fetched(&self) -> usize {
        self.flash.fetched.len()
    }

    fn execute(&mut self, command: &Command, args: Args<'_>, reply: &mut Reply) {
        let length = reply.len();
        let mut found = SmallVec::new();
        find_keys(command.keys, args, &mut found);
        let keys: Vec<Key<'_>> = found.iter().map(|at| Key::new(&args[at.index])).collect();
        self.flash.fetched.clear();
        self.slots.extend(keys.iter().map(|key| key.slot));
        (self.runs, self.windows) = (0, 0);
        let mut granted: usize = 0;
        // Where the window of a walk begins, once the command has turned out to need several.
        let mut from = None;
        loop {
            self.runs += 1;
            assert!(self.runs < RUNS_MAX, "{} needs something again and again", command.name);
            let is_later = from.is_some_and(|(elements, _)| elements > 0);
            let reply_bytes_max = match is_later {
                true => usize::MAX,
                false => granted.saturating_add(self.reply_bytes_free),
            };
            let (elements, begun) = from.unwrap_or((0, length));
            let window = Window::new(elements, self.walked_bytes_max);
            let may_be_cut = self.walked_bytes_max > 0 && command.flags.has(Flags::IN_WINDOWS);
            let walk = match from {
                Some(_) => Walk::Window(&window),
                None if may_be_cut => Walk::UpTo(self.walked_bytes_max),
                None => Walk::Whole,
            };
            let mut locked = match command.locks.of_request(args) {
                Locks::All => self.keyspace.lock_all(),
                Locks::None => self.keyspace.unlocked(),
                Locks::Keys | Locks::Patterns => {
                    self.keyspace.lock_many(keys.iter().map(|key| key.slot).collect())
                }
            };
            let effects = match self.is_replica {
                true => Effects::of_replay(),
                false => Effects::new(LISTENED, command.flags.has(Flags::WRITE)),
            };
            let mut tally = Tally { noting: effects.listened.noting(), ..Tally::default() };
            let limits = FixedLimits {
                string_bytes_max: self.string_bytes_max,
                memory_bytes_max: self.memory_bytes_max,
                counts_uses: self.lfu,
            };
            let mut cx = Cx {
                locked: &mut locked,
                keys: &keys,
                array_len: (!is_later).then_some(keys.len()),
                db: self.db,
                now_ms: self.now_ms,
                tally: &mut tally,
                fetched: &self.flash,
                statistics: &self.counts,
                encodings: if self.is_replica { &OF_REPLICA } else { &REDIS_DEFAULTS },
                limits: &limits,
                no_touch: self.no_touch,
                detached: Vec::new(),
                reply_bytes_max,
                spare: &mut Vec::new(),
                cold_leaves: Vec::new(),
                random: self.random,
                waits: self.waits,
                walk,
                effects,
            };
            let result = (command.run)(&mut cx, args, reply);
            let mut effects = std::mem::take(&mut cx.effects);
            let detached = std::mem::take(&mut cx.detached);
            drop(cx);
            effects.take_notes(&self.keyspace, &mut tally.notes);
            if let Err(CommandError::NotResident(_) | CommandError::ReplyTooLong(_)) = result {
                effects.take_back();
            }
            self.events.extend(effects.noted().iter().map(show_effect));
            let mut record = Record::new(Vec::new(), self.now_ms);
            effects.log(self.db, args, &mut record);
            self.records.extend((!record.is_empty()).then(|| record.pieces().concat()));
            detached.into_iter().for_each(|detached| detached.free(&mut tally));
            for tree in std::mem::take(&mut tally.trees) {
                let slot = locked.slot(tree.slot);
                let at = (tree.slot, tree.table);
                let mut nodes = DetachedNodes::of_detached(&tree);
                assert!(nodes.free_some(slot, at, self.now_ms, &mut tally, usize::MAX));
            }
            self.counts.add_tally(&tally);
            match result {
                Ok(()) => {
                    self.windows += u32::from(from.is_some());
                    if let Some(next) = from.and_then(|_| window.next()) {
                        from = Some((next, reply.len()));
                        self.runs = 0;
                        continue;
                    }
                    let bytes = reply.full_len();
                    let is_granted = bytes <= reply_bytes_max.saturating_add(UNGRANTED_BYTES_MAX);
                    assert!(is_granted, "{} of {reply_bytes_max}: {bytes}", command.name);
                    self.changes += effects.changes;
                    return;
                }
                Err(CommandError::Reply(text)) => {
                    assert!(effects.changes == 0, "{} changed something, and failed", command.name);
                    reply.truncate(length);
                    return reply.error(text.as_bytes());
                }
                Err(CommandError::LongWalk) => {
                    assert!(may_be_cut && from.is_none(), "{} is cut in vain", command.name);
                    reply.truncate(length);
                    from = Some((0, length));
                }
                Err(CommandError::Wait(wait)) => {
                    assert!(effects.changes == 0, "{} changed something first", command.name);
                    reply.truncate(length);
                    let replaced =
                        wait.replaced.iter().map(|(at, text)| format!(", {at} is {text}"));
                    return reply.simple(&format!("waits{}", replaced.collect::<String>()));
                }
                Err(CommandError::ReplyTooLong(long)) => {
                    assert!(effects.changes == 0, "{} changed something first", command.name);
                    reply.truncate(length);
                    let table = self.keyspace.table_of(self.db);
                    let values = keys.iter().filter_map(|key| {
                        let slot = locked.holds(key.slot).then(|| locked.slot(key.slot))?;
                        let view = slot.view(table, key)?;
                        Some(match view.stored {
                            Stored::Hot(bytes) | Stored::Clean(bytes, _) => bytes.len(),
                            Stored::Cold(at, _) => self.flash.values[&at.units].len(),
                        })
                    });
                    // A handler need not say that it takes what its values take.
                    let values = values.sum::<usize>();
                    let bytes = usize::try_from(long.bytes).unwrap_or(usize::MAX).max(values);
                    if bytes > self.reply_bytes_max {
                        return reply.error(b"OOM the reply is too long");
                    }
                    assert!(bytes > granted, "{} was granted {granted}: {bytes}", command.name);
                    granted = bytes;
                }
                Err(CommandError::NotResident(missing)) => {
                    assert!(effects.changes == 0, "{} changed something first", command.name);
                    reply.truncate(begun);
                    let units: Vec<u64> =
                        missing.values.iter().map(|value| value.at.units).collect();
                    let is_fetched = |units| self.flash.fetched.contains(units);
                    assert!(!units.iter().all(is_fetched), "fetched in vain");
                    let table = self.keyspace.table_of(self.db);
                    self.flash.fetch(
                        units,
                        keys.iter().zip(&found).filter_map(|(key, at)| {
                            let slot = locked.holds(key.slot).then(|| locked.slot(key.slot))?;
                            Some((slot.cold(table, key)?.0.units, at.needs))
                        }),
                    );
                }
            }
        }
    }

    /// Removes the fields whose time has come, as upkeep does.
    pub(crate) fn expire_fields(&mut self) {
        let mut tally = Tally { noting: LISTENED.noting(), ..Tally::default() };
        for &number in &self.slots {
            let mut slot = self.keyspace.lock(number);
            while slot.has_due_timers(self.now_ms) {
                let expired = expire_fields(&mut slot, number, self.now_ms, &mut tally, 3);
                assert!(expired.leaves + expired.cold.len() > 0, "a timer is due for nothing");
                for leaf in expired.cold {
                    let bytes = &self.flash.values[&leaf.at.units];
                    expire_fetched(&mut slot, &leaf, Some(bytes), self.now_ms, &mut tally);
                }
            }
        }
        self.counts.add_tally(&tally);
        let mut effects = Effects::new(LISTENED, true);
        effects.take_notes(&self.keyspace, &mut tally.notes);
        self.events.extend(effects.noted().iter().map(show_effect));
        let mut record = Record::new(Vec::new(), self.now_ms);
        effects.log(self.db, Args::new(&[], &[]), &mut record);
        self.records = vec![record.pieces().concat()];
        self.replay();
    }

    /// The timers of all keys.
    pub(crate) fn timers(&self) -> Vec<Timer> {
        let of_slot = |slot: &u16| self.keyspace.lock(*slot).due_timers(u64::MAX, usize::MAX);
        self.slots.iter().flat_map(of_slot).collect()
    }

    pub(crate) fn check_counts(&self) {
        self.compare();
        let flash = |at: FlashRef| &*self.flash.values[&at.units];
        for &number in &self.slots {
            check_timers(&self.keyspace.lock(number), number, &flash);
        }
        for table in 0..DB_COUNT as u8 {
            let count = |slot: &u16| self.keyspace.lock(*slot).len(table) as i64;
            let counted: i64 = self.slots.iter().map(count).sum();
            assert_eq!(counted, self.counts.0[table as usize], "keys of table {table}");
        }
    }

    /// Checks that the counters say so where there is no key.
    pub(crate) fn check_empty(&self) {
        self.check_counts();
        assert_eq!((self.nodes(), self.counts.1), (0, [0; 9]));
    }

    /// Nodes of large collections, in all databases.
    pub(crate) fn nodes(&self) -> usize {
        let tables = || (0..DB_COUNT as u8).map(node_table);
        let count = |slot: &u16| {
            let state = self.keyspace.lock(*slot);
            tables().map(|table| state.len(table)).sum::<usize>()
        };
        self.slots.iter().map(count).sum()
    }

    /// The keyspace without its keys and their tables, as if it were new. None: databases were swapped.
    pub(crate) fn into_keyspace(self) -> Option<Keyspace> {
        let mut tally = Tally::default();
        for &slot in &self.slots {
            let mut state = self.keyspace.lock(slot);
            for table in 0..DB_COUNT as u8 {
                let detached = state.clear(table, &mut tally);
                detached.into_iter().for_each(|detached| detached.free(&mut tally));
            }
        }
        let is_as_new = (0..DB_COUNT as u8).all(|db| self.keyspace.table_of(db) == db);
        is_as_new.then_some(self.keyspace)
    }

    /// The keys of the selected database.
    pub(crate) fn keys(&self) -> Vec<Box<[u8]>> {
        let mut keys = Vec::new();
        for &slot in &self.slots {
            let table = self.keyspace.table_of(self.db);
            self.keyspace.lock(slot).scan(table, ScanPosition::default(), |view| {
                keys.push(view.key.into());
                false
            });
        }
        keys
    }

    /// Compares what the branches of a key's tree say with its leaves. Does nothing for other values.
    pub(crate) fn check_tree(&self, key: impl AsRef<[u8]>) {
        let key = Key::new(key.as_ref());
        let slot = self.keyspace.lock(key.slot);
        let table = self.keyspace.table_of(self.db);
        let view = slot.view(table, &key).expect("the key exists");
        let kind = value::Kind::from_bits(view.kind);
        if kind.is_tree() && !kind.is_stream() {
            let flash = |at: FlashRef| &*self.flash.values[&at.units];
            crate::collection::check_tree(&slot, (table, &key), &flash);
        }
    }

    fn demote_all(&mut self) {
        let mut tally = Tally::default();
        for &slot in &self.slots {
            let mut state = self.keyspace.lock(slot);
            for _ in 0..4 {
                let all = keyspace::PassLimit { bytes_max: i64::MAX, places_max: u64::MAX };
                let region = keyspace::Region::ALL;
                let mut from = keyspace::EntryPosition::default();
                state.pass_hand(
                    &mut from,
                    all,
                    region,
                    &mut tally,
                    &mut |view: keyspace::View<'_>, _: u8| {
                        if self.spared.as_mut().is_some_and(|random| random.below(3) > 0) {
                            return Verdict::Keep;
                        }
                        let Stored::Hot(bytes) = view.stored else {
                            let Stored::Clean(_, at) = view.stored else {
                                panic!("a cold value is not demotable");
                            };
                            return Verdict::Demote(at);
                        };
                        let units = self.flash.values.len() as u64;
                        self.flash.values.insert(units, bytes.to_vec());
                        let stored_len = bytes.len() as u32;
                        Verdict::Demote(FlashRef { units, stored_len, compressed: false })
                    },
                );
            }
        }
        self.counts.add_tally(&tally);
    }
}

fn find(args: Args<'_>) -> &'static Command {
    let rows = || FAMILIES.iter().copied().flatten();
    let is = |row: &Command, name: &[u8]| row.name.as_bytes().eq_ignore_ascii_case(name);
    if let Some(sub) = args.get(1) {
        let name = [&args[0], b"|", sub].concat();
        if let Some(row) = rows().find(|row| is(row, &name)) {
            return row;
        }
    }
    rows().find(|row| is(row, &args[0])).expect("a command of this crate")
}

/// A reply on one line: `+OK`, `-ERR text`, `:5`, `_` (null), `$3 abc`, `,1.5`, `#t`, and
/// `[a, b]` for arrays, `~[..]` for sets, `{k: v, ..}` for maps. Bytes outside printable ASCII
/// are escaped.
pub(crate) fn show(reply: &[u8]) -> String {
    let mut rest = reply;
    let text = show_one(&mut rest);
    assert!(rest.is_empty(), "more than one reply: {}", reply.escape_ascii());
    text
}

fn show_one(rest: &mut &[u8]) -> String {
    let end = rest.windows(2).position(|pair| pair == b"\r\n").expect("a whole line");
    let line = String::from_utf8_lossy(&rest[..end]).into_owned();
    *rest = &rest[end + 2..];
    let (kind, text) = line.split_at(1);
    let mut items = |count: usize| -> Vec<String> { (0..count).map(|_| show_one(rest)).collect() };
    let len = text.parse::<i64>();
    match (kind, len) {
        ("*" | "$", Ok(-1)) => "_".into(),
        ("$" | "=", Ok(len)) => {
            let bytes = &rest[..len as usize];
            let shown = format!("{kind}{len} {}", bytes.escape_ascii());
            *rest = &rest[len as usize + 2..];
            shown.trim_end().into()
        }
        ("*", Ok(len)) => format!("[{}]", items(len as usize).join(", ")),
        ("~", Ok(len)) => format!("~[{}]", items(len as usize).join(", ")),
        ("%", Ok(len)) => {
            let items = items(2 * len as usize);
            let pairs: Vec<String> =
                items.chunks(2).map(|pair| format!("{}: {}", pair[0], pair[1])).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        _ => line,
    }
}
