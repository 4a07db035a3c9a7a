//! Strings: GET, SET and the rest of the string group.

use keyspace::Expiry;
use resp::{Args, Reply};

use crate::cx::Cx;
use crate::error::CommandResult;
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "GET",
        arity: 2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Returns the string value of a key.",
            complexity: "O(1)",
            syntax: "key",
        },
        run: get,
    },
    Command {
        name: "SET",
        arity: -3,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::at(
            1,
            KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE).and(KeyFlags::VARIABLE_FLAGS),
            Needs::KeyOnly,
        )],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Sets the string value of a key, whatever it held.",
            complexity: "O(1)",
            syntax: "key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        },
        run: set,
    },
];

fn get(cx: &mut Cx<'_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    match cx.read_string(&cx.key(0))? {
        Some(bytes) => reply.bulk(bytes),
        None => reply.null(),
    }
    Ok(())
}

fn set(cx: &mut Cx<'_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    cx.set_string(&cx.key(0), &args[2], Expiry::Clear);
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::check;

    #[test]
    fn set_and_get() {
        check(&[
            ("SET k value", "+OK"),
            ("GET k", "$5 value"),
            ("GET missing", "_"),
            ("SET k 0123456789012345678901234567890123456789", "+OK"),
            ("GET k", "$40 0123456789012345678901234567890123456789"),
        ]);
    }
}
