//! What a run does to keys, for all who want to know: the statistics, subscribers of keyspace
//! notifications, clients that wait for a key.
//!
//! A handler reports each change once ([`crate::Cx::report`]). When nobody listens, a report is an addition
//! to a counter. That a key is new, or that its time had come, is noted by the keyspace itself
//! ([`keyspace::Note`]), so no handler can forget it; it stands in front of what is reported next.

use keyspace::{Key, Keyspace, Note, Noted, Noting};
use value::Kind;

use crate::logged::Logged;

/// A set of classes of events, as bits: the flags of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes(pub u32);

impl Classes {
    /// None.
    pub const NONE: Classes = Classes(0);
    /// `K`: events are published by key.
    pub const BY_KEY: Classes = Classes(1 << 0);
    /// `E`: events are published by name.
    pub const BY_EVENT: Classes = Classes(1 << 1);
    /// `g`: commands on keys of any type.
    pub const GENERIC: Classes = Classes(1 << 2);
    /// `$`.
    pub const STRING: Classes = Classes(1 << 3);
    /// `l`.
    pub const LIST: Classes = Classes(1 << 4);
    /// `s`.
    pub const SET: Classes = Classes(1 << 5);
    /// `h`.
    pub const HASH: Classes = Classes(1 << 6);
    /// `z`.
    pub const ZSET: Classes = Classes(1 << 7);
    /// `x`: keys whose time had come.
    pub const EXPIRED: Classes = Classes(1 << 8);
    /// `e`: keys that memory had no room for.
    pub const EVICTED: Classes = Classes(1 << 9);
    /// `t`.
    pub const STREAM: Classes = Classes(1 << 10);
    /// `m`: reads of keys that do not exist.
    pub const KEY_MISS: Classes = Classes(1 << 11);
    /// `d`: modules, of which there are none.
    pub const MODULE: Classes = Classes(1 << 13);
    /// `n`: keys that did not exist before.
    pub const NEW: Classes = Classes(1 << 14);
    /// The journal listens: not to events, but to what it is to log of a run. Ours alone, and not configured.
    pub const LOGGED: Classes = Classes(1 << 28);
    /// Clients wait for keys. Likewise.
    pub const WAITED: Classes = Classes(1 << 31);
    /// `A`: all but `K`, `E`, `m` and `n`.
    pub const ALL: Classes = Classes(
        Self::GENERIC.0
            | Self::STRING.0
            | Self::LIST.0
            | Self::SET.0
            | Self::HASH.0
            | Self::ZSET.0
            | Self::EXPIRED.0
            | Self::EVICTED.0
            | Self::STREAM.0
            | Self::MODULE.0,
    );

    /// Whether any of `other` is set.
    #[inline]
    pub const fn has(self, other: Classes) -> bool {
        self.0 & other.0 != 0
    }

    /// Those of both sets.
    pub const fn and(self, other: Classes) -> Classes {
        Classes(self.0 | other.0)
    }

    /// What the keyspace is to note for who listens to these: if clients wait for keys, the end of streams, too; for
    /// the journal not that keys are new, but which fields have expired.
    pub fn noting(self) -> Noting {
        let ends_of = if self.has(Self::WAITED) { Kind::STREAMS } else { 0 };
        let elements = self.has(Self::LOGGED);
        Noting { new: self.has_events(), gone: self.has_events() || elements, elements, ends_of }
    }

    /// Whether there are any that events are of.
    #[inline]
    pub const fn has_events(self) -> bool {
        self.without(Self::LOGGED).0 != 0
    }

    /// Those that are in both.
    pub const fn only(self, other: Classes) -> Classes {
        Classes(self.0 & other.0)
    }

    /// Those that are not in `other`.
    pub const fn without(self, other: Classes) -> Classes {
        Classes(self.0 & !other.0)
    }
}

/// What happens to a key, by the name that Redis gives it in notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// As subscribers read it.
    pub name: &'static str,
    /// Its class. [`Classes::WAITED`] beside it: whoever waits for the key looks at it again.
    pub classes: Classes,
}

/// One constant for each event of a class.
macro_rules! events {
    ($($class:ident { $($constant:ident $name:literal,)* })*) => {
        #[allow(missing_docs, reason = "the names are Redis's")]
        impl Event {
            $($(
                pub const $constant: Event = Event { name: $name, classes: Classes::$class };
            )*)*
        }
    };
}

events! {
    GENERIC {
        DEL "del",
        EXPIRE "expire",
        PERSIST "persist",
        RENAME_FROM "rename_from",
        RENAME_TO "rename_to",
        MOVE_FROM "move_from",
        MOVE_TO "move_to",
        COPY_TO "copy_to",
        RESTORE "restore",
    }
    STRING {
        SET "set",
        APPEND "append",
        SETRANGE "setrange",
        SETBIT "setbit",
        INCRBY "incrby",
        INCRBYFLOAT "incrbyfloat",
        PFADD "pfadd",
    }
    LIST {
        LPUSH "lpush",
        RPUSH "rpush",
        LPOP "lpop",
        RPOP "rpop",
        LINSERT "linsert",
        LSET "lset",
        LREM "lrem",
        LTRIM "ltrim",
        SORTSTORE "sortstore",
    }
    SET {
        SADD "sadd",
        SREM "srem",
        SPOP "spop",
        SINTERSTORE "sinterstore",
        SUNIONSTORE "sunionstore",
        SDIFFSTORE "sdiffstore",
    }
    HASH {
        HSET "hset",
        HDEL "hdel",
        HINCRBY "hincrby",
        HINCRBYFLOAT "hincrbyfloat",
        HEXPIRE "hexpire",
        HPERSIST "hpersist",
        HEXPIRED "hexpired",
    }
    ZSET {
        ZADD "zadd",
        ZINCR "zincr",
        ZREM "zrem",
        ZREMRANGEBYSCORE "zremrangebyscore",
        ZREMRANGEBYRANK "zremrangebyrank",
        ZREMRANGEBYLEX "zremrangebylex",
        ZPOPMIN "zpopmin",
        ZPOPMAX "zpopmax",
        ZRANGESTORE "zrangestore",
        ZUNIONSTORE "zunionstore",
        ZINTERSTORE "zinterstore",
        ZDIFFSTORE "zdiffstore",
        GEORADIUSSTORE "georadiusstore",
        GEOSEARCHSTORE "geosearchstore",
    }
    STREAM {
        XDEL "xdel",
        XTRIM "xtrim",
        XSETID "xsetid",
        XGROUP_CREATE "xgroup-create",
        XGROUP_SETID "xgroup-setid",
        XGROUP_CREATECONSUMER "xgroup-createconsumer",
        XGROUP_DELCONSUMER "xgroup-delconsumer",
    }
    EXPIRED { EXPIRED "expired", }
    EVICTED { EVICTED "evicted", }
    KEY_MISS { KEY_MISS "keymiss", }
}

#[allow(missing_docs, reason = "the names are Redis's")]
impl Event {
    /// Readers wait for entries of streams that exist.
    pub const XADD: Event = Event { name: "xadd", classes: Classes::STREAM.and(Classes::WAITED) };
    /// Who reads as one of a group hears that it is gone.
    pub const XGROUP_DESTROY: Event =
        Event { name: "xgroup-destroy", classes: Classes::STREAM.and(Classes::WAITED) };
    /// Who reads as one of a group hears that the stream is gone. Told to nobody but who waits.
    pub const ENDED: Event = Event { name: "ended", classes: Classes::WAITED };
    /// All keys of a database are gone. Of no key, and told to nobody but who waits.
    pub const FLUSHED: Event = Event { name: "flushed", classes: Classes::WAITED };
    /// All keys of a database may be others. Of no key, and told to nobody but who waits.
    pub const SWAPDB: Event = Event { name: "swapdb", classes: Classes::WAITED };
    /// Collections begin with this event, and others wait for them.
    pub const NEW: Event = Event { name: "new", classes: Classes::NEW.and(Classes::WAITED) };
}

/// Something that has happened to a key and that somebody listens to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Its database.
    pub db: u8,
    /// The key.
    pub key: Box<[u8]>,
    /// What has happened.
    pub event: Event,
}

/// What one run reports.
#[derive(Debug, Default)]
pub struct Effects {
    /// Changes made, for the statistics.
    pub changes: u64,
    /// What somebody listens to.
    pub listened: Classes,
    /// Whether every read of a key counts as a hit or a miss: not those of commands that write, which say which
    /// of theirs do.
    pub counts_reads: bool,
    /// Whether fields that have expired stay where others are changed: a replay is told of each that went.
    pub(crate) keeps_expired: bool,
    /// Its events and what is logged of it; of most runs none.
    pub(crate) told: Option<Box<Told>>,
}

/// What listeners are told of a run: apart from [`Effects`], since most runs have nobody to tell.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// What has happened, in its order. Bound: what the run changes.
    noted: Vec<Effect>,
    /// What is logged otherwise than as it was sent.
    pub(crate) logged: Option<Logged>,
}

impl Effects {
    /// Nothing yet, for those who listen to these classes.
    #[inline]
    pub fn new(listened: Classes, is_write: bool) -> Effects {
        Effects { listened, counts_reads: !is_write, ..Effects::default() }
    }

    /// Whether nothing has been reported, and nothing is to be logged.
    #[inline]
    pub fn are_none(&self) -> bool {
        self.changes == 0 && self.told.is_none()
    }

    /// The changes made. What somebody was told is dropped out of line: most runs have nobody to tell.
    #[inline]
    pub fn into_changes(self) -> u64 {
        if let Some(told) = self.told {
            drop_told(told);
        }
        self.changes
    }

    /// What has happened, in its order.
    pub fn noted(&self) -> &[Effect] {
        self.told.as_ref().map_or(&[], |told| &told.noted)
    }

    #[cold]
    pub(crate) fn told(&mut self) -> &mut Told {
        self.told.get_or_insert_default()
    }

    /// Takes note of what the keyspace has noted so far, and of an event behind it.
    #[cold]
    pub(crate) fn note(
        &mut self,
        keyspace: &Keyspace,
        notes: &mut Vec<Note>,
        (db, key, event): (u8, &Key<'_>, Event),
    ) {
        self.take_notes(keyspace, notes);
        if event.classes.has(self.listened) {
            self.told().noted.push(Effect { db, key: key.bytes.into(), event });
        }
    }

    /// Takes note of what the keyspace has noted by itself.
    #[cold]
    pub fn take_notes(&mut self, keyspace: &Keyspace, notes: &mut Vec<Note>) {
        for Note { table, key, noted } in notes.drain(..) {
            let db = keyspace.db_of(table);
            if self.are_logged() {
                match &noted {
                    Noted::Expired { at_ms } => self.log_expired(db, &key, *at_ms),
                    Noted::Evicted => self.log_evicted(db, &key),
                    Noted::ElementsExpired(fields) => self.log_expired_fields(db, &key, fields),
                    Noted::New | Noted::Emptied | Noted::Ended => {}
                }
            }
            let event = match noted {
                Noted::New => Event::NEW,
                Noted::Expired { .. } => Event::EXPIRED,
                Noted::Evicted => Event::EVICTED,
                Noted::ElementsExpired(_) => Event::HEXPIRED,
                Noted::Emptied => Event::DEL,
                Noted::Ended => Event::ENDED,
            };
            if event.classes.has(self.listened) {
                self.told().noted.push(Effect { db, key, event });
            }
        }
    }

    /// Forgets what a run reported that will be run again: only what the keyspace did by itself has
    /// happened.
    #[cold]
    pub fn take_back(&mut self) {
        let Some(told) = &mut self.told else { return };
        told.noted.retain(|effect| matches!(effect.event, Event::EXPIRED | Event::ENDED));
        if let Some(logged) = &mut told.logged {
            logged.take_back();
        }
    }
}

#[cold]
fn drop_told(told: Box<Told>) {
    drop(told);
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check_events};

    #[test]
    fn strings() {
        check_events(&[
            ("SET k v", "new k, set k"),
            ("SET k v KEEPTTL", "set k"),
            ("SET k v EX 10", "set k, expire k"),
            ("SET k v XX GET", "set k"),
            ("SET k v NX", ""),
            ("SET gone v PXAT 1", "new gone, set gone, expire gone, expired gone"),
            ("SET k v PXAT 1", "set k, expire k, expired k"),
            ("GET k", "keymiss k"),
            ("SET k v GET", "keymiss k, new k, set k"),
            ("GETSET k w", "set k"),
            ("GETSET o w", "keymiss o, new o, set o"),
            ("GETDEL k", "del k"),
            ("GETDEL k", "keymiss k"),
            ("GETEX k", "keymiss k"),
            ("GETEX o EX 10", "expire o"),
            ("GETEX o PERSIST", "persist o"),
            ("GETEX o PERSIST", ""),
            ("GETEX o PXAT 1", "del o"),
            ("MSET a 1 b 2 a 3", "new a, set a, new b, set b, set a"),
            ("MSETNX a 1 c 2", ""),
            ("MGET a x b y", "keymiss x, keymiss y"),
            ("INCR a", "incrby a"),
            ("INCRBYFLOAT f 1", "new f, incrbyfloat f"),
            ("APPEND a x", "append a"),
            ("APPEND g x", "new g, append g"),
            ("SETRANGE g 1 x", "setrange g"),
            ("SETRANGE g 1 ''", ""),
            ("STRLEN x", "keymiss x"),
            ("SETBIT bit 1 1", "new bit, setbit bit"),
            ("SETBIT bit 1 1", ""),
            ("BITFIELD bit SET u8 0 9 GET u8 0", "setbit bit"),
            ("BITFIELD x GET u8 0", "keymiss x"),
            ("BITFIELD_RO x GET u8 0 GET u8 8", "keymiss x"),
            ("BITOP AND t bit x", "keymiss x, new t, set t"),
            ("BITOP AND t x", "keymiss x, del t"),
        ]);
    }

    #[test]
    fn keys_of_any_type() {
        check_events(&[
            ("MSET a 1 b 2 c 3", "new a, set a, new b, set b, new c, set c"),
            ("DEL a a x", "del a"),
            ("EXISTS b x x", "keymiss x, keymiss x"),
            ("TOUCH b x", "keymiss x"),
            ("TYPE x", "keymiss x"),
            ("PTTL x", "keymiss x"),
            ("EXPIRE x 1", ""),
            ("EXPIRE b 100", "expire b"),
            ("PERSIST b", "persist b"),
            ("PERSIST b", ""),
            ("EXPIRE b -1", "del b"),
            ("RENAME c d", "new d, rename_from c, rename_to d"),
            ("SET c 1", "new c, set c"),
            ("RENAME c d", "new d, rename_from c, rename_to d"),
            ("RENAME d d", ""),
            ("COPY d e", "new e, copy_to e"),
            ("COPY d e", ""),
            ("COPY x e", "keymiss x"),
            ("COPY d e REPLACE", "new e, copy_to e"),
            ("COPY d e DB 3", "3:new e, 3:copy_to e"),
            ("MOVE d 2", "2:new d, move_from d, 2:move_to d"),
            ("FLUSHALL", ""),
            ("OBJECT ENCODING x", ""),
        ]);
    }

    #[test]
    fn lists() {
        check_events(&[
            ("RPUSH l a b c d e f", "new l, rpush l"),
            ("LPUSH l x", "lpush l"),
            ("LPUSHX x x", ""),
            ("LPOP l", "lpop l"),
            ("RPOP l 2", "rpop l"),
            ("RPOP l 0", ""),
            ("LSET l 0 z", "lset l"),
            ("LINSERT l BEFORE z y", "linsert l"),
            ("LINSERT l BEFORE missing y", ""),
            ("LREM l 0 y", "lrem l"),
            ("LREM l 0 y", ""),
            ("LTRIM l 0 -1", "ltrim l"),
            ("LMOVE l m LEFT RIGHT", "new m, rpush m, lpop l"),
            ("RPOPLPUSH m m", "lpush m, rpop m"),
            ("RPOPLPUSH m l", "lpush l, rpop m, del m"),
            ("LMPOP 2 m l LEFT", "lpop l"),
            ("LMPOP 2 m l RIGHT COUNT 10", "rpop l, del l"),
            ("LRANGE l 0 -1", "keymiss l"),
            ("LPOP l", ""),
            ("RPUSH l a", "new l, rpush l"),
            ("LTRIM l 1 0", "ltrim l, del l"),
            ("RPUSH l a", "new l, rpush l"),
            ("LREM l 0 a", "lrem l, del l"),
        ]);
    }

    #[test]
    fn sets_and_hashes() {
        check_events(&[
            ("SADD s a b c", "new s, sadd s"),
            ("SADD s a", ""),
            ("SREM s a x", "srem s"),
            ("SREM s x", ""),
            ("SMOVE s t b", "srem s, new t, sadd t"),
            ("SMOVE s t c", "srem s, del s, sadd t"),
            ("SMOVE s t c", ""),
            ("SPOP t", "spop t"),
            ("SPOP t 9", "spop t, del t"),
            ("SADD s a b c", "new s, sadd s"),
            ("SINTERSTORE o s s", "new o, sinterstore o"),
            ("SUNIONSTORE o s x", "keymiss x, sunionstore o"),
            ("SDIFFSTORE o s s", "del o"),
            ("SDIFFSTORE o s s", ""),
            ("SINTER s x", "keymiss x"),
            ("SMEMBERS x", "keymiss x"),
            ("HSET h a 1 b 2", "new h, hset h"),
            ("HSETNX h a 1", ""),
            ("HSETNX h c 1", "hset h"),
            ("HMSET h a 1", "hset h"),
            ("HINCRBY h a 1", "hincrby h"),
            ("HINCRBYFLOAT h a 1", "hincrbyfloat h"),
            ("HDEL h a x", "hdel h"),
            ("HDEL h x", ""),
            ("HDEL h b c", "hdel h, del h"),
            ("HGET h a", "keymiss h"),
            ("HGETALL h", "keymiss h"),
        ]);
    }

    #[test]
    fn sorted_sets() {
        check_events(&[
            ("ZADD z 1 a 2 b 3 c 4 d 5 e", "new z, zadd z"),
            ("ZADD z 1 a", ""),
            ("ZADD z CH XX 2 a 2 x", "zadd z"),
            ("ZADD z INCR 1 a", "zincr z"),
            ("ZADD z INCR NX 1 a", ""),
            ("ZADD x XX 1 a", ""),
            ("ZINCRBY z -1 a", "zincr z"),
            ("ZREM z a x", "zrem z"),
            ("ZREM z x", ""),
            ("ZPOPMIN z", "zpopmin z"),
            ("ZMPOP 2 x z MAX", "zpopmax z"),
            ("ZRANGESTORE o z 0 -1", "new o, zrangestore o"),
            ("ZRANGESTORE o x 0 -1", "keymiss x, del o"),
            ("ZUNIONSTORE o 2 z x", "keymiss x, new o, zunionstore o"),
            ("ZINTERSTORE o 2 z o", "zinterstore o"),
            ("ZDIFFSTORE n 1 z", "new n, zdiffstore n"),
            ("ZDIFFSTORE n 2 z z", "del n"),
            ("ZREMRANGEBYRANK o 0 0", "zremrangebyrank o"),
            ("ZREMRANGEBYSCORE o 9 9", ""),
            ("ZREMRANGEBYSCORE o -inf inf", "zremrangebyscore o, del o"),
            ("ZREMRANGEBYLEX z - +", "zremrangebylex z, del z"),
            ("ZSCORE z a", "keymiss z"),
            ("ZRANGE z 0 -1", "keymiss z"),
            ("ZPOPMAX z", ""),
        ]);
    }

    #[test]
    fn what_has_expired_goes_first() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("SET k 1 PX 10");
            server.now_ms += 10;
            server.events.clear();
            server.run("SET k 2 PX 10");
            assert_eq!(server.events.join(", "), "expired k, new k, set k, expire k");
            server.now_ms += 10;
            server.events.clear();
            server.run("GET k");
            assert_eq!(server.events.join(", "), "expired k, keymiss k");
        }
    }
}
