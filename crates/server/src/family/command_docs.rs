//! What COMMAND DOCS answers of a command, as Redis 7.0 writes it: redis-cli shows it as hints.

use command::{Begin, Flags};
use resp::Reply;

use super::syntax::{Argument, ArgumentKind, parse_syntax};
use crate::state::registry::Entry;

/// Names of arguments that are keys, in the commands that have keys.
const KEYS: &[&str] = &[
    "key",
    "key1",
    "key2",
    "newkey",
    "destkey",
    "source",
    "sourcekey",
    "destination",
    "src",
    "dst",
];
/// Names of arguments that are integers.
const INTEGERS: &[&str] = &[
    "bit",
    "client-id",
    "count",
    "cursor",
    "db",
    "decrement",
    "destination-db",
    "end",
    "increment",
    "index",
    "index1",
    "index2",
    "len",
    "limit",
    "maxage",
    "milliseconds",
    "min-match-len",
    "num-matches",
    "numkeys",
    "offset",
    "protover",
    "rank",
    "seconds",
    "start",
    "stop",
    "timeout",
    "version",
    "weight",
];
/// Names of arguments that are doubles.
const DOUBLES: &[&str] = &["height", "latitude", "longitude", "radius", "score", "width"];
/// Names of arguments that are times since 1970.
const UNIX_TIMES: &[&str] = &["unix-time-seconds", "unix-time-milliseconds"];
/// Names of arguments that are glob-like patterns.
const PATTERNS: &[&str] = &["pattern"];
/// Arguments whose names mean something else in a command: it, the name, the type.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("BITFIELD", "value", "integer"),
    ("HINCRBYFLOAT", "increment", "double"),
    ("INCRBYFLOAT", "increment", "double"),
    ("RESTORE", "ttl", "integer"),
    ("RESTORE", "frequency", "integer"),
    ("SETBIT", "value", "integer"),
    ("XAUTOCLAIM", "start", "string"),
    ("XGROUP|CREATE", "entries-read", "integer"),
    ("XGROUP|SETID", "entries-read", "integer"),
    ("XPENDING", "start", "string"),
    ("XPENDING", "end", "string"),
    ("XRANGE", "start", "string"),
    ("XRANGE", "end", "string"),
    ("XREVRANGE", "start", "string"),
    ("XREVRANGE", "end", "string"),
    ("XSETID", "entries-added", "integer"),
    ("ZCOUNT", "min", "double"),
    ("ZCOUNT", "max", "double"),
    ("ZRANGE", "start", "string"),
    ("ZRANGE", "stop", "string"),
    ("ZRANGEBYSCORE", "min", "double"),
    ("ZRANGEBYSCORE", "max", "double"),
    ("ZREMRANGEBYSCORE", "min", "double"),
    ("ZREMRANGEBYSCORE", "max", "double"),
    ("ZREVRANGEBYSCORE", "min", "double"),
    ("ZREVRANGEBYSCORE", "max", "double"),
];

/// Writes what people should know of a command, with its subcommands.
pub(super) fn write_docs(entry: &Entry, reply: &mut Reply) {
    let docs = &entry.spec.docs;
    let arguments = parse_syntax(docs.syntax).expect("invariant: a test parses every row's");
    let optional_fields =
        [!docs.complexity.is_empty(), !arguments.is_empty(), !entry.subcommands.is_empty()];
    reply.map(3 + optional_fields.iter().filter(|is| **is).count());
    write_field("summary", docs.summary, reply);
    write_field("since", docs.since, reply);
    write_field("group", docs.group.name(), reply);
    if !docs.complexity.is_empty() {
        write_field("complexity", docs.complexity, reply);
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        let mut writer = Writer { entry, key_specs: 0, reply: &mut *reply };
        writer.write_all(&arguments);
    }
    if !entry.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(entry.subcommands.len());
        for entry in &entry.subcommands {
            reply.bulk(entry.lower.as_bytes());
            write_docs(entry, reply);
        }
    }
}

fn write_field(name: &str, text: &str, reply: &mut Reply) {
    reply.bulk(name.as_bytes());
    reply.bulk(text.as_bytes());
}

/// Writes the arguments of a command in their order, so that each key finds its specification.
struct Writer<'a> {
    entry: &'a Entry,
    /// Key specifications whose arguments have been written.
    key_specs: usize,
    reply: &'a mut Reply,
}

impl Writer<'_> {
    fn write_all(&mut self, arguments: &[Argument]) {
        self.reply.array(arguments.len());
        for argument in arguments {
            self.write(argument);
        }
    }

    fn write(&mut self, argument: &Argument) {
        let kind = self.kind(argument);
        let flags: Vec<&str> = [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ]
        .into_iter()
        .filter_map(|(is, flag)| is.then_some(flag))
        .collect();
        let key_spec = self.key_spec_index(kind);
        let optional_fields = [
            key_spec.is_some(),
            argument.token.is_some(),
            !flags.is_empty(),
            !argument.inner.is_empty(),
        ];
        self.reply.map(2 + optional_fields.iter().filter(|is| **is).count());
        write_field("name", &argument.name, self.reply);
        write_field("type", kind, self.reply);
        if let Some(index) = key_spec {
            self.reply.bulk(b"key_spec_index");
            self.reply.integer(index as i64);
        }
        if let Some(token) = &argument.token {
            write_field("token", token, self.reply);
        }
        if !flags.is_empty() {
            self.reply.bulk(b"flags");
            self.reply.set(flags.len());
            flags.iter().for_each(|flag| self.reply.simple(flag));
        }
        if !argument.inner.is_empty() {
            self.reply.bulk(b"arguments");
            self.write_all(&argument.inner);
        }
    }

    /// Which key specification is about the next argument, of a type. That of patterns is met as often as
    /// there are patterns.
    fn key_spec_index(&mut self, kind: &str) -> Option<usize> {
        let keys = self.entry.spec.keys;
        let is_of_patterns = |index: usize| {
            let next = keys.get(index);
            next.is_some_and(|keys| matches!(keys.begin, Begin::Unknown(_)))
        };
        let last = keys.len().checked_sub(1)?;
        match kind {
            "pattern" => is_of_patterns(self.key_specs).then_some(self.key_specs),
            "key" if is_of_patterns(self.key_specs) => Some(last),
            "key" => {
                self.key_specs += 1;
                Some(last.min(self.key_specs - 1))
            }
            _ => None,
        }
    }

    /// The type of an argument, as Redis names it.
    fn kind(&self, argument: &Argument) -> &'static str {
        let spec = &self.entry.spec;
        let name = argument.name.as_str();
        let is_exception = |(command, argument, _): &&(&str, &str, &str)| {
            *command == spec.name && *argument == name
        };
        if let Some((_, _, kind)) = EXCEPTIONS.iter().find(is_exception) {
            return kind;
        }
        match argument.kind {
            ArgumentKind::PureToken => "pure-token",
            ArgumentKind::OneOf => "oneof",
            ArgumentKind::Block => "block",
            ArgumentKind::Value if !spec.keys.is_empty() && KEYS.contains(&name) => "key",
            // In seconds, and fractions of them.
            ArgumentKind::Value if name == "timeout" && spec.flags.has(Flags::BLOCKING) => "double",
            ArgumentKind::Value if INTEGERS.contains(&name) => "integer",
            ArgumentKind::Value if DOUBLES.contains(&name) => "double",
            ArgumentKind::Value if UNIX_TIMES.contains(&name) => "unix-time",
            ArgumentKind::Value if PATTERNS.contains(&name) => "pattern",
            ArgumentKind::Value => "string",
        }
    }
}

#[cfg(test)]
mod tests {
    use command::{KeyFlags, KeySpec};

    use super::*;
    use crate::family::REGISTRY;

    #[test]
    fn every_syntax_is_understood() {
        for entry in &REGISTRY.entries {
            let parsed = parse_syntax(entry.spec.docs.syntax);
            assert!(parsed.is_ok(), "{}: {parsed:?}", entry.spec.name);
        }
    }

    fn has_keys(entry: &Entry) -> bool {
        entry.spec.keys.iter().any(|keys| !keys.flags.has(KeyFlags::NOT_KEY))
    }

    #[test]
    fn every_key_specification_has_an_argument() {
        fn count(arguments: &[Argument]) -> usize {
            let own = |argument: &Argument| {
                usize::from(KEYS.contains(&argument.name.as_str())) + count(&argument.inner)
            };
            arguments.iter().map(own).sum()
        }
        for entry in REGISTRY.entries.iter().filter(|entry| has_keys(entry)) {
            let arguments = parse_syntax(entry.spec.docs.syntax).expect("see above");
            let told = |keys: &&KeySpec| !matches!(keys.begin, Begin::Unknown(_));
            let keys = entry.spec.keys.iter().filter(told).count();
            assert!(count(&arguments) >= keys, "{}", entry.spec.name);
        }
    }
}
