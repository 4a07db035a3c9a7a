//! Connections as CLIENT LIST shows them, and the options by which LIST and KILL choose some.

use std::fmt;
use std::sync::atomic::Ordering;

use command::CommandError;
use resp::Args;

use super::refusal::quoted;
use crate::limits::CONNECTION_BYTES;
use crate::state::clients::Client;
use crate::state::registry::Registry;

/// A connection as one line. The fields are those of Redis 7.0 in its order, with the library's
/// name and version of 7.2 behind them.
pub(super) struct Line<'a> {
    pub(super) registry: &'static Registry,
    pub(super) client: &'a Client,
    pub(super) now_ms: u64,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client;
        let age_s = self.now_ms.saturating_sub(client.created_ms) / 1000;
        let seen_ms = client.last_seen_ms.load(Ordering::Relaxed).max(client.created_ms);
        let idle_s = self.now_ms.saturating_sub(seen_ms) / 1000;
        let labels = client.labels.lock().clone();
        write!(
            out,
            "id={} addr={} laddr={} fd={} name={} age={age_s} idle={idle_s} flags={}",
            client.id,
            client.address,
            client.local_address,
            client.fd,
            labels.name,
            flags(client),
        )?;
        write!(
            out,
            " db={} sub={} psub={} ssub={} multi={}",
            client.db.load(Ordering::Relaxed),
            client.subscriptions[0].load(Ordering::Relaxed),
            client.subscriptions[1].load(Ordering::Relaxed),
            client.subscriptions[2].load(Ordering::Relaxed),
            client.queued.load(Ordering::Relaxed),
        )?;
        self.write_memory(out)?;
        write!(
            out,
            " events=r cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}",
            self.last_command(),
            client.protocol.load(Ordering::Relaxed),
            labels.library_name,
            labels.library_version,
        )
    }
}

impl Line<'_> {
    fn last_command(&self) -> &'static str {
        let index = self.client.last_command.load(Ordering::Relaxed) as usize;
        match index.checked_sub(1).and_then(|index| self.registry.entries.get(index)) {
            Some(entry) => &entry.lower,
            None => "NULL",
        }
    }

    /// There is one output buffer, which grows: what Redis shows of a first buffer of a fixed size
    /// (`rbs`, `rbp`) is its capacity here, and it counts as output memory (`oll`, `omem`) while
    /// the client has not taken what is in it. Messages on their way to the client count, too.
    fn write_memory(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client;
        let input = client.input_bytes.load(Ordering::Relaxed);
        let input_free = client.input_capacity.load(Ordering::Relaxed).saturating_sub(input);
        let queued_bytes = client.queued_bytes.load(Ordering::Relaxed);
        let output_capacity = client.output_capacity.load(Ordering::Relaxed);
        let is_unread = client.output_bytes.load(Ordering::Relaxed) > 0;
        write!(
            out,
            " qbuf={input} qbuf-free={input_free} argv-mem=0 multi-mem={queued_bytes} \
             rbs={output_capacity} rbp={output_capacity} obl=0 oll={} omem={} tot-mem={}",
            usize::from(is_unread) + client.pushes.len(),
            if is_unread { output_capacity } else { 0 } + client.pushes.bytes(),
            client.memory_bytes() + CONNECTION_BYTES,
        )
    }
}

fn flags(client: &Client) -> String {
    let shown = [
        (client.is_monitor.load(Ordering::Relaxed), 'O'),
        (client.is_subscriber(), 'P'),
        (client.queued.load(Ordering::Relaxed) >= 0, 'x'),
        (client.is_blocked.load(Ordering::Relaxed), 'b'),
        (client.is_unix_socket, 'U'),
        (client.no_evict.load(Ordering::Relaxed), 'e'),
        (client.no_touch.load(Ordering::Relaxed), 'T'),
    ];
    let flags: String = shown.iter().filter(|(is, _)| *is).map(|(_, flag)| *flag).collect();
    if flags.is_empty() { "N".to_owned() } else { flags }
}

/// The types of connections that options name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientType {
    Normal,
    /// It listens to channels.
    PubSub,
    /// Replication, which no connection is used for.
    Other,
}

impl ClientType {
    fn of(client: &Client) -> ClientType {
        if client.is_subscriber() { ClientType::PubSub } else { ClientType::Normal }
    }

    fn parse(word: &[u8]) -> Result<ClientType, CommandError> {
        let is = |name: &&str| word.eq_ignore_ascii_case(name.as_bytes());
        if is(&"normal") {
            return Ok(ClientType::Normal);
        }
        if is(&"pubsub") {
            return Ok(ClientType::PubSub);
        }
        if ["master", "replica", "slave"].iter().any(is) {
            return Ok(ClientType::Other);
        }
        Err(CommandError::owned(format!("ERR Unknown client type '{}'", quoted(word))))
    }
}

/// Which connections CLIENT LIST shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Show {
    All,
    OfType(ClientType),
    /// Those with these numbers, sorted.
    WithIds(Vec<u64>),
}

impl Show {
    /// Parses the arguments of CLIENT LIST.
    pub(super) fn parse(args: Args<'_>) -> Result<Show, CommandError> {
        let Some(option) = args.get(2) else { return Ok(Show::All) };
        if option.eq_ignore_ascii_case(b"TYPE") && args.len() == 4 {
            return Ok(Show::OfType(ClientType::parse(&args[3])?));
        }
        if !option.eq_ignore_ascii_case(b"ID") || args.len() < 4 {
            return Err(CommandError::SYNTAX);
        }
        let ids = args.from(3).iter().map(|id| value::parse_i64(id).map(i64::cast_unsigned));
        let ids: Option<Vec<u64>> = ids.collect();
        let mut ids = ids.ok_or(command::fixed("ERR Invalid client ID"))?;
        ids.sort_unstable();
        Ok(Show::WithIds(ids))
    }

    /// Whether a connection is to be shown. One that was told to go is gone for everyone.
    pub(super) fn wants(&self, client: &Client) -> bool {
        !client.is_killed()
            && match self {
                Show::All => true,
                Show::OfType(kind) => *kind == ClientType::of(client),
                Show::WithIds(ids) => ids.binary_search(&client.id).is_ok(),
            }
    }
}

/// Which connections CLIENT KILL closes: those that everything given applies to.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    /// `CLIENT KILL address`, which answers otherwise.
    pub(super) is_old_form: bool,
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    kind: Option<ClientType>,
    age_s_min: u64,
    skips_self: bool,
}

impl<'a> Filter<'a> {
    /// Parses the arguments of CLIENT KILL.
    pub(super) fn parse(args: Args<'a>) -> Result<Filter<'a>, CommandError> {
        let mut filter = Filter {
            is_old_form: args.len() == 3,
            id: None,
            address: None,
            local_address: None,
            kind: None,
            age_s_min: 0,
            skips_self: true,
        };
        if filter.is_old_form {
            filter.address = args.get(2);
            filter.skips_self = false;
            return Ok(filter);
        }
        let mut words = args.from(2).iter();
        while let Some(option) = words.next() {
            filter.set(option, words.next().ok_or(CommandError::SYNTAX)?)?;
        }
        Ok(filter)
    }

    fn set(&mut self, option: &[u8], value: &'a [u8]) -> Result<(), CommandError> {
        match option.to_ascii_uppercase().as_slice() {
            b"ID" => {
                let refused = command::fixed("ERR client-id should be greater than 0");
                self.id = Some(parse_positive(value, refused)?);
            }
            b"MAXAGE" => {
                if value::parse_i64(value).is_none() {
                    return Err(command::fixed("ERR maxage is not an integer or out of range"));
                }
                let refused = command::fixed("ERR maxage should be greater than 0");
                self.age_s_min = parse_positive(value, refused)?;
            }
            b"TYPE" => self.kind = Some(ClientType::parse(value)?),
            b"ADDR" => self.address = Some(value),
            b"LADDR" => self.local_address = Some(value),
            // Every connection is of the one user there is.
            b"USER" if value == b"default" => {}
            b"USER" => {
                let text = format!("ERR No such user '{}'", quoted(value));
                return Err(CommandError::owned(text));
            }
            b"SKIPME" if value.eq_ignore_ascii_case(b"YES") => self.skips_self = true,
            b"SKIPME" if value.eq_ignore_ascii_case(b"NO") => self.skips_self = false,
            _ => return Err(CommandError::SYNTAX),
        }
        Ok(())
    }

    /// Whether a connection is to go; `own` is the one that asks.
    pub(super) fn matches(&self, client: &Client, own: u64, now_ms: u64) -> bool {
        let age_s = now_ms.saturating_sub(client.created_ms) / 1000;
        let is = |wanted: Option<&[u8]>, address: &str| {
            wanted.is_none_or(|wanted| wanted == address.as_bytes())
        };
        !client.is_killed()
            && is(self.address, &client.address)
            && is(self.local_address, &client.local_address)
            && self.kind.is_none_or(|kind| kind == ClientType::of(client))
            && self.id.is_none_or(|id| id == client.id)
            && !(self.skips_self && client.id == own)
            && age_s >= self.age_s_min
    }
}

fn parse_positive(word: &[u8], refused: CommandError) -> Result<u64, CommandError> {
    let number = value::parse_i64(word).and_then(|number| u64::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::REGISTRY;

    fn parse<T>(line: &str, parse: impl Fn(Args<'_>) -> T) -> T {
        let mut buffer = line.as_bytes().to_vec();
        let mut ranges = Vec::new();
        resp::split_words(&mut buffer, &mut ranges).expect("balanced quotes");
        parse(Args::new(&buffer, &ranges))
    }

    fn client() -> Client {
        Client {
            id: 7,
            address: "10.0.0.1:5000".into(),
            local_address: "10.0.0.2:6379".into(),
            fd: 9,
            created_ms: 1_000_000,
            ..Client::default()
        }
    }

    #[test]
    fn a_line_has_redis_fields_in_redis_order() {
        let client = client();
        client.queued.store(-1, Ordering::Relaxed);
        client.protocol.store(3, Ordering::Relaxed);
        client.last_seen_ms.store(1_004_000, Ordering::Relaxed);
        client.labels.lock().name = "me".into();
        client.labels.lock().library_name = "lib".into();
        let line = Line { registry: &REGISTRY, client: &client, now_ms: 1_009_999 };
        assert_eq!(
            line.to_string(),
            "id=7 addr=10.0.0.1:5000 laddr=10.0.0.2:6379 fd=9 name=me age=9 idle=5 flags=N db=0 \
             sub=0 psub=0 ssub=0 multi=-1 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 \
             obl=0 oll=0 omem=0 tot-mem=2560 events=r cmd=NULL user=default redir=-1 resp=3 \
             lib-name=lib lib-ver="
        );
    }

    #[test]
    fn flags_stand_in_redis_order() {
        let client = Client { is_unix_socket: true, ..client() };
        client.subscriptions[1].store(1, Ordering::Relaxed);
        assert!(client.is_subscriber());
        client.is_monitor.store(true, Ordering::Relaxed);
        client.no_touch.store(true, Ordering::Relaxed);
        client.no_evict.store(true, Ordering::Relaxed);
        assert_eq!(flags(&client), "OPxUeT");
    }

    #[test]
    fn kill_closes_what_all_options_apply_to() {
        let client = client();
        let cases: [(&str, bool); 14] = [
            ("CLIENT KILL 10.0.0.1:5000", true),
            ("CLIENT KILL 10.0.0.1:5001", false),
            ("CLIENT KILL ID 7", false),
            ("CLIENT KILL ID 7 SKIPME no", true),
            ("CLIENT KILL ID 8 SKIPME no", false),
            ("CLIENT KILL TYPE normal SKIPME no", true),
            ("CLIENT KILL TYPE PubSub SKIPME no", false),
            ("CLIENT KILL USER default SKIPME no", true),
            ("CLIENT KILL ADDR 10.0.0.1:5000 SKIPME no", true),
            ("CLIENT KILL LADDR 10.0.0.1:5000 SKIPME no", false),
            ("CLIENT KILL LADDR 10.0.0.2:6379 ID 7 SKIPME no", true),
            ("CLIENT KILL LADDR 10.0.0.2:6379 ID 9 SKIPME no", false),
            ("CLIENT KILL MAXAGE 9 SKIPME no", true),
            ("CLIENT KILL MAXAGE 10 SKIPME no", false),
        ];
        for (line, expected) in cases {
            let matches = parse(line, |args| {
                Filter::parse(args).expect("valid options").matches(&client, 7, 1_009_999)
            });
            assert_eq!(matches, expected, "{line}");
        }
    }
}
