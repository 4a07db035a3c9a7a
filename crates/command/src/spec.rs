//! What is known of a command before it runs: its row in the table.

use resp::{Args, Reply};

use crate::cx::Cx;
use crate::error::CommandResult;

/// A handler of a command that works on keys.
pub type Handler = fn(&mut Cx<'_, '_>, Args<'_>, &mut Reply) -> CommandResult;

/// A row with a handler that needs nothing but the keyspace.
pub type Command = Row<Handler>;

/// One command, or one subcommand (`CLIENT|ID`) of a container. `F` is how it runs: [`Handler`] here, another type in the server
/// crate for commands that need the connection.
#[derive(Clone, Copy, Debug)]
pub struct Row<F: 'static> {
    /// Upper case; a subcommand with its container: `OBJECT|FREQ`.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least that many.
    pub arity: i32,
    /// Properties, as `COMMAND` tells them.
    pub flags: Flags,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// What must be locked while it runs.
    pub locks: Locks,
    /// For people and for `COMMAND DOCS`.
    pub docs: Docs,
    /// What it does.
    pub run: F,
}

/// A row without its handler: what can be said of a command of any crate.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields of `Row`")]
pub struct Spec {
    pub name: &'static str,
    pub arity: i32,
    pub flags: Flags,
    pub keys: &'static [KeySpec],
    pub locks: Locks,
    pub docs: Docs,
}

impl<F> Row<F> {
    /// The row without its handler.
    pub fn spec(&self) -> Spec {
        let Row { name, arity, flags, keys, locks, docs, .. } = *self;
        Spec { name, arity, flags, keys, locks, docs }
    }
}

impl Spec {
    /// Whether a request of `args` arguments (its name included) has the right number of them.
    #[inline]
    pub fn takes(&self, args: usize) -> bool {
        if self.arity >= 0 { args == self.arity as usize } else { args >= -self.arity as usize }
    }
}

/// Which slots a command holds while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// Those of its keys.
    Keys,
    /// None; it may visit slots one after the other.
    None,
    /// Every slot: it is atomic against everything.
    All,
    /// Those of its keys; every slot when it has patterns (`BY`, `GET`), which name keys that follow from
    /// values.
    Patterns,
}

impl Locks {
    /// What a request of these arguments holds: [`Locks::Patterns`] comes to one of the others.
    #[inline]
    pub fn of_request(self, args: Args<'_>) -> Locks {
        match self {
            Locks::Patterns if has_patterns(args) => Locks::All,
            Locks::Patterns => Locks::Keys,
            locks => locks,
        }
    }
}

/// Whether some argument may be a pattern that names keys.
fn has_patterns(args: Args<'_>) -> bool {
    let names = |at: usize| {
        let option = &args[at - 1];
        let takes_pattern =
            option.eq_ignore_ascii_case(b"BY") || option.eq_ignore_ascii_case(b"GET");
        takes_pattern && args[at].contains(&b'*')
    };
    (3..args.len()).any(names)
}

/// A set of command flags (`COMMAND INFO`), as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Changes data.
    pub const WRITE: Flags = Flags(1 << 0);
    /// Reads data.
    pub const READONLY: Flags = Flags(1 << 1);
    /// May need memory: refused when there is none.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// For administrators.
    pub const ADMIN: Flags = Flags(1 << 3);
    /// Publish and subscribe.
    pub const PUBSUB: Flags = Flags(1 << 4);
    /// Not from scripts.
    pub const NOSCRIPT: Flags = Flags(1 << 5);
    /// Allowed while data is loaded.
    pub const LOADING: Flags = Flags(1 << 6);
    /// Allowed on a stale replica.
    pub const STALE: Flags = Flags(1 << 7);
    /// Not shown to MONITOR.
    pub const SKIP_MONITOR: Flags = Flags(1 << 8);
    /// Not in the slow log.
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 9);
    /// Constant or logarithmic time.
    pub const FAST: Flags = Flags(1 << 10);
    /// Allowed before authentication.
    pub const NO_AUTH: Flags = Flags(1 << 11);
    /// Keys cannot be told from the specification alone.
    pub const MOVABLEKEYS: Flags = Flags(1 << 12);
    /// Not inside MULTI.
    pub const NO_MULTI: Flags = Flags(1 << 13);
    /// Allowed while a script is stuck.
    pub const ALLOW_BUSY: Flags = Flags(1 << 14);
    /// May block the client.
    pub const BLOCKING: Flags = Flags(1 << 15);

    /// Replies with the values of its keys: what it reads it sends. Ours alone, and not shown.
    pub const REPLIES_VALUES: Flags = Flags(1 << 16);

    /// Only reads, and replies with an array that has an element for each key: the handler may be run on a
    /// few keys at a time (`Cx::array_len`). Ours alone, and not shown.
    pub const BY_KEY: Flags = Flags(1 << 17);

    /// Not while data is loaded beside what is there.
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 18);

    /// Only reads, and replies with one aggregate of what a walk over the collection of its only key meets: the
    /// handler may be run on one window of that after another ([`crate::collection::Walk`]), where each run but the
    /// first leaves out the header ([`crate::Cx::begins_reply`]). Ours alone, and not shown.
    pub const IN_WINDOWS: Flags = Flags(1 << 19);

    /// Names in the order in which Redis lists them.
    pub const NAMES: [(Flags, &'static str); 17] = [
        (Flags::WRITE, "write"),
        (Flags::READONLY, "readonly"),
        (Flags::DENYOOM, "denyoom"),
        (Flags::ADMIN, "admin"),
        (Flags::PUBSUB, "pubsub"),
        (Flags::NOSCRIPT, "noscript"),
        (Flags::BLOCKING, "blocking"),
        (Flags::LOADING, "loading"),
        (Flags::STALE, "stale"),
        (Flags::SKIP_MONITOR, "skip_monitor"),
        (Flags::SKIP_SLOWLOG, "skip_slowlog"),
        (Flags::FAST, "fast"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::NO_ASYNC_LOADING, "no_async_loading"),
        (Flags::MOVABLEKEYS, "movablekeys"),
        (Flags::NO_MULTI, "no_multi"),
        (Flags::ALLOW_BUSY, "allow_busy"),
    ];

    /// Both sets together.
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether any of `other` is set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        self.and(other)
    }
}

/// A set of key flags (`COMMAND GETKEYSANDFLAGS`), as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFlags(pub u16);

impl KeyFlags {
    /// Only read.
    pub const RO: KeyFlags = KeyFlags(1 << 0);
    /// Read and written.
    pub const RW: KeyFlags = KeyFlags(1 << 1);
    /// Overwritten, whatever it held.
    pub const OW: KeyFlags = KeyFlags(1 << 2);
    /// Removed.
    pub const RM: KeyFlags = KeyFlags(1 << 3);
    /// User data is returned, copied or used.
    pub const ACCESS: KeyFlags = KeyFlags(1 << 4);
    /// User data is changed.
    pub const UPDATE: KeyFlags = KeyFlags(1 << 5);
    /// Data is added.
    pub const INSERT: KeyFlags = KeyFlags(1 << 6);
    /// Data is removed.
    pub const DELETE: KeyFlags = KeyFlags(1 << 7);
    /// The flags depend on the arguments.
    pub const VARIABLE_FLAGS: KeyFlags = KeyFlags(1 << 8);
    /// It is none, and only stands where one would: a shard channel.
    pub const NOT_KEY: KeyFlags = KeyFlags(1 << 9);

    /// Names in the order in which Redis lists them.
    pub const NAMES: [(KeyFlags, &'static str); 10] = [
        (KeyFlags::RO, "RO"),
        (KeyFlags::RW, "RW"),
        (KeyFlags::OW, "OW"),
        (KeyFlags::RM, "RM"),
        (KeyFlags::ACCESS, "access"),
        (KeyFlags::UPDATE, "update"),
        (KeyFlags::INSERT, "insert"),
        (KeyFlags::DELETE, "delete"),
        (KeyFlags::NOT_KEY, "not_key"),
        (KeyFlags::VARIABLE_FLAGS, "variable_flags"),
    ];

    /// Both sets together.
    pub const fn and(self, other: KeyFlags) -> KeyFlags {
        KeyFlags(self.0 | other.0)
    }

    /// Whether any of `other` is set.
    pub const fn has(self, other: KeyFlags) -> bool {
        self.0 & other.0 != 0
    }
}

/// Whether a command wants the values of its keys in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Existence, type and expiry suffice (or only some option needs the value: the handler says).
    KeyOnly,
    /// The value itself: fetched ahead when it is on flash.
    Value,
}

/// Some keys of a command and what happens to them.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// What happens to them.
    pub flags: KeyFlags,
    /// Whether their values are wanted.
    pub needs: Needs,
    /// Where the search begins.
    pub begin: Begin,
    /// Which arguments from there on are keys.
    pub find: Find,
}

/// Where the search for keys begins.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// At this argument.
    Index(usize),
    /// After this keyword, searched from this argument on (backwards when negative).
    Keyword(&'static str, isize),
    /// Clients are not told: at the argument that this finds, if any.
    Unknown(fn(Args<'_>) -> Option<usize>),
    /// After this option, which COMMAND tells as a keyword searched from this argument on: what the arguments
    /// of the other options are, of which each has so many, is not looked at.
    Option(&'static str, isize, &'static [(&'static str, usize)]),
}

/// Which arguments are keys, from the beginning of the search on.
#[derive(Clone, Copy, Debug)]
pub enum Find {
    /// A range: `last` relative to the beginning, or to the end when negative; every `step`-th.
    Range {
        /// Last key.
        last: isize,
        /// Distance of keys.
        step: usize,
    },
    /// The first half of all that follow.
    Half,
    /// Their number is in argument `at` (relative to the beginning), the first key at `first`.
    Count {
        /// Where the number is.
        at: usize,
        /// Where the first key is.
        first: usize,
        /// Distance of keys.
        step: usize,
    },
}

impl KeySpec {
    /// One key at argument `index`.
    pub const fn at(index: usize, flags: KeyFlags, needs: Needs) -> KeySpec {
        let find = Find::Range { last: 0, step: 1 };
        KeySpec { flags, needs, begin: Begin::Index(index), find }
    }

    /// All arguments from `index` on, every `step`-th.
    pub const fn from(index: usize, step: usize, flags: KeyFlags, needs: Needs) -> KeySpec {
        let find = Find::Range { last: -1, step };
        KeySpec { flags, needs, begin: Begin::Index(index), find }
    }
}

/// The groups of `COMMAND DOCS`, with the ACL category that goes with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Redis's")]
pub enum Group {
    Generic,
    String,
    Set,
    SortedSet,
    Geo,
    Hash,
    List,
    Stream,
    Bitmap,
    HyperLogLog,
    PubSub,
    Connection,
    Server,
    Transactions,
}

impl Group {
    /// Whether its commands put what they add among other elements, and not in a value of its own.
    pub const fn is_of_collections(self) -> bool {
        matches!(
            self,
            Group::Set | Group::SortedSet | Group::Geo | Group::Hash | Group::List | Group::Stream
        )
    }

    /// As `COMMAND DOCS` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Geo => "geo",
            Group::Hash => "hash",
            Group::List => "list",
            Group::Stream => "stream",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::PubSub => "pubsub",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Transactions => "transactions",
        }
    }

    /// The ACL category of its commands, if the group is one.
    pub const fn category(self) -> Option<&'static str> {
        match self {
            Group::Generic => Some("@keyspace"),
            Group::String => Some("@string"),
            Group::Set => Some("@set"),
            Group::SortedSet => Some("@sortedset"),
            Group::Geo => Some("@geo"),
            Group::Hash => Some("@hash"),
            Group::List => Some("@list"),
            Group::Stream => Some("@stream"),
            Group::Bitmap => Some("@bitmap"),
            Group::HyperLogLog => Some("@hyperloglog"),
            Group::Connection => Some("@connection"),
            Group::PubSub | Group::Server => None,
            Group::Transactions => Some("@transaction"),
        }
    }
}

/// What a person wants to know.
#[derive(Clone, Copy, Debug)]
pub struct Docs {
    /// Group.
    pub group: Group,
    /// Redis version that brought it.
    pub since: &'static str,
    /// One sentence, our own words.
    pub summary: &'static str,
    /// Time complexity.
    pub complexity: &'static str,
    /// Arguments as the manual writes them: `key [NX | XX] [EX seconds | PX milliseconds]`.
    pub syntax: &'static str,
}
