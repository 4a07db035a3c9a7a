//! What a harness logs, run again on another keyspace, and compared with what it holds itself.

use std::collections::BTreeSet;
use std::fmt;

use keyspace::{DB_COUNT, Key, Keyspace, ScanPosition, Stored, View};
use resp::Args;
use value::Kind;
use value::leaf::branch::Root;
use value::leaf::elements::Elements;
use value::leaf::entries::{self, Entries, is_entries};
use value::leaf::fields::Fields;
use value::leaf::members::Members;
use value::leaf::rows::Rows;
use value::leaf::scored::Scored;
use value::leaf::stream::Packed;

use super::Harness;
use crate::collection::{all_leaves, leaves};
use crate::journal_record::{Commands, LoggedCommand};
use crate::keys::find_keys;
use crate::spec::Command;
use crate::wait::Waits;

/// Bytes of values that are compared for a command, on average: a longer value waits until they add up to it.
const COMPARED_BYTES: i64 = 4_096;
/// What an element takes to be compared besides, as bytes.
const ITEM_BYTES: usize = 64;

/// What a key holds, however it is kept: what has expired and is still there among it.
#[derive(PartialEq, Eq)]
struct Content {
    type_name: &'static str,
    expire_at_ms: u64,
    items: Vec<Vec<u8>>,
}

impl Content {
    /// What it takes to be compared, as bytes.
    fn cost(&self) -> i64 {
        self.items.iter().map(|item| (item.len() + ITEM_BYTES) as i64).sum()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} until {}:", self.type_name, self.expire_at_ms)?;
        self.items.iter().try_for_each(|item| write!(formatter, " {}", item.escape_ascii()))
    }
}

impl Harness {
    /// Has all that is logged run again on a keyspace that has no keys, in another server.
    pub(crate) fn add_replica(&mut self, keyspace: Keyspace) {
        let server = Harness::with_keyspace(keyspace, false);
        let replica = Harness { is_replica: true, random: 1 << 40, waits: Waits::Never, ..server };
        self.replica = Some(Box::new(replica));
    }

    /// That server.
    pub(crate) fn take_replica(&mut self) -> Option<Harness> {
        self.replica.take().map(|replica| *replica)
    }

    /// Runs what was logged again.
    pub(super) fn replay(&mut self) {
        if let Some(replica) = &mut self.replica {
            self.records.iter().for_each(|record| replica.run_record(record));
        }
    }

    /// Runs the commands of a record, as a replica.
    pub(crate) fn run_record(&mut self, record: &[u8]) {
        assert!(self.is_replica);
        let mut commands = Commands::read(record).expect("it was written so");
        while let Some(command) = commands.read_next().expect("it was written so") {
            let LoggedCommand { db, now_ms, args } = command;
            (self.db, self.now_ms) = (db, now_ms);
            let reply = self.run_args(args, None);
            assert!(!reply.starts_with(b"-"), "{args:?} fails: {}", reply.escape_ascii());
        }
    }

    /// What the last command has logged: `SET k v, 1:DEL k`, with `@0` in front of what runs at time zero.
    pub(crate) fn logged(&self) -> String {
        let mut shown: Vec<String> = Vec::new();
        for record in &self.records {
            let mut commands = Commands::read(record).expect("it was written so");
            while let Some(LoggedCommand { db, now_ms, args }) =
                commands.read_next().expect("it was written so")
            {
                let at = if now_ms == 0 { "@0 " } else { "" };
                let db = if db == 0 { String::new() } else { format!("{db}:") };
                let words: Vec<String> =
                    args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
                shown.push(format!("{at}{db}{}", words.join(" ")));
            }
        }
        shown.join(", ")
    }

    /// Runs what a command has logged again, and compares what its keys hold with what they hold then.
    pub(super) fn compare_keys(&mut self, command: &Command, args: Args<'_>) {
        self.replay();
        self.compared_bytes += COMPARED_BYTES;
        let mut left = self.compared_bytes;
        let Some(replica) = &self.replica else { return };
        let mut found = smallvec::SmallVec::new();
        find_keys(command.keys, args, &mut found);
        for at in found {
            let key = Key::new(&args[at.index]);
            for db in 0..DB_COUNT as u8 {
                let (one, other) = (self.value_len(db, &key), replica.value_len(db, &key));
                assert_eq!(one.is_some(), other.is_some(), "{args:?}, logged: {}", self.logged());
                if one.is_some_and(|len| len as i64 <= left) {
                    let (one, other) = (self.content(db, &key), replica.content(db, &key));
                    assert_eq!(one, other, "{args:?}, logged: {}", self.logged());
                    left -= one.map_or(0, |content| content.cost());
                }
            }
        }
        self.compared_bytes = left;
    }

    /// Compares all that there is.
    pub(super) fn compare(&self) {
        let Some(replica) = &self.replica else { return };
        let all = self.all_keys();
        assert_eq!(all, replica.all_keys(), "keys that are there when all is run again");
        for (db, key) in all {
            let key = Key::new(&key);
            let (one, other) = (self.content(db, &key), replica.content(db, &key));
            assert_eq!(one, other, "{}", key.bytes.escape_ascii());
        }
    }

    fn all_keys(&self) -> BTreeSet<(u8, Box<[u8]>)> {
        let mut keys = BTreeSet::new();
        for db in 0..DB_COUNT as u8 {
            let table = self.keyspace.table_of(db);
            for &slot in &self.slots {
                self.keyspace.lock(slot).scan(table, ScanPosition::default(), |view| {
                    keys.insert((db, view.key.into()));
                    false
                });
            }
        }
        keys
    }

    /// Bytes of a value, of a large collection those of its leaves.
    fn value_len(&self, db: u8, key: &Key<'_>) -> Option<usize> {
        let slot = self.keyspace.lock(key.slot);
        let view = slot.view(self.keyspace.table_of(db), key)?;
        let bytes = self.bytes_of(&view);
        let is_tree = Kind::from_bits(view.kind).is_tree();
        Some(if is_tree { Root::new(bytes).leaf_bytes() as usize } else { bytes.len() })
    }

    fn bytes_of<'v>(&'v self, view: &View<'v>) -> &'v [u8] {
        match view.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => bytes,
            Stored::Cold(at, _) => &self.flash.values[&at.units][..],
        }
    }

    fn content(&self, db: u8, key: &Key<'_>) -> Option<Content> {
        let slot = self.keyspace.lock(key.slot);
        let table = self.keyspace.table_of(db);
        let view = slot.view(table, key)?;
        let (kind, bytes) = (Kind::from_bits(view.kind), self.bytes_of(&view));
        let mut items = Vec::new();
        if kind.is_tree() {
            let root = Root::new(bytes);
            items.push(root.extra().to_vec());
            let leaves = if kind.is_stream() { all_leaves } else { leaves };
            for leaf in leaves(&slot, table, key) {
                let found = slot.view(leaf.table(), &leaf.key()).expect("a branch names it");
                add_leaf(kind, self.bytes_of(&found), &mut items);
            }
        } else if kind.is_stream() {
            let packed = Packed::new(bytes);
            items.push(packed.head().to_bytes().to_vec());
            packed.leaves().for_each(|leaf| add_leaf(kind, leaf, &mut items));
        } else {
            // In place of what the root of a large one says besides.
            items.push(Vec::new());
            add_leaf(kind, bytes, &mut items);
        }
        if kind.is_set() || kind.is_hash() {
            items.sort_unstable();
        }
        Some(Content { type_name: kind.type_name(), expire_at_ms: view.expire_at_ms, items })
    }
}

/// Adds what a leaf holds, element by element.
fn add_leaf(kind: Kind, leaf: &[u8], items: &mut Vec<Vec<u8>>) {
    if kind.is_string() {
        items.push(leaf.to_vec());
    } else if kind.is_list() {
        items.extend(Elements::new(leaf).iter().map(<[u8]>::to_vec));
    } else if kind.is_set() {
        items.extend(Members::new(leaf).iter().map(<[u8]>::to_vec));
    } else if kind.is_hash() {
        let fields = Fields::new(leaf).iter_with_expiry();
        items.extend(fields.map(|(field, value, at_ms)| {
            [field, b"=", value, b" until ", at_ms.to_string().as_bytes()].concat()
        }));
    } else if kind.is_sorted_set() {
        let members = Scored::new(leaf).iter();
        items.extend(members.map(|(member, score)| [&score.to_be_bytes()[..], member].concat()));
    } else if is_entries(leaf) {
        for entry in Entries::new(leaf).iter() {
            let mut item = entry.id.to_string().into_bytes();
            for (field, value) in entry.iter() {
                item.extend([&b" "[..], field, b"=", value].concat());
            }
            items.push(item);
        }
    } else if *leaf != entries::EMPTY {
        items.extend(Rows::new(leaf).iter().map(|row| [row.first, b"=", row.second].concat()));
    }
}
