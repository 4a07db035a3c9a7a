//! From the arguments of a command as the manual writes them (`key [NX | XX] [EX seconds]`) to the
//! tree that COMMAND DOCS answers.
//!
//! Words in upper case are tokens, all others are values; `[...]` may be left out, `<...>` groups,
//! `|` separates alternatives, and `key [key ...]` repeats what stands before it. A token takes the
//! values behind it with it.

use std::iter::Peekable;
use std::str::Chars;

/// One argument, with those inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) kind: ArgumentKind,
    pub(super) token: Option<String>,
    pub(super) optional: bool,
    pub(super) multiple: bool,
    /// The token is repeated with every value.
    pub(super) multiple_token: bool,
    pub(super) inner: Vec<Argument>,
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentKind {
    /// A value: its name says of which type.
    Value,
    /// A token without a value.
    PureToken,
    /// One of the arguments inside.
    OneOf,
    /// All of the arguments inside.
    Block,
}

/// Why a text is not understood: what stands where it should not.
pub(super) type SyntaxError = &'static str;

/// The arguments that `text` describes.
pub(super) fn parse_syntax(text: &str) -> Result<Vec<Argument>, SyntaxError> {
    let mut parser = Parser { chars: text.chars().peekable() };
    let alternatives = parser.alternatives()?;
    match parser.chars.next() {
        None => lower_alternatives(&alternatives),
        Some(_) => Err("a bracket is closed that was not opened"),
    }
}

/// The text as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Word(String),
    Optional(Vec<Sequence>),
    Group(Vec<Sequence>),
    /// `...`
    More,
}

type Sequence = Vec<Item>;

struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
}

impl Parser<'_> {
    /// Sequences between `|`, up to a closing bracket or the end.
    fn alternatives(&mut self) -> Result<Vec<Sequence>, SyntaxError> {
        let mut alternatives = vec![Sequence::new()];
        while let Some(&next) = self.chars.peek() {
            let item = match next {
                ']' | '>' => break,
                ' ' => {
                    self.chars.next();
                    continue;
                }
                '|' => {
                    self.chars.next();
                    alternatives.push(Sequence::new());
                    continue;
                }
                '[' => Item::Optional(self.bracketed(']')?),
                '<' => Item::Group(self.bracketed('>')?),
                _ => self.word(),
            };
            alternatives.last_mut().expect("invariant: it starts with one").push(item);
        }
        Ok(alternatives)
    }

    fn bracketed(&mut self, end: char) -> Result<Vec<Sequence>, SyntaxError> {
        self.chars.next();
        let alternatives = self.alternatives()?;
        match self.chars.next() {
            Some(next) if next == end => Ok(alternatives),
            _ => Err("a bracket is not closed"),
        }
    }

    fn word(&mut self) -> Item {
        let mut word = String::new();
        while let Some(next) = self.chars.next_if(|next| !" |[]<>".contains(*next)) {
            word.push(next);
        }
        if word == "..." { Item::More } else { Item::Word(word) }
    }
}

/// The arguments of a bracket's inside: one of several alternatives, or those of the only one.
fn lower_alternatives(alternatives: &[Sequence]) -> Result<Vec<Argument>, SyntaxError> {
    if let [sequence] = alternatives {
        return lower_sequence(sequence);
    }
    let mut alternatives = alternatives.to_vec();
    let is_repeated = take_repetition(&mut alternatives);
    let mut inner = Vec::new();
    for sequence in &alternatives {
        inner.push(block(lower_sequence(sequence)?));
    }
    let mut one_of = parent(ArgumentKind::OneOf, inner);
    one_of.multiple = is_repeated;
    Ok(vec![one_of])
}

/// Takes `[A | B ...]` away from the end of `A | B [A | B ...]`. Whether it was there.
fn take_repetition(alternatives: &mut Vec<Sequence>) -> bool {
    let mut shorter = alternatives.clone();
    let Some(Item::Optional(mut repeated)) = shorter.last_mut().and_then(Vec::pop) else {
        return false;
    };
    let ends = repeated.last_mut().and_then(Vec::pop) == Some(Item::More);
    if ends && repeated == shorter {
        *alternatives = shorter;
        return true;
    }
    false
}

fn lower_sequence(items: &[Item]) -> Result<Vec<Argument>, SyntaxError> {
    let mut splits = (1..=items.len()).map(|end| (split_repetition(&items[..end]), end));
    let Some((Some((mut before, repeated)), end)) = splits.find(|(split, _)| split.is_some())
    else {
        return lower_items(items);
    };
    let mut last = block(lower_items(repeated)?);
    last.multiple = true;
    last.multiple_token = last.token.is_some();
    // The token of `ID client-id [client-id ...]` stands once before all of them.
    if let Some((Item::Word(word), rest)) = before.split_last()
        && is_token(word)
        && last.token.is_none()
    {
        last.token = Some(word.clone());
        before = rest;
    }
    let mut arguments = lower_items(before)?;
    arguments.push(last);
    arguments.extend(lower_sequence(&items[end..])?);
    Ok(arguments)
}

/// Splits `a b c [b c ...]` into `a` and `b c`.
fn split_repetition(items: &[Item]) -> Option<(&[Item], &[Item])> {
    let (Item::Optional(alternatives), before) = items.split_last()? else { return None };
    let [sequence] = alternatives.as_slice() else { return None };
    let (Item::More, repeated) = sequence.split_last()? else { return None };
    let before = before.strip_suffix(repeated)?;
    Some((before, repeated))
}

fn lower_items(items: &[Item]) -> Result<Vec<Argument>, SyntaxError> {
    let mut arguments = Vec::new();
    let mut items = items.iter().peekable();
    while let Some(item) = items.next() {
        let is_value = |item: &&&Item| {
            matches!(item, Item::Group(_)) || matches!(item, Item::Word(word) if !is_token(word))
        };
        arguments.push(match item {
            Item::Word(word) if is_token(word) => {
                let mut values = Vec::new();
                while let Some(value) = items.next_if(|item| is_value(&item)) {
                    values.push(lower_value(value)?);
                }
                with_token(word, values)
            }
            Item::Optional(alternatives) => {
                let mut argument = block(lower_alternatives(alternatives)?);
                argument.optional = true;
                argument
            }
            value => lower_value(value)?,
        });
    }
    Ok(arguments)
}

fn lower_value(item: &Item) -> Result<Argument, SyntaxError> {
    match item {
        Item::Word(word) => Ok(leaf(word, ArgumentKind::Value)),
        Item::Group(alternatives) => Ok(block(lower_alternatives(alternatives)?)),
        Item::Optional(_) | Item::More => Err("`...` repeats nothing"),
    }
}

fn with_token(word: &str, values: Vec<Argument>) -> Argument {
    let mut argument = match values.len() {
        0 => leaf(&word.to_ascii_lowercase(), ArgumentKind::PureToken),
        _ => block(values),
    };
    argument.token = Some(word.to_owned());
    argument
}

fn is_token(word: &str) -> bool {
    !word.contains(|letter: char| letter.is_ascii_lowercase())
}

fn leaf(name: &str, kind: ArgumentKind) -> Argument {
    Argument {
        name: name.to_owned(),
        kind,
        token: None,
        optional: false,
        multiple: false,
        multiple_token: false,
        inner: Vec::new(),
    }
}

/// Several arguments as one; one stays what it is.
fn block(mut arguments: Vec<Argument>) -> Argument {
    match arguments.len() {
        1 => arguments.remove(0),
        _ => parent(ArgumentKind::Block, arguments),
    }
}

fn parent(kind: ArgumentKind, inner: Vec<Argument>) -> Argument {
    /// A longer name says nothing.
    const NAME_BYTES_MAX: usize = 48;
    let names: Vec<&str> = inner.iter().map(|argument| argument.name.as_str()).collect();
    let mut name = names.join("_");
    if name.len() > NAME_BYTES_MAX {
        name = "option".to_owned();
    }
    Argument { inner, ..leaf(&name, kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An argument in short: `name` for values, `'TOKEN` for tokens, `?` optional, `+` multiple.
    fn show(arguments: &[Argument]) -> String {
        let one = |argument: &Argument| {
            let token = argument.token.as_ref().map(|token| format!("'{token}"));
            let body = match argument.kind {
                ArgumentKind::Value => argument.name.clone(),
                ArgumentKind::PureToken => String::new(),
                ArgumentKind::OneOf => format!("<{}>", show(&argument.inner)),
                ArgumentKind::Block => format!("({})", show(&argument.inner)),
            };
            let mut text = token.unwrap_or_default();
            if !text.is_empty() && !body.is_empty() {
                text.push('=');
            }
            text.push_str(&body);
            for (is, mark) in
                [(argument.optional, "?"), (argument.multiple, "+"), (argument.multiple_token, "'")]
            {
                text.push_str(if is { mark } else { "" });
            }
            text
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn reads_what_manuals_write() {
        let cases = [
            ("", ""),
            ("key", "key"),
            ("key value [NX | XX] [GET]", "key value <'NX 'XX>? 'GET?"),
            ("[EX seconds | PX ms | KEEPTTL]", "<'EX=seconds 'PX=ms 'KEEPTTL>?"),
            ("key [key ...]", "key+"),
            ("key value [key value ...]", "(key value)+"),
            ("to key [key ...]", "to key+"),
            ("[section [section ...]]", "section?+"),
            ("[ID number [number ...]]", "'ID=number?+"),
            ("key [GET type at [GET type at ...]]", "key 'GET=(type at)?+'"),
            ("[start [end [BYTE | BIT]]]", "(start (end <'BYTE 'BIT>?)?)?"),
            ("<AND | OR> to", "<'AND 'OR> to"),
            ("[p [AUTH user word] [SETNAME name]]", "(p 'AUTH=(user word)? 'SETNAME=name?)?"),
            (
                "key [GET e o | [OVER <W | S>] <SET e v | INC e i> \
                 [GET e o | [OVER <W | S>] <SET e v | INC e i> ...]]",
                "key <'GET=(e o) ('OVER=<'W 'S>? <'SET=(e v) 'INC=(e i)>)>?+",
            ),
        ];
        for (text, expected) in cases {
            let arguments = parse_syntax(text).expect(text);
            assert_eq!(show(&arguments), expected, "{text}");
        }
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        for text in ["[key", "key]", "<a | b]", "key [other ...]", "..."] {
            assert!(parse_syntax(text).is_err(), "{text}");
        }
    }
}
