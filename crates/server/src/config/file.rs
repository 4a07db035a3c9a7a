//! Options from a file in the syntax of `redis.conf`, and from a command line as `redis-server`
//! takes it.
//!
//! A line is a name and its words, with the quotes of inline commands; `#` starts a comment line;
//! `include` reads another file in its place. A command line is turned into such lines, read
//! after those of the file, so the last line that names an option wins.
//!
//! Both are read once, before the server starts. Invariant: everything read is bounded by a
//! named limit, and the first error ends the reading.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use value::glob;

use super::cell::split_value;
use super::find_named;
use super::options::Config;
use super::quote::quote;
use super::row::OptionRow;

/// Files that include each other go no deeper.
const INCLUDE_DEPTH_MAX: usize = 16;

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is known of where the options came from.
#[derive(Debug, Default)]
pub struct Source {
    /// The file, absolute, that CONFIG REWRITE rewrites.
    pub(super) path: Option<PathBuf>,
    /// The options that a file or the command line named, each once.
    pub(super) named: Vec<&'static str>,
}

/// Why options could not be read. `Display` is what to print before giving up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// An option of the command line that is wrong.
    Argument {
        /// The option and its words.
        text: String,
        /// What is wrong with it, in Redis's words.
        reason: String,
    },
    /// A line of a file that is wrong.
    Line {
        /// Counted from one.
        number: usize,
        /// The line.
        text: String,
        /// What is wrong with it, in Redis's words.
        reason: String,
    },
    /// A file that cannot be read.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument { text, reason } => {
                write!(formatter, "*** FATAL COMMAND LINE ERROR ***\n>>> '{text}'\n{reason}")
            }
            Self::Line { number, text, reason } => write!(
                formatter,
                "*** FATAL CONFIG FILE ERROR ***\n\
                 Reading the configuration file, at line {number}\n>>> '{text}'\n{reason}"
            ),
            Self::File { path, reason } => {
                write!(
                    formatter,
                    "Fatal error, can't open config file '{}': {reason}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Where a line of options stands.
#[derive(Clone, Copy)]
enum Origin {
    File { number: usize },
    CommandLine,
}

impl Origin {
    fn refuse(self, line: &[u8], reason: String) -> LoadError {
        let text = String::from_utf8_lossy(line);
        match self {
            Origin::File { number } => LoadError::Line { number, text: text.into_owned(), reason },
            // As it was given: what does not begin with a quote began with two dashes.
            Origin::CommandLine if line.starts_with(b"\"") => {
                LoadError::Argument { text: text.into_owned(), reason }
            }
            Origin::CommandLine => LoadError::Argument { text: format!("--{text}"), reason },
        }
    }
}

impl Config {
    /// Options as given to `redis-server`: `[file] [--name value [value...]]...`. An option and
    /// its value may be one argument (`"--port 6379"`). `--save` may stand without a value.
    /// Errors: [`LoadError`]; some options may have been set then.
    pub fn load_arguments(&self, arguments: &[Vec<u8>]) -> Result<(), LoadError> {
        let mut arguments = arguments;
        if let [file, rest @ ..] = arguments
            && !file.starts_with(b"-")
        {
            self.load_file(Path::new(std::ffi::OsStr::from_bytes(file)))?;
            arguments = rest;
        }
        argument_lines(arguments)
            .iter()
            .try_for_each(|line| self.load_line(line, Origin::CommandLine, 0))
    }

    /// Options from a file, which CONFIG REWRITE will rewrite.
    /// Errors: [`LoadError`]; some options may have been set then.
    pub fn load_file(&self, path: &Path) -> Result<(), LoadError> {
        self.load_lines(path, 0)?;
        let absolute = path.canonicalize().map_err(|error| file_error(path, &error))?;
        self.lock_source().path = Some(absolute);
        Ok(())
    }

    fn load_lines(&self, path: &Path, depth: usize) -> Result<(), LoadError> {
        let text = read_bounded(path).map_err(|error| file_error(path, &error))?;
        self.load_text(&text, depth)
    }

    /// Options from the text of a file.
    pub(super) fn load_text(&self, text: &[u8], depth: usize) -> Result<(), LoadError> {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            self.load_line(line, Origin::File { number: index + 1 }, depth)?;
        }
        Ok(())
    }

    fn load_line(&self, line: &[u8], origin: Origin, depth: usize) -> Result<(), LoadError> {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(());
        }
        let error = |reason: String| origin.refuse(line, reason);
        let words = split_line(line)
            .ok_or_else(|| error("Unbalanced quotes in configuration line".to_owned()))?;
        if let [name, pattern] = words.as_slice()
            && name.eq_ignore_ascii_case(b"include")
        {
            if depth == INCLUDE_DEPTH_MAX {
                return Err(error("too many files include each other".to_owned()));
            }
            return self.load_included(pattern, depth + 1);
        }
        self.load_words(&words, origin).map_err(error)
    }

    /// Loads the file, or those whose last part matches a pattern, in the order of their names.
    fn load_included(&self, pattern: &[u8], depth: usize) -> Result<(), LoadError> {
        let path = Path::new(std::ffi::OsStr::from_bytes(pattern));
        if glob::is_literal(pattern) {
            return self.load_lines(path, depth);
        }
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(());
        };
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let entries = directory.read_dir().map_err(|error| file_error(directory, &error))?;
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.file_name().is_some_and(|file| {
                    glob::matches(name.as_bytes(), file.as_bytes(), glob::Case::Sensitive)
                })
            })
            .collect();
        paths.sort();
        paths.iter().try_for_each(|path| self.load_lines(path, depth))
    }

    fn load_words(&self, words: &[Vec<u8>], origin: Origin) -> Result<(), String> {
        let Some((name, values)) = words.split_first() else {
            return Ok(());
        };
        let Some((row, _)) = find_named(name) else {
            return super::directive::read(words);
        };
        let setting = (row.setting)(self);
        let points = self.points_with(row, values);
        let store = match values {
            _ if let Some(points) = &points => setting.parse(points)?,
            [path] if setting.takes_quoted_words() && matches!(origin, Origin::File { .. }) => {
                setting.parse(std::slice::from_ref(path))?
            }
            [value] if setting.takes_quoted_words() => setting.parse(&split_quoted(value)?)?,
            [value] => setting.parse(&split_value(value, setting.takes_many_words()))?,
            many if setting.takes_many_words() => setting.parse(many)?,
            _ => return Err("wrong number of arguments".to_owned()),
        };
        store();
        let named = &mut self.lock_source().named;
        if !named.contains(&row.name) {
            named.push(row.name);
        }
        Ok(())
    }
}

impl Config {
    /// The save points of a line behind those of the lines before, which it is added to. None: the line is another
    /// one, or the first of its kind.
    fn points_with(&self, row: &OptionRow, values: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        if row.name != "save" || !self.lock_source().named.contains(&row.name) {
            return None;
        }
        let more: Vec<Vec<u8>> = values.iter().flat_map(|value| split_value(value, true)).collect();
        match more.iter().all(|word| word.is_empty()) {
            true => None,
            false => Some([&self.save.load()[..], &more].concat()),
        }
    }
}

/// The words of a value that came as one: in quotes, if they have blanks in them.
///
/// Errors: the quotes are unbalanced.
pub(super) fn split_quoted(value: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    match value.contains(&b' ') {
        true => split_line(value).ok_or_else(|| "unbalanced quotes".to_owned()),
        false => Ok(vec![value.to_vec()]),
    }
}

/// The words of a line, or nothing if its quotes are unbalanced.
pub(super) fn split_line(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut line = line.to_vec();
    let mut ranges = Vec::new();
    resp::split_words(&mut line, &mut ranges).ok()?;
    Some(resp::Args::new(&line, &ranges).iter().map(<[u8]>::to_vec).collect())
}

/// Reads a file of reasonable size.
pub(super) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(text)
}

/// The system's words for an error, without the number that Rust puts behind them.
pub(super) fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

fn file_error(path: &Path, error: &io::Error) -> LoadError {
    LoadError::File { path: path.to_owned(), reason: system_text(error) }
}

/// Turns arguments into lines. What follows an option is its value even if it starts with `--`,
/// unless it already has one.
fn argument_lines(arguments: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut lacks_value = false;
    for (index, argument) in arguments.iter().enumerate() {
        let is_option = argument.starts_with(b"--");
        if lacks_value || !is_option {
            if lines.is_empty() {
                lines.push(Vec::new());
            }
            let line = lines.last_mut().expect("invariant: there is a line");
            line.push(b' ');
            line.extend_from_slice(&quote(argument));
            lacks_value = false;
            continue;
        }
        let mut line = argument[2..].to_vec();
        lacks_value = split_line(argument).is_some_and(|words| words.len() == 1);
        // People who build command lines from lists end up with a bare `--save`.
        let next = arguments.get(index + 1);
        if argument.eq_ignore_ascii_case(b"--save")
            && next.is_none_or(|next| next.starts_with(b"--"))
        {
            line.extend_from_slice(b" \"\"");
            lacks_value = false;
        }
        lines.push(line);
    }
    lines
}
