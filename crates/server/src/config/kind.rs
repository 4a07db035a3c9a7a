//! The kinds of values that are one word, with Redis's syntax and error texts.

use std::marker::PhantomData;

use value::number::{parse_i64, parse_u64};

use super::cell::{Kind, Packed};
use super::quote::quote;

/// `yes` or `no`.
#[derive(Debug)]
pub struct YesNo {
    refused: Option<(bool, &'static str)>,
}

impl YesNo {
    pub(super) fn either() -> Self {
        Self { refused: None }
    }

    /// An option of Redis's of which only `no` is true of us.
    pub(super) fn only_no(reason: &'static str) -> Self {
        Self { refused: Some((true, reason)) }
    }
}

impl Kind for YesNo {
    type Value = bool;

    fn parse(&self, words: &[Vec<u8>], _: Option<&bool>) -> Result<bool, String> {
        let value = if words[0].eq_ignore_ascii_case(b"yes") {
            true
        } else if words[0].eq_ignore_ascii_case(b"no") {
            false
        } else {
            return Err("argument must be 'yes' or 'no'".to_owned());
        };
        match self.refused {
            Some((refused, reason)) if refused == value => Err(reason.to_owned()),
            _ => Ok(value),
        }
    }

    fn print(&self, value: &bool) -> Vec<u8> {
        if *value { b"yes".to_vec() } else { b"no".to_vec() }
    }
}

impl Packed for bool {
    fn pack(self) -> u64 {
        u64::from(self)
    }

    fn unpack(bits: u64) -> Self {
        bits != 0
    }
}

/// A decimal integer in a range.
#[derive(Debug)]
pub struct Integer {
    min: i64,
    max: i64,
    clamp: (i64, i64),
    only: Option<(i64, &'static str)>,
}

impl Integer {
    pub(super) fn between(min: i64, max: i64) -> Self {
        Self { min, max, clamp: (min, max), only: None }
    }

    /// An option of Redis's of which only one value is true of us.
    pub(super) fn only(self, value: i64, reason: &'static str) -> Self {
        Self { only: Some((value, reason)), ..self }
    }

    /// Takes the whole range but keeps the nearest value of a narrower one, as Redis does for hz.
    pub(super) fn clamped(self, min: i64, max: i64) -> Self {
        Self { clamp: (min, max), ..self }
    }
}

impl Kind for Integer {
    type Value = i64;

    fn parse(&self, words: &[Vec<u8>], _: Option<&i64>) -> Result<i64, String> {
        let value =
            parse_i64(&words[0]).ok_or("argument couldn't be parsed into an integer".to_owned())?;
        if value < self.min || value > self.max {
            return Err(format!(
                "argument must be between {} and {} inclusive",
                self.min, self.max
            ));
        }
        match self.only {
            Some((only, reason)) if value != only => Err(reason.to_owned()),
            _ => Ok(value.clamp(self.clamp.0, self.clamp.1)),
        }
    }

    fn print(&self, value: &i64) -> Vec<u8> {
        value.to_string().into_bytes()
    }
}

impl Packed for i64 {
    fn pack(self) -> u64 {
        self.cast_unsigned()
    }

    fn unpack(bits: u64) -> Self {
        bits.cast_signed()
    }
}

/// File permissions in octal.
#[derive(Debug)]
pub struct Permissions;

/// All permissions of owner, group and others.
const PERMISSIONS_MAX: u32 = 0o777;

impl Kind for Permissions {
    type Value = u32;

    fn parse(&self, words: &[Vec<u8>], _: Option<&u32>) -> Result<u32, String> {
        let text = std::str::from_utf8(&words[0]).unwrap_or("");
        match u32::from_str_radix(text, 8) {
            Ok(value) if value <= PERMISSIONS_MAX => Ok(value),
            Ok(_) => Err(format!("argument must be between 0 and {PERMISSIONS_MAX:o} inclusive")),
            Err(_) => Err("argument couldn't be parsed as an octal number".to_owned()),
        }
    }

    fn print(&self, value: &u32) -> Vec<u8> {
        format!("{value:o}").into_bytes()
    }
}

impl Packed for u32 {
    fn pack(self) -> u64 {
        u64::from(self)
    }

    fn unpack(bits: u64) -> Self {
        bits as u32
    }
}

/// A number of bytes, with a unit or without: `100mb`.
#[derive(Debug)]
pub struct Memory {
    min: u64,
    max: u64,
}

impl Memory {
    pub(super) fn between(min: u64, max: u64) -> Self {
        Self { min, max }
    }
}

impl Kind for Memory {
    type Value = u64;

    fn parse(&self, words: &[Vec<u8>], _: Option<&u64>) -> Result<u64, String> {
        let value = parse_memory(&words[0]).ok_or("argument must be a memory value".to_owned())?;
        if value < self.min || value > self.max {
            return Err(format!(
                "argument must be between {} and {} inclusive",
                self.min, self.max
            ));
        }
        Ok(value)
    }

    fn print(&self, value: &u64) -> Vec<u8> {
        value.to_string().into_bytes()
    }

    fn print_lines(&self, value: &u64) -> Vec<Vec<u8>> {
        vec![print_memory(*value).into_bytes()]
    }
}

impl Packed for u64 {
    fn pack(self) -> u64 {
        self
    }

    fn unpack(bits: u64) -> Self {
        bits
    }
}

/// Reads a number of bytes: `k`, `m`, `g` are powers of 1000, `kb`, `mb`, `gb` of 1024.
pub fn parse_memory(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    // As in Redis, leading zeros are fine here, and a unit alone is none of it.
    let zeros = number.iter().take_while(|digit| **digit == b'0').count();
    let number = match &number[zeros..] {
        [] => 0,
        digits => parse_u64(digits)?,
    };
    number.checked_mul(unit)
}

/// The shortest exact spelling in powers of 1024.
fn print_memory(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")] {
        if bytes != 0 && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}

/// A number of bytes, or a share of `maxmemory`.
#[derive(Debug)]
pub struct MemoryOrPercent;

/// See [`MemoryOrPercent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryShare {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths, 1 to 100, of `maxmemory`.
    Percent(u8),
}

impl Kind for MemoryOrPercent {
    type Value = MemoryShare;

    fn parse(&self, words: &[Vec<u8>], _: Option<&MemoryShare>) -> Result<MemoryShare, String> {
        let invalid = || "argument must be a memory or percent value".to_owned();
        let [percent @ .., b'%'] = words[0].as_slice() else {
            let bytes = parse_memory(&words[0]).ok_or_else(invalid)?;
            // The sign bit tells percents from bytes.
            return match i64::try_from(bytes) {
                Ok(_) => Ok(MemoryShare::Bytes(bytes)),
                Err(_) => Err(format!("argument must be between 0 and {} inclusive", i64::MAX)),
            };
        };
        match parse_u64(percent).ok_or_else(invalid)? {
            0 => Ok(MemoryShare::Bytes(0)),
            percent @ 1..=100 => Ok(MemoryShare::Percent(percent as u8)),
            _ => Err("percentage argument must be less or equal to 100".to_owned()),
        }
    }

    fn print(&self, value: &MemoryShare) -> Vec<u8> {
        match value {
            MemoryShare::Bytes(bytes) => bytes.to_string().into_bytes(),
            MemoryShare::Percent(percent) => format!("{percent}%").into_bytes(),
        }
    }

    fn print_lines(&self, value: &MemoryShare) -> Vec<Vec<u8>> {
        match value {
            MemoryShare::Bytes(bytes) => vec![print_memory(*bytes).into_bytes()],
            MemoryShare::Percent(_) => vec![self.print(value)],
        }
    }
}

impl Packed for MemoryShare {
    fn pack(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (-i64::from(percent)).cast_unsigned(),
        }
    }

    fn unpack(bits: u64) -> Self {
        match bits.cast_signed() {
            percent @ ..0 => Self::Percent(percent.unsigned_abs() as u8),
            _ => Self::Bytes(bits),
        }
    }
}

/// The names of an enumeration's values.
pub trait Names: Copy + std::fmt::Debug + PartialEq + Send + Sync + 'static {
    /// All values with their names, in the order in which errors list them.
    const NAMES: &'static [(Self, &'static str)];
}

/// One of several names.
#[derive(Debug)]
pub struct Choice<E>(PhantomData<E>);

impl<E: Names> Choice<E> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<E: Names> Kind for Choice<E> {
    type Value = E;

    fn parse(&self, words: &[Vec<u8>], _: Option<&E>) -> Result<E, String> {
        find_name(E::NAMES, &words[0])
    }

    fn print(&self, value: &E) -> Vec<u8> {
        let name = E::NAMES.iter().find(|(named, _)| named == value);
        name.expect("invariant: every value has a name").1.as_bytes().to_vec()
    }
}

fn find_name<E: Names>(names: &[(E, &str)], text: &[u8]) -> Result<E, String> {
    if let Some((value, _)) =
        names.iter().find(|(_, name)| text.eq_ignore_ascii_case(name.as_bytes()))
    {
        return Ok(*value);
    }
    let all: Vec<&str> = names.iter().map(|(_, name)| *name).collect();
    Err(format!("argument(s) must be one of the following: {}", all.join(", ")))
}

impl<E: Names> Packed for E {
    fn pack(self) -> u64 {
        let index = E::NAMES.iter().position(|(named, _)| *named == self);
        index.expect("invariant: every value has a name") as u64
    }

    fn unpack(bits: u64) -> Self {
        E::NAMES[bits as usize].0
    }
}

/// Text as it is, perhaps with a check that may also put it into another form.
pub struct Text {
    check: fn(&[u8]) -> Result<Vec<u8>, String>,
}

impl Text {
    pub(super) fn any() -> Self {
        Self { check: |text| Ok(text.to_vec()) }
    }

    pub(super) fn checked(check: fn(&[u8]) -> Result<Vec<u8>, String>) -> Self {
        Self { check }
    }
}

impl Kind for Text {
    type Value = Vec<u8>;

    fn parse(&self, words: &[Vec<u8>], _: Option<&Vec<u8>>) -> Result<Vec<u8>, String> {
        (self.check)(&words[0])
    }

    fn print(&self, value: &Vec<u8>) -> Vec<u8> {
        value.clone()
    }

    fn print_lines(&self, value: &Vec<u8>) -> Vec<Vec<u8>> {
        vec![quote(value)]
    }
}
