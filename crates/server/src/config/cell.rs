//! Cells that hold the values of options, and the trait through which the table reaches them.
//!
//! A cell is a [`Kind`], which parses and prints, and a place for the value: [`Atomic`] where it
//! fits into 64 bits, so that commands read it for the price of a load, and [`Shared`] where it
//! does not.
//!
//! Invariant: a cell always holds a value that its kind has accepted.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A way to parse and print values.
pub trait Kind: Send + Sync {
    /// What is parsed.
    type Value: Clone + Debug + Send + Sync;

    /// Whether the option takes other than one word. CONFIG SET then splits its one at spaces.
    const MANY_WORDS: bool = false;

    /// Whether these may be in quotes there, for blanks in them, as those of a line are. One that a line of a
    /// file has is whole then.
    const QUOTED_WORDS: bool = false;

    /// Parses words over the value in force. There is exactly one unless `MANY_WORDS`.
    /// Errors: Redis's text.
    fn parse(
        &self,
        words: &[Vec<u8>],
        current: Option<&Self::Value>,
    ) -> Result<Self::Value, String>;

    /// Prints a value as CONFIG GET shows it.
    fn print(&self, value: &Self::Value) -> Vec<u8>;

    /// Prints what follows the name in a file, a line each.
    fn print_lines(&self, value: &Self::Value) -> Vec<Vec<u8>> {
        vec![self.print(value)]
    }
}

/// Values that fit into 64 bits.
pub trait Packed: Copy {
    /// As bits.
    fn pack(self) -> u64;
    /// From the bits that `pack` gave.
    fn unpack(bits: u64) -> Self;
}

/// Puts a value into its cell.
pub(super) type Store<'a> = Box<dyn FnOnce() + 'a>;

/// A cell, whatever its kind.
pub(super) trait Setting: Send + Sync {
    /// Whether CONFIG SET splits its one word at spaces.
    fn takes_many_words(&self) -> bool;
    /// Whether these may be in quotes there, and one of a line of a file is whole.
    fn takes_quoted_words(&self) -> bool;
    /// Checks words; the store that it returns cannot fail.
    fn parse(&self, words: &[Vec<u8>]) -> Result<Store<'_>, String>;
    /// A store that brings the value of now back.
    fn snapshot(&self) -> Store<'_>;
    /// As CONFIG GET shows it.
    fn text(&self) -> Vec<u8>;
    /// As a file has it, a line each, without the name.
    fn lines(&self) -> Vec<Vec<u8>>;
}

/// A value in an atomic.
pub struct Atomic<K> {
    kind: K,
    bits: AtomicU64,
}

impl<K: Kind<Value: Packed>> Atomic<K> {
    pub(super) fn new(kind: K, default: &str) -> Self {
        let value = parse_default(&kind, default);
        Self { kind, bits: AtomicU64::new(value.pack()) }
    }

    /// The value in force. Cost: a relaxed load.
    #[inline]
    pub fn load(&self) -> K::Value {
        K::Value::unpack(self.bits.load(Ordering::Relaxed))
    }

    /// Puts a value there that was accepted.
    pub(super) fn store(&self, value: K::Value) {
        self.bits.store(value.pack(), Ordering::Relaxed);
    }
}

impl<K: Kind<Value: Packed>> Setting for Atomic<K> {
    fn takes_many_words(&self) -> bool {
        K::MANY_WORDS
    }

    fn takes_quoted_words(&self) -> bool {
        K::QUOTED_WORDS
    }

    fn parse(&self, words: &[Vec<u8>]) -> Result<Store<'_>, String> {
        let value = self.kind.parse(words, Some(&self.load()))?;
        Ok(Box::new(move || self.store(value)))
    }

    fn snapshot(&self) -> Store<'_> {
        let bits = self.bits.load(Ordering::Relaxed);
        Box::new(move || self.bits.store(bits, Ordering::Relaxed))
    }

    fn text(&self) -> Vec<u8> {
        self.kind.print(&self.load())
    }

    fn lines(&self) -> Vec<Vec<u8>> {
        self.kind.print_lines(&self.load())
    }
}

/// A value behind a pointer.
pub struct Shared<K: Kind> {
    kind: K,
    value: RwLock<Arc<K::Value>>,
}

impl<K: Kind> Shared<K> {
    pub(super) fn new(kind: K, default: &str) -> Self {
        let value = parse_default(&kind, default);
        Self { kind, value: RwLock::new(Arc::new(value)) }
    }

    /// The value in force. Cost: a lock that is only ever held for moments.
    pub fn load(&self) -> Arc<K::Value> {
        // A pointer is stored whole or not at all, so a panic elsewhere leaves nothing broken.
        self.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a value there that was accepted.
    pub(super) fn store(&self, value: Arc<K::Value>) {
        *self.value.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

impl<K: Kind> Setting for Shared<K> {
    fn takes_many_words(&self) -> bool {
        K::MANY_WORDS
    }

    fn takes_quoted_words(&self) -> bool {
        K::QUOTED_WORDS
    }

    fn parse(&self, words: &[Vec<u8>]) -> Result<Store<'_>, String> {
        let value = Arc::new(self.kind.parse(words, Some(&self.load()))?);
        Ok(Box::new(move || self.store(value)))
    }

    fn snapshot(&self) -> Store<'_> {
        let value = self.load();
        Box::new(move || self.store(value))
    }

    fn text(&self) -> Vec<u8> {
        self.kind.print(&self.load())
    }

    fn lines(&self) -> Vec<Vec<u8>> {
        self.kind.print_lines(&self.load())
    }
}

fn parse_default<K: Kind>(kind: &K, default: &str) -> K::Value {
    let words = split_value(default.as_bytes(), K::MANY_WORDS);
    kind.parse(&words, None).expect("invariant: defaults are valid")
}

/// The words of a value that came as one: it is one, unless the option takes many. Two spaces
/// stand around an empty word, as in Redis.
pub(super) fn split_value(value: &[u8], many_words: bool) -> Vec<Vec<u8>> {
    match (many_words, value) {
        (true, []) => Vec::new(),
        (true, _) => value.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect(),
        (false, _) => vec![value.to_vec()],
    }
}
