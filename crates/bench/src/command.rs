//! Commands, put together from prepared pieces: only digits of keys, values and a few numbers differ
//! from one request to the next.

use crate::LoadError;
use crate::arguments::{Pattern, Range};
use crate::buffer::{Text, Writer, digit_count};
use crate::keys::KeyPicker;
use crate::options::CommandOption;
use crate::values::{Sizes, Values};
use stdx::Random;

/// Digits of the largest key number.
const DIGITS_MAX: usize = 20;
/// What stands for a key in a command.
const KEY: &str = "__key__";
/// What stands for a value in a command.
const DATA: &str = "__data__";

/// What a command is to the one who counts its replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It reads a value, or several: they are hits or misses, and can be verified.
    Read,
    /// Only errors matter.
    Other,
}

/// What is known of a load's keys and values when its commands are prepared.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    /// Text before the number in a key.
    pub key_prefix: &'a str,
    /// Sizes of values.
    pub sizes: &'a Sizes,
}

/// What the changing parts of a request are made of.
pub struct Source<'a> {
    /// Chooses the keys after the first.
    pub keys: &'a mut KeyPicker,
    /// Makes the values.
    pub values: &'a Values,
    /// Version of the values.
    pub version: u32,
    /// For numbers.
    pub random: &'a mut Random,
}

/// A kind of request.
#[derive(Debug, Clone)]
pub struct Command {
    /// Row of the result that it is counted in.
    pub row: usize,
    /// What its replies are.
    pub role: Role,
    /// How often it is sent in a row.
    pub ratio: u32,
    /// How its keys are chosen.
    pub pattern: Pattern,
    /// Most keys that it reads at once, for MGET; else none.
    pub keys_max: Option<u32>,
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    /// The same each time.
    Fixed(Text),
    /// A key: by its number of digits all that stands before the digits, and what stands after,
    /// also of the words that follow; what belongs to the key itself stands apart for its slot.
    Key { heads: Vec<Text>, tail: Text, prefix: Vec<u8>, suffix: Vec<u8> },
    /// A value between two texts. If its size is to be written, `around` is what the word has
    /// besides the value.
    Value { head: Text, around: Option<usize>, prefix: Text, tail: Text },
    /// A number from a range.
    Number { head: Text, range: Range },
}

impl Command {
    /// SET, or SETEX with so many seconds.
    pub fn set(shape: Shape<'_>, expiry: Option<Range>) -> Self {
        let mut builder = Builder::new(shape);
        match expiry {
            None => builder.words(&["SET", KEY, DATA]),
            Some(range) => {
                builder.begin(4);
                builder.word("SETEX");
                builder.word(KEY);
                builder.number(range);
                builder.word(DATA);
            }
        }
        builder.finish(0, Role::Other)
    }

    /// GET.
    pub fn get(shape: Shape<'_>) -> Self {
        let mut builder = Builder::new(shape);
        builder.words(&["GET", KEY]);
        builder.finish(1, Role::Read)
    }

    /// MGET of up to so many keys.
    pub fn multi_get(shape: Shape<'_>, keys_max: u32) -> Self {
        let mut builder = Builder::new(shape);
        builder.word(KEY);
        Self { keys_max: Some(keys_max), ..builder.finish(1, Role::Read) }
    }

    /// WAIT for so many replicas and milliseconds.
    pub fn wait(replicas: Range, timeout_ms: Range) -> Self {
        let sizes = Sizes::Range(Range::only(0));
        let mut builder = Builder::new(Shape { key_prefix: "", sizes: &sizes });
        builder.begin(3);
        builder.word("WAIT");
        builder.number(replicas);
        builder.number(timeout_ms);
        builder.finish(2, Role::Other)
    }

    /// Any command. Errors: when its text is none.
    pub fn other(shape: Shape<'_>, option: &CommandOption, row: usize) -> Result<Self, LoadError> {
        let words = words_of(&option.text)?;
        let mut builder = Builder::new(shape);
        builder.words(&words.iter().map(String::as_str).collect::<Vec<&str>>());
        Ok(builder.finish(row, Role::Other).taking_turns(option.ratio, option.pattern))
    }

    /// The same, sent so often in a row with keys chosen so.
    pub fn taking_turns(self, ratio: u32, pattern: Pattern) -> Self {
        Self { ratio, pattern, ..self }
    }

    /// How many keys a request has, at most.
    pub fn key_count(&self) -> usize {
        let written = self.parts.iter().filter(|part| matches!(part, Part::Key { .. })).count();
        written.max(self.keys_max.unwrap_or(0) as usize)
    }

    /// The slot of the first key of a request for `key`; none when it has no key. `text` is room
    /// to put the key together.
    pub fn slot(&self, key: u64, text: &mut Vec<u8>) -> Option<u16> {
        let (prefix, suffix) = self.parts.iter().find_map(|part| match part {
            Part::Key { prefix, suffix, .. } => Some((prefix, suffix)),
            _ => None,
        })?;
        text.clear();
        text.extend_from_slice(prefix);
        text.extend_from_slice(itoa::Buffer::new().format(key).as_bytes());
        text.extend_from_slice(suffix);
        Some(stdx::key_slot(text))
    }

    /// Writes a request for `key`, and for MGET so many keys; returns how many bytes of values are
    /// in it.
    #[inline(always)]
    pub fn write(
        &self,
        key: u64,
        keys: u32,
        source: &mut Source<'_>,
        output: &mut Writer<'_>,
    ) -> u64 {
        if self.keys_max.is_some() {
            self.write_multi_get(key, keys, source, output);
            return 0;
        }
        let (mut key, mut fresh, mut value_bytes) = (key, true, 0);
        for part in &self.parts {
            match part {
                Part::Fixed(text) => output.text(text),
                Part::Key { heads, tail, .. } => {
                    if !fresh {
                        key = source.keys.pick();
                    }
                    fresh = false;
                    write_key(heads, tail, key, output);
                }
                Part::Value { head, around, prefix, tail } => {
                    let value = source.values.of(key, source.version);
                    if let Some(around) = around {
                        output.text(head);
                        write_size(around + value.size(), output);
                        output.text(prefix);
                    }
                    source.values.write(value, output);
                    output.text(tail);
                    value_bytes += value.size() as u64;
                }
                Part::Number { head, range } => {
                    let number = source.random.between(range.min as u64, range.max as u64);
                    output.text(head);
                    write_size(digit_count(number), output);
                    output.number(number, digit_count(number));
                    output.bytes(b"\r\n");
                }
            }
        }
        value_bytes
    }

    #[inline(never)]
    fn write_multi_get(
        &self,
        mut key: u64,
        keys: u32,
        source: &mut Source<'_>,
        output: &mut Writer<'_>,
    ) {
        let [Part::Key { heads, tail, .. }] = &self.parts[..] else {
            unreachable!("MGET is prepared as a key alone");
        };
        output.bytes(b"*");
        write_size(keys as usize + 1, output);
        output.bytes(b"$4\r\nMGET\r\n");
        for index in 0..keys {
            if index > 0 {
                key = source.keys.pick();
            }
            write_key(heads, tail, key, output);
        }
    }
}

/// The words of a command as they were given.
///
/// Errors: when there are none, or quotes are not closed.
pub fn words_of(text: &str) -> Result<Vec<String>, LoadError> {
    let refuse = |why: &str| LoadError::Options(format!("--command '{text}': {why}"));
    let (mut line, mut ranges) = (text.as_bytes().to_vec(), Vec::new());
    resp::split_words(&mut line, &mut ranges).map_err(|_| refuse("unbalanced quotes"))?;
    if ranges.is_empty() {
        return Err(refuse("there is no command"));
    }
    let word = |range: &resp::ArgRange| &line[range.start as usize..][..range.len as usize];
    let words: Vec<String> =
        ranges.iter().map(|range| String::from_utf8_lossy(word(range)).into_owned()).collect();
    let places = |word: &String| word.matches(KEY).count() + word.matches(DATA).count();
    if words.iter().any(|word| places(word) > 1) {
        return Err(refuse("a word has room for one key or one value"));
    }
    Ok(words)
}

/// Puts a command together: fixed text is gathered and goes with the next part that changes.
struct Builder<'a> {
    shape: Shape<'a>,
    fixed: Text,
    parts: Vec<Part>,
}

impl<'a> Builder<'a> {
    fn new(shape: Shape<'a>) -> Self {
        Self { shape, fixed: Text::default(), parts: Vec::new() }
    }

    /// Fixed text: it ends the part before it, or begins the next.
    fn text(&mut self, text: &str) {
        let fixed = match self.parts.last_mut() {
            Some(Part::Key { tail, .. } | Part::Value { tail, .. }) => tail,
            _ => &mut self.fixed,
        };
        fixed.extend(text.as_bytes());
    }

    fn begin(&mut self, words: usize) {
        self.text(&format!("*{words}\r\n"));
    }

    fn words(&mut self, words: &[&str]) {
        self.begin(words.len());
        for word in words {
            self.word(word);
        }
    }

    fn word(&mut self, word: &str) {
        if let Some((prefix, suffix)) = word.split_once(KEY) {
            self.key(prefix, suffix);
        } else if let Some((prefix, suffix)) = word.split_once(DATA) {
            self.value(prefix, suffix);
        } else {
            self.text(&format!("${}\r\n{word}\r\n", word.len()));
        }
    }

    fn key(&mut self, prefix: &str, suffix: &str) {
        let fixed = std::mem::take(&mut self.fixed);
        let prefix = format!("{prefix}{}", self.shape.key_prefix);
        let head = |digits| {
            let size = prefix.len() + digits + suffix.len();
            let mut head = fixed.clone();
            head.extend(format!("${size}\r\n{prefix}").as_bytes());
            head
        };
        self.parts.push(Part::Key {
            heads: (0..=DIGITS_MAX).map(head).collect(),
            tail: Text::from(format!("{suffix}\r\n").as_bytes()),
            prefix: prefix.into_bytes(),
            suffix: suffix.as_bytes().to_vec(),
        });
    }

    fn value(&mut self, prefix: &str, suffix: &str) {
        let around = prefix.len() + suffix.len();
        let tail = Text::from(format!("{suffix}\r\n").as_bytes());
        let part = match self.shape.sizes.fixed() {
            // All that stands before the value is known: it goes with the part before.
            Some(size) => {
                self.text(&format!("${}\r\n{prefix}", around + size));
                if !self.fixed.is_empty() {
                    self.parts.push(Part::Fixed(std::mem::take(&mut self.fixed)));
                }
                Part::Value { head: Text::default(), around: None, prefix: Text::default(), tail }
            }
            None => {
                let mut head = std::mem::take(&mut self.fixed);
                head.extend(b"$");
                let prefix = Text::from(prefix.as_bytes());
                Part::Value { head, around: Some(around), prefix, tail }
            }
        };
        self.parts.push(part);
    }

    fn number(&mut self, range: Range) {
        let mut head = std::mem::take(&mut self.fixed);
        head.extend(b"$");
        self.parts.push(Part::Number { head, range });
    }

    fn finish(mut self, row: usize, role: Role) -> Command {
        if !self.fixed.is_empty() {
            self.parts.push(Part::Fixed(self.fixed));
        }
        let (ratio, pattern) = (1, Pattern::Random);
        Command { row, role, ratio, pattern, keys_max: None, parts: self.parts }
    }
}

#[inline(always)]
fn write_key(heads: &[Text], tail: &Text, key: u64, output: &mut Writer<'_>) {
    let digits = digit_count(key);
    output.text(&heads[digits]);
    output.number(key, digits);
    output.text(tail);
}

/// A size, or a count, and the end of its line.
#[inline(never)]
fn write_size(size: usize, output: &mut Writer<'_>) {
    output.number(size as u64, digit_count(size as u64));
    output.bytes(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::keys::{KeyRange, KeyShape};

    /// What `command` sends for key 7 and, if it wants more, 10, 11, 12.
    fn request(command: &Command, keys: u32, sizes: &Sizes) -> String {
        let range = KeyRange::new(10, 20).expect("a range");
        let shape = KeyShape { median: 15.0, stddev: 1.0, zipf_exponent: 1.0, scatter: false };
        let mut picker = KeyPicker::new(Pattern::Sequential, range, &shape, 1);
        let mut source = Source {
            keys: &mut picker,
            values: &Values::new(sizes.clone(), 1.0),
            version: 0,
            random: &mut Random::new(1),
        };
        let mut output = Buffer::default();
        output.append(|output| command.write(7, keys, &mut source, output));
        // Values are one repeated byte here: show them as a dot.
        let text: String = output
            .as_slice()
            .iter()
            .map(|byte| {
                if byte.is_ascii_graphic() || b"\r\n".contains(byte) { *byte as char } else { '.' }
            })
            .collect();
        text.replace("\r\n", " ")
    }

    #[test]
    fn requests_are_put_together() {
        let fixed = Sizes::Range(Range::only(0));
        let listed = Sizes::List("0:1,0:2".parse().expect("a list"));
        let ranged = Sizes::Range(Range { min: 0, max: 0 });
        let shape = Shape { key_prefix: "k", sizes: &fixed };
        let other = |text: &str| {
            let option =
                CommandOption { text: text.to_owned(), ratio: 1, pattern: Pattern::Random };
            Command::other(shape, &option, 0).expect("a command")
        };
        let cases = [
            (Command::set(shape, None), 1, "*3 $3 SET $2 k7 $0  "),
            (Command::set(shape, Some(Range::only(60))), 1, "*4 $5 SETEX $2 k7 $2 60 $0  "),
            (Command::get(shape), 1, "*2 $3 GET $2 k7 "),
            (Command::multi_get(shape, 5), 3, "*4 $4 MGET $2 k7 $3 k10 $3 k11 "),
            (Command::wait(Range::only(2), Range::only(100)), 1, "*3 $4 WAIT $1 2 $3 100 "),
            (other("HSET h:__key__:x f 'a b'"), 1, "*4 $4 HSET $6 h:k7:x $1 f $3 a.b "),
            (other("MSET __key__ <__data__> __key__ 1"), 1, "*5 $4 MSET $2 k7 $2 <> $3 k10 $1 1 "),
            (other("PING"), 1, "*1 $4 PING "),
        ];
        for (command, keys, expected) in cases {
            for sizes in [&fixed, &listed, &ranged] {
                assert_eq!(request(&command, keys, sizes), expected);
            }
        }
    }

    #[test]
    fn the_slot_is_that_of_the_whole_key() {
        let sizes = Sizes::Range(Range::only(0));
        let shape = Shape { key_prefix: "k", sizes: &sizes };
        let option = |text: &str| CommandOption {
            text: text.to_owned(),
            ratio: 1,
            pattern: Pattern::Random,
        };
        let slot = |text: &str| {
            Command::other(shape, &option(text), 0).expect("a command").slot(7, &mut Vec::new())
        };
        assert_eq!(slot("GET __key__"), Some(stdx::key_slot(b"k7")));
        assert_eq!(slot("HGET a:{__key__}:b c"), Some(stdx::key_slot(b"k7")));
        assert_eq!(slot("GET {x}__key__"), Some(stdx::key_slot(b"x")));
        assert_eq!(slot("PING"), None);
    }

    #[test]
    fn a_value_of_changing_size_has_its_size_before_it() {
        let sizes = Sizes::Range(Range { min: 3, max: 4 });
        let shape = Shape { key_prefix: "k", sizes: &sizes };
        let option = CommandOption {
            text: "ECHO a__data__b".to_owned(),
            ratio: 1,
            pattern: Pattern::Random,
        };
        let command = Command::other(shape, &option, 0).expect("a command");
        let text = request(&command, 1, &sizes);
        let size = Values::new(sizes, 1.0).of(7, 0).size();
        assert!(text.starts_with(&format!("*2 $4 ECHO ${} a", size + 2)), "{text}");
    }

    #[test]
    fn texts_that_are_no_command_are_refused() {
        for text in ["", "  ", "SET 'a", "SET __key____key__ 1", "SET __key____data__"] {
            assert!(words_of(text).is_err(), "{text}");
        }
    }
}
