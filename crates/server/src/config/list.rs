//! The kinds of values that are several words or a set of flags, with Redis's syntax and error
//! texts.

use value::number::{parse_f64, parse_u64};

use super::cell::{Kind, Packed};
use super::kind::parse_memory;
use super::quote::{quote, quote_if_needed};

/// A list of words.
pub struct Words {
    check: fn(&[Vec<u8>]) -> Result<(), String>,
}

impl Words {
    pub(super) fn checked(check: fn(&[Vec<u8>]) -> Result<(), String>) -> Self {
        Self { check }
    }
}

impl Kind for Words {
    type Value = Vec<Vec<u8>>;
    const MANY_WORDS: bool = true;

    fn parse(&self, words: &[Vec<u8>], _: Option<&Self::Value>) -> Result<Self::Value, String> {
        let words: Vec<_> = words.iter().filter(|word| !word.is_empty()).cloned().collect();
        (self.check)(&words)?;
        Ok(words)
    }

    fn print(&self, value: &Self::Value) -> Vec<u8> {
        value.join(&b' ')
    }

    fn print_lines(&self, value: &Self::Value) -> Vec<Vec<u8>> {
        if value.is_empty() {
            return vec![quote(b"")];
        }
        vec![value.iter().map(|word| quote_if_needed(word)).collect::<Vec<_>>().join(&b' ')]
    }
}

/// Percentiles that INFO shows of command latencies.
#[derive(Debug)]
pub struct Percentiles;

/// How many percentiles one may ask for.
const PERCENTILES_MAX: usize = 64;

impl Kind for Percentiles {
    type Value = Vec<f64>;
    const MANY_WORDS: bool = true;

    fn parse(&self, words: &[Vec<u8>], _: Option<&Vec<f64>>) -> Result<Vec<f64>, String> {
        let invalid = || "Invalid latency-tracking-info-percentiles parameters".to_owned();
        if words.len() > PERCENTILES_MAX {
            return Err(invalid());
        }
        let percentile = |word: &Vec<u8>| match parse_f64(word) {
            Some(percentile) if (0.0..=100.0).contains(&percentile) => Ok(percentile),
            Some(_) => Err("latency-tracking-info-percentiles parameters should sit between \
                            [0.0,100.0]"
                .to_owned()),
            None => Err(invalid()),
        };
        words.iter().map(percentile).collect()
    }

    fn print(&self, value: &Vec<f64>) -> Vec<u8> {
        let print_one = |percentile: &f64| {
            let number = format!("{percentile:.6}");
            number.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        value.iter().map(print_one).collect::<Vec<_>>().join(" ").into_bytes()
    }

    fn print_lines(&self, value: &Vec<f64>) -> Vec<Vec<u8>> {
        if value.is_empty() { vec![quote(b"")] } else { vec![self.print(value)] }
    }
}

/// How much a client may leave unread before it is closed: `class hard soft seconds`, any number
/// of times. Classes that are not named keep theirs.
#[derive(Debug)]
pub struct OutputLimits;

/// A class of clients in `client-output-buffer-limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Everyone else.
    Normal,
    /// Replicas.
    Replica,
    /// Subscribers.
    Pubsub,
}

/// The classes with the name that is printed first, as Redis 7.0 prints it.
const CLASSES: [(ClientClass, &[&str]); 3] = [
    (ClientClass::Normal, &["normal"]),
    (ClientClass::Replica, &["slave", "replica"]),
    (ClientClass::Pubsub, &["pubsub"]),
];

/// What one class of clients may leave unread. Zero means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes at which a client is closed at once.
    pub hard_bytes: u64,
    /// Bytes at which a client is closed when it stays above them.
    pub soft_bytes: u64,
    /// How long it may stay above them.
    pub soft_seconds: u64,
}

/// The limits of all classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimitTable([OutputLimit; CLASSES.len()]);

impl OutputLimitTable {
    /// The limit of a class.
    pub fn of(&self, class: ClientClass) -> OutputLimit {
        self.0[class as usize]
    }
}

impl Kind for OutputLimits {
    type Value = OutputLimitTable;
    const MANY_WORDS: bool = true;

    fn parse(
        &self,
        words: &[Vec<u8>],
        current: Option<&OutputLimitTable>,
    ) -> Result<OutputLimitTable, String> {
        if !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
        }
        let mut limits = current.copied().unwrap_or_default();
        for entry in words.chunks_exact(4) {
            let class = class_named(&entry[0]).ok_or(
                "Invalid client class specified in buffer limit configuration.".to_owned(),
            )?;
            limits.0[class as usize] = parse_limit(&entry[1..]).ok_or(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                    .to_owned(),
            )?;
        }
        Ok(limits)
    }

    fn print(&self, value: &OutputLimitTable) -> Vec<u8> {
        self.print_lines(value).join(&b' ')
    }

    fn print_lines(&self, value: &OutputLimitTable) -> Vec<Vec<u8>> {
        let line = |(class, names): &(ClientClass, &[&str])| {
            let limit = value.of(*class);
            let OutputLimit { hard_bytes, soft_bytes, soft_seconds } = limit;
            format!("{} {hard_bytes} {soft_bytes} {soft_seconds}", names[0]).into_bytes()
        };
        CLASSES.iter().map(line).collect()
    }
}

fn class_named(text: &[u8]) -> Option<ClientClass> {
    let is_named =
        |names: &[&str]| names.iter().any(|name| text.eq_ignore_ascii_case(name.as_bytes()));
    CLASSES.iter().find(|(_, names)| is_named(names)).map(|(class, _)| *class)
}

fn parse_limit(words: &[Vec<u8>]) -> Option<OutputLimit> {
    Some(OutputLimit {
        hard_bytes: parse_memory(&words[0])?,
        soft_bytes: parse_memory(&words[1])?,
        soft_seconds: parse_u64(&words[2])?,
    })
}

/// The events that `notify-keyspace-events` asks for.
#[derive(Debug)]
pub struct KeyspaceEvents;

/// A set of keyspace events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSet(u16);

/// The letters of events, in the order in which they are printed. Those of `A` come first.
const EVENT_LETTERS: &[u8; 14] = b"g$lshzxetdnKEm";

/// How many of the letters `A` stands for.
const EVENTS_OF_A: u32 = 10;

impl EventSet {
    /// Everything that `A` stands for.
    pub const ALL: Self = Self((1 << EVENTS_OF_A) - 1);

    /// The events of a letter. Panics: if there is no such letter.
    pub const fn letter(letter: u8) -> Self {
        let mut index = 0;
        while EVENT_LETTERS[index] != letter {
            index += 1;
        }
        Self(1 << index)
    }

    /// Whether any event of `other` is in the set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all events of `other` are in the set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is asked for.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Kind for KeyspaceEvents {
    type Value = EventSet;

    fn parse(&self, words: &[Vec<u8>], _: Option<&EventSet>) -> Result<EventSet, String> {
        let mut events = EventSet::default();
        for letter in &words[0] {
            events.0 |= match letter {
                b'A' => EventSet::ALL.0,
                letter if EVENT_LETTERS.contains(letter) => EventSet::letter(*letter).0,
                _ => {
                    return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned());
                }
            };
        }
        Ok(events)
    }

    fn print(&self, value: &EventSet) -> Vec<u8> {
        let has = |letter: &&u8| value.contains(EventSet::letter(**letter));
        if !value.contains(EventSet::ALL) {
            return EVENT_LETTERS.iter().filter(has).copied().collect();
        }
        // Redis 7.0 forgets about `n` beside `A`.
        let rest = EVENT_LETTERS[EVENTS_OF_A as usize..].iter().filter(|letter| **letter != b'n');
        std::iter::once(b'A').chain(rest.filter(has).copied()).collect()
    }

    fn print_lines(&self, value: &EventSet) -> Vec<Vec<u8>> {
        // Unlike Redis, nothing is forgotten in the file.
        let has = |letter: &&u8| value.contains(EventSet::letter(**letter));
        vec![quote(&EVENT_LETTERS.iter().filter(has).copied().collect::<Vec<_>>())]
    }
}

impl Packed for EventSet {
    fn pack(self) -> u64 {
        u64::from(self.0)
    }

    fn unpack(bits: u64) -> Self {
        Self(bits as u16)
    }
}
