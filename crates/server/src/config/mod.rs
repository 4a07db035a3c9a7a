//! Options: what they are ([`rows`], one row each), where they come from (a file, the command
//! line, CONFIG SET) and what they are now ([`Config`], read by any thread).
//!
//! Invariants:
//! 1. A change is all or nothing: every value is checked before the first is stored, and if the
//!    server cannot act on one, all go back to what they were.
//! 2. Changes come one at a time. Readers may see the options of one change turn one by one.
//! 3. Texts of errors are Redis's, complete with their code.

mod cell;
mod check;
mod directive;
mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod inert;
mod kind;
mod list;
mod options;
pub(crate) mod quote;
mod rewrite;
mod row;

use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};

use thiserror::Error;
use value::glob;

use self::cell::{Store, split_value};
use self::file::{Source, split_quoted};

pub use self::cell::{Atomic, Kind, Shared};
pub use self::file::LoadError;
pub use self::kind::{MemoryShare, Names, parse_memory};
pub use self::list::{ClientClass, OutputLimit, OutputLimitTable};
pub use self::options::{
    AppendFsync, Config, FlashIo, LogLevel, MaxmemoryPolicy, ProtectedAction, Supervised,
    TierCompression, TierPromoteNeighbours, TierPromotion,
};
pub use self::row::{Flags, OptionRow};

/// Why CONFIG SET or CONFIG REWRITE did nothing. `Display` is the whole error reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name without a value.
    #[error("ERR syntax error")]
    Syntax,
    /// There is no such option.
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    UnknownOption(String),
    /// An option's value was refused.
    #[error("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")]
    Refused {
        /// The option.
        name: String,
        /// Why.
        reason: String,
    },
    /// CONFIG REWRITE without a file.
    #[error("ERR The server is running without a config file")]
    NoFile,
    /// The file could not be read or written.
    #[error("ERR Rewriting config file: {0}")]
    Rewrite(String),
    /// Another change is under way, and a transaction does not wait for it: that may wait for the slots which the
    /// transaction holds.
    #[error("ERR options are being changed, which a transaction does not wait for")]
    Busy,
    /// No thread could be had to make the change.
    #[error("ERR the options stay as they are: no thread to change them: {0}")]
    NoThread(String),
}

/// Whether to wait for a change of options that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitForChange {
    /// However long it takes.
    Yes,
    /// Not at all.
    No,
}

/// What the server could not act on: an option's name, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyError {
    /// The option.
    pub name: &'static str,
    /// Why, in the words that the client is to see.
    pub reason: String,
}

/// The flash that the options name: its directories, and its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlashOptions {
    paths: Arc<Vec<Vec<u8>>>,
    bytes: u64,
}

/// Whether a client may change options such as `dir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectedOptions {
    /// It may.
    Allowed,
    /// It may not.
    Refused,
}

impl Config {
    /// The options that match any of `patterns`, with their values, for CONFIG GET. A name without
    /// wildcards is looked up; each name appears once. Aliases are options of their own here.
    pub fn get(&self, patterns: &[&[u8]]) -> Vec<(&'static str, Vec<u8>)> {
        let wanted = |name: &str| {
            patterns
                .iter()
                .any(|pattern| glob::matches(pattern, name.as_bytes(), glob::Case::Insensitive))
        };
        let mut found = Vec::new();
        for row in rows() {
            for name in row.names().filter(|name| wanted(name)) {
                found.push((name, (row.setting)(self).text()));
            }
        }
        found
    }

    /// Sets options from pairs of names and values, for CONFIG SET. Blocks while another change is
    /// under way, if `wait` says so, and for as long as `apply` takes.
    ///
    /// `apply` makes the server act on the rows that were set. If it cannot, all options are put
    /// back and it is called again, so that what it had done already is undone.
    /// Errors: see [`ConfigError`]; nothing has changed then.
    pub fn set(
        &self,
        words: &[&[u8]],
        protected: ProtectedOptions,
        wait: WaitForChange,
        apply: &mut dyn FnMut(&[&'static OptionRow]) -> Result<(), ApplyError>,
    ) -> Result<(), ConfigError> {
        let _one_at_a_time = self.lock_changes(wait)?;
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(ConfigError::Syntax);
        }
        let targets = find_targets(pairs, protected)?;
        let rows: Vec<&'static OptionRow> = targets.iter().map(|target| target.row).collect();
        let mut stores = Vec::with_capacity(targets.len());
        for target in &targets {
            stores.push(self.check(target)?);
        }
        let backups: Vec<Store<'_>> =
            rows.iter().map(|row| (row.setting)(self).snapshot()).collect();
        stores.into_iter().for_each(|store| store());
        let Err(error) = apply(&rows) else {
            return Ok(());
        };
        backups.into_iter().for_each(|restore| restore());
        // The values of before could be acted on then; the first failure is the one to report.
        let _ = apply(&rows);
        Err(refused(error.name, error.reason))
    }

    /// The flash that the options name.
    pub(crate) fn flash(&self) -> FlashOptions {
        FlashOptions { paths: self.flash_path.load(), bytes: self.flash_size.load() }
    }

    /// Has the options name this flash, as they did before. Called while a change is under way.
    pub(crate) fn put_flash(&self, flash: FlashOptions) {
        self.flash_path.store(flash.paths);
        self.flash_size.store(flash.bytes);
    }

    fn check(&self, target: &Target<'_>) -> Result<Store<'_>, ConfigError> {
        let setting = (target.row.setting)(self);
        let words = match setting.takes_quoted_words() {
            true => split_quoted(target.value).map_err(|reason| refused(target.name, reason))?,
            false => split_value(target.value, setting.takes_many_words()),
        };
        setting.parse(&words).map_err(|reason| refused(target.name, reason))
    }

    /// The file that options were read from, and that CONFIG REWRITE rewrites.
    pub fn file(&self) -> Option<std::path::PathBuf> {
        self.lock_source().path.clone()
    }

    /// The lock that makes changes come one at a time. Taken before that of the source.
    ///
    /// Errors: [`ConfigError::Busy`].
    fn lock_changes(&self, wait: WaitForChange) -> Result<MutexGuard<'_, ()>, ConfigError> {
        match (wait, self.changing.try_lock()) {
            (_, Ok(guard)) => Ok(guard),
            (_, Err(TryLockError::Poisoned(poisoned))) => Ok(poisoned.into_inner()),
            (WaitForChange::Yes, Err(TryLockError::WouldBlock)) => {
                Ok(self.changing.lock().unwrap_or_else(PoisonError::into_inner))
            }
            (WaitForChange::No, Err(TryLockError::WouldBlock)) => Err(ConfigError::Busy),
        }
    }

    /// What is known of where the options came from. Held for moments only.
    fn lock_source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All options: those that do something here, then those that do not.
pub fn rows() -> impl Iterator<Item = &'static OptionRow> {
    options::OPTIONS.iter().chain(inert::INERT)
}

impl OptionRow {
    /// The row of this name or alias, in any case.
    pub fn find(name: &[u8]) -> Option<&'static OptionRow> {
        find_named(name).map(|(row, _)| row)
    }

    /// The name and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

/// An option to be set, by the name that was used for it.
struct Target<'a> {
    row: &'static OptionRow,
    name: &'static str,
    value: &'a [u8],
}

fn find_named(text: &[u8]) -> Option<(&'static OptionRow, &'static str)> {
    rows().find_map(|row| {
        let name = row.names().find(|name| text.eq_ignore_ascii_case(name.as_bytes()))?;
        Some((row, name))
    })
}

/// Looks the options up; the first that cannot be set is the one to report.
fn find_targets<'a>(
    pairs: &[[&'a [u8]; 2]],
    protected: ProtectedOptions,
) -> Result<Vec<Target<'a>>, ConfigError> {
    let mut targets: Vec<Target<'a>> = Vec::with_capacity(pairs.len().min(rows().count()));
    for [text, value] in pairs {
        let (row, name) = find_named(text).ok_or_else(|| {
            ConfigError::UnknownOption(String::from_utf8_lossy(text).into_owned())
        })?;
        if row.flags.contains(Flags::IMMUTABLE) {
            return Err(refused(name, "can't set immutable config"));
        }
        if row.flags.contains(Flags::PROTECTED) && protected == ProtectedOptions::Refused {
            return Err(refused(name, "can't set protected config"));
        }
        // An option and its alias may both be set, as in Redis; the last one wins.
        if targets.iter().any(|target| target.name == name) {
            return Err(refused(name, "duplicate parameter"));
        }
        targets.push(Target { row, name, value });
    }
    Ok(targets)
}

fn refused(name: &str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Refused { name: name.to_owned(), reason: reason.into() }
}

#[cfg(test)]
mod tests;
