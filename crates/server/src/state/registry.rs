//! The registry of commands: what each is called, takes and runs with.
//!
//! It lies below sessions and the handlers that work on them, so that statistics, INFO and COMMAND
//! can read it: of such a handler it holds the place in `family::HANDLERS`.

use command::collection::ElementOf;
use command::{CommandTable, Handler, Locks, Spec};
use resp::Args;

/// How a command runs.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// With the slots of its keys locked.
    Keys(Handler),
    /// On the session, by the handler of this place; it locks what it needs.
    Session(usize),
    /// It is part of the machinery of transactions.
    Transaction(Verb),
    /// It only has subcommands.
    Container,
}

/// The commands of a transaction, which the dispatcher itself carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

/// A command, or a subcommand of a container.
pub(crate) struct Entry {
    pub(crate) spec: Spec,
    pub(crate) run: Run,
    pub(crate) subcommands: Vec<&'static Entry>,
    /// Which element it looks up in the collection of its key.
    pub(crate) element: Option<ElementOf>,
    /// Its place in the statistics.
    pub(crate) index: usize,
    /// In lower case, as errors and statistics name it.
    pub(crate) lower: String,
}

/// All commands.
pub(crate) struct Registry {
    names: CommandTable<&'static Entry>,
    /// Commands without their subcommands, sorted by name.
    pub(crate) commands: Vec<&'static Entry>,
    /// Everything, by `index`.
    pub(crate) entries: Vec<&'static Entry>,
}

impl Registry {
    /// The command of a name, in any case.
    #[inline]
    pub(crate) fn get(&self, name: &[u8]) -> Option<&'static Entry> {
        self.names.get(name)
    }

    /// The command, or the subcommand, of a request.
    #[inline(always)]
    pub(crate) fn find(&self, args: Args<'_>) -> Option<&'static Entry> {
        let entry = self.get(&args[0])?;
        if entry.subcommands.is_empty() {
            return Some(entry);
        }
        args.get(1).and_then(|name| entry.subcommand(name)).or(Some(entry))
    }

    /// All commands by name, each before its subcommands.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &'static Entry> {
        let own = |entry: &&'static Entry| {
            std::iter::once(*entry).chain(entry.subcommands.iter().copied())
        };
        self.commands.iter().flat_map(own)
    }

    /// A registry of commands and how they run. It lives as long as the process, and so do its
    /// entries.
    pub(crate) fn new(mut rows: Vec<(Spec, Run)>) -> Registry {
        rows.sort_by_key(|(spec, _)| spec.name);
        let mut entries = Vec::new();
        let mut subcommands: Vec<&'static Entry> = Vec::new();
        for (spec, run) in rows.iter().filter(|(spec, _)| spec.name.contains('|')) {
            subcommands.push(new_entry(*spec, *run, Vec::new(), &mut entries));
        }
        let mut commands = Vec::new();
        for (spec, run) in rows.iter().filter(|(spec, _)| !spec.name.contains('|')) {
            let own = |entry: &&&'static Entry| container(entry) == spec.name;
            let own: Vec<&'static Entry> = subcommands.iter().filter(own).copied().collect();
            commands.push(new_entry(*spec, container_run(spec, *run, &own), own, &mut entries));
        }
        for name in subcommands.iter().map(container) {
            assert!(commands.iter().any(|entry| entry.spec.name == name), "{name} has no row");
        }
        let names = CommandTable::new(commands.iter().map(|entry| (entry.spec.name, *entry)));
        Registry { names, commands, entries }
    }
}

impl Entry {
    /// The subcommand of a container that `name` stands for.
    pub(crate) fn subcommand(&self, name: &[u8]) -> Option<&'static Entry> {
        let skip = self.spec.name.len() + 1;
        let is =
            |entry: &&&'static Entry| entry.spec.name.as_bytes()[skip..].eq_ignore_ascii_case(name);
        self.subcommands.iter().find(is).copied()
    }

    /// Whether slots are locked for it in a transaction beyond those of its keys: it walks or
    /// replaces whole databases.
    pub(crate) fn wants_all_slots(&self, args: Args<'_>) -> bool {
        matches!(self.run, Run::Keys(_)) && self.spec.locks.of_request(args) != Locks::Keys
    }
}

/// How a command with subcommands runs: only through them, unless it may stand alone (COMMAND).
fn container_run(spec: &Spec, run: Run, subcommands: &[&'static Entry]) -> Run {
    if subcommands.is_empty() || spec.takes(1) { run } else { Run::Container }
}

fn container(entry: &&'static Entry) -> &'static str {
    entry.spec.name.split('|').next().unwrap_or_default()
}

fn new_entry(
    spec: Spec,
    run: Run,
    subcommands: Vec<&'static Entry>,
    entries: &mut Vec<&'static Entry>,
) -> &'static Entry {
    let lower = spec.name.to_ascii_lowercase();
    let index = entries.len();
    let entry: &'static Entry = Box::leak(Box::new(Entry {
        element: ElementOf::command(spec.name),
        spec,
        run,
        subcommands,
        index,
        lower,
    }));
    entries.push(entry);
    entry
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// The commands on keys alone: those of families stand in a layer above.
    pub(crate) static KEY_COMMANDS: LazyLock<Registry> = LazyLock::new(|| {
        let keys = command::family::FAMILIES.iter().copied().flatten();
        // Some containers have rows of this crate alone.
        let keys = keys.filter(|row| !row.spec().name.contains('|'));
        Registry::new(keys.map(|row: &command::Command| (row.spec(), Run::Keys(row.run))).collect())
    });
}
