//! The rows of the transaction commands; `crate::session::transaction` carries them out.

use command::{Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs, Row};

use crate::state::registry::Verb;

/// Flags that all five share.
const FLAGS: Flags = Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE);

/// The rows of this family.
pub(crate) const COMMANDS: &[Row<Verb>] = &[
    Row {
        name: "MULTI",
        arity: 1,
        flags: FLAGS.and(Flags::FAST).and(Flags::ALLOW_BUSY),
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Transactions,
            since: "1.2.0",
            summary: "Starts a transaction.",
            complexity: "O(1)",
            syntax: "",
        },
        run: Verb::Multi,
    },
    Row {
        name: "EXEC",
        arity: 1,
        flags: FLAGS.and(Flags::SKIP_SLOWLOG),
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Transactions,
            since: "1.2.0",
            summary: "Executes all commands of a transaction.",
            complexity: "Depends on the commands of the transaction",
            syntax: "",
        },
        run: Verb::Exec,
    },
    Row {
        name: "DISCARD",
        arity: 1,
        flags: FLAGS.and(Flags::FAST).and(Flags::ALLOW_BUSY),
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Transactions,
            since: "2.0.0",
            summary: "Discards a transaction.",
            complexity: "O(N), when N is the number of queued commands",
            syntax: "",
        },
        run: Verb::Discard,
    },
    Row {
        name: "WATCH",
        arity: -2,
        flags: FLAGS.and(Flags::FAST).and(Flags::ALLOW_BUSY),
        keys: &[KeySpec::from(1, 1, KeyFlags::RO, Needs::KeyOnly)],
        locks: Locks::None,
        docs: Docs {
            group: Group::Transactions,
            since: "2.2.0",
            summary: "Monitors changes to keys, which decide whether a transaction runs.",
            complexity: "O(1) for every key",
            syntax: "key [key ...]",
        },
        run: Verb::Watch,
    },
    Row {
        name: "UNWATCH",
        arity: 1,
        flags: FLAGS.and(Flags::FAST).and(Flags::ALLOW_BUSY),
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Transactions,
            since: "2.2.0",
            summary: "Forgets all watched keys.",
            complexity: "O(1)",
            syntax: "",
        },
        run: Verb::Unwatch,
    },
];
