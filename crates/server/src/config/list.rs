//! The kinds of values that are several words or a set of flags, with Redis's syntax and error
//! texts.

use command::Classes;
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

/// A list of paths, which may have blanks in them.
pub struct Paths(Words);

impl Paths {
    pub(super) fn checked(check: fn(&[Vec<u8>]) -> Result<(), String>) -> Self {
        Self(Words { check })
    }
}

impl Kind for Paths {
    type Value = Vec<Vec<u8>>;
    const MANY_WORDS: bool = true;
    const QUOTED_WORDS: bool = true;

    fn parse(&self, words: &[Vec<u8>], now: Option<&Self::Value>) -> Result<Self::Value, String> {
        self.0.parse(words, now)
    }

    /// So that CONFIG SET reads it back: where there are blanks, with quotes around what it would take for several
    /// words.
    fn print(&self, value: &Self::Value) -> Vec<u8> {
        match &value[..] {
            [path] if !path.contains(&b' ') => path.clone(),
            paths => paths.iter().map(|path| quote_if_needed(path)).collect::<Vec<_>>().join(&b' '),
        }
    }

    fn print_lines(&self, value: &Self::Value) -> Vec<Vec<u8>> {
        self.0.print_lines(value)
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

/// The letters of classes, in the order in which they are printed. Those of `A` come first.
const CLASS_LETTERS: [(u8, Classes); 14] = [
    (b'g', Classes::GENERIC),
    (b'$', Classes::STRING),
    (b'l', Classes::LIST),
    (b's', Classes::SET),
    (b'h', Classes::HASH),
    (b'z', Classes::ZSET),
    (b'x', Classes::EXPIRED),
    (b'e', Classes::EVICTED),
    (b't', Classes::STREAM),
    (b'd', Classes::MODULE),
    (b'n', Classes::NEW),
    (b'K', Classes::BY_KEY),
    (b'E', Classes::BY_EVENT),
    (b'm', Classes::KEY_MISS),
];

/// The letters of the classes that are in `classes`.
fn letters_of(classes: Classes) -> impl Iterator<Item = u8> {
    let in_it = CLASS_LETTERS.iter().filter(move |(_, class)| classes.has(*class));
    in_it.map(|(letter, _)| *letter)
}

impl Kind for KeyspaceEvents {
    type Value = Classes;

    fn parse(&self, words: &[Vec<u8>], _: Option<&Classes>) -> Result<Classes, String> {
        let mut classes = Classes::NONE;
        for letter in &words[0] {
            let found = CLASS_LETTERS.iter().find(|(known, _)| known == letter);
            classes = classes.and(match (letter, found) {
                (b'A', _) => Classes::ALL,
                (_, Some((_, class))) => *class,
                (_, None) => {
                    return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned());
                }
            });
        }
        Ok(classes)
    }

    fn print(&self, value: &Classes) -> Vec<u8> {
        if Classes::ALL.without(*value) != Classes::NONE {
            return letters_of(*value).collect();
        }
        // Redis 7.0 forgets about `n` beside `A`.
        let rest = value.without(Classes::ALL.and(Classes::NEW));
        std::iter::once(b'A').chain(letters_of(rest)).collect()
    }

    fn print_lines(&self, value: &Classes) -> Vec<Vec<u8>> {
        // Unlike Redis, nothing is forgotten in the file.
        vec![quote(&letters_of(*value).collect::<Vec<_>>())]
    }
}

impl Packed for Classes {
    fn pack(self) -> u64 {
        u64::from(self.0)
    }

    fn unpack(bits: u64) -> Self {
        Classes(bits as u32)
    }
}
