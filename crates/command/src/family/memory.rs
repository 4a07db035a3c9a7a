//! MEMORY USAGE: the RAM of one key. The other subcommands of MEMORY are about the whole server and
//! live there.

use resp::{Args, Reply};
use value::parse_i64;

use crate::cx::Cx;
use crate::error::{CommandError, CommandResult};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

/// The rows of this file.
pub const COMMANDS: &[Command] = &[Command {
    name: "MEMORY|USAGE",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::at(2, KeyFlags::RO, Needs::KeyOnly)],
    locks: Locks::Keys,
    docs: Docs {
        group: Group::Server,
        since: "4.0.0",
        summary: "Tells how many bytes of RAM a key takes with its value.",
        complexity: "O(1); flash is not read",
        syntax: "key [SAMPLES count]",
    },
    run: usage,
}];

fn usage(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    check_options(args)?;
    let key = cx.key(0);
    match cx.ram_bytes(&key) {
        Some(bytes) => reply.integer(bytes as i64),
        None => reply.null(),
    }
    Ok(())
}

/// SAMPLES is checked and has no effect: the size of a value is known without sampling it.
fn check_options(args: Args<'_>) -> CommandResult {
    let mut rest = args.from(3).iter();
    while let Some(option) = rest.next() {
        if !option.eq_ignore_ascii_case(b"SAMPLES") {
            return Err(CommandError::SYNTAX);
        }
        let samples = rest.next().ok_or(CommandError::SYNTAX)?;
        if parse_i64(samples).ok_or(CommandError::NOT_INTEGER)? < 0 {
            return Err(CommandError::SYNTAX);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn options() {
        check(&[
            ("SET k v", "+OK"),
            ("MEMORY USAGE missing", "_"),
            ("MEMORY USAGE missing SAMPLES -1", "-ERR syntax error"),
            ("MEMORY USAGE k SAMPLES", "-ERR syntax error"),
            ("MEMORY USAGE k SAMPLES x", "-ERR value is not an integer or out of range"),
            ("MEMORY USAGE k FOO 1", "-ERR syntax error"),
            ("MEMORY USAGE k samples 0 SAMPLES 5", ":16"),
        ]);
    }

    #[test]
    fn a_cold_value_takes_no_ram() {
        let usage = |demote: bool| {
            let mut server = Harness::new(demote);
            server.run(&format!("SET memtier-00000001 {}", "x".repeat(512)));
            server.run("MEMORY USAGE memtier-00000001")
        };
        // An entry of 8 and a record of 32; in RAM the value's 512 besides.
        assert_eq!(usage(true), ":40");
        assert_eq!(usage(false), ":552");
    }
}
