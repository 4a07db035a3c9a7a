//! What the fuzz target `log` runs: a log of several files, with anything in them, is sent as requests that are
//! well-formed, or there is an error of one line. Compiled with the feature `fuzzing` only.

use std::path::PathBuf;
use std::sync::LazyLock;

use resp::{Limits, RequestParser};

use crate::error::ImportError;
use crate::files::{Input, find};
use crate::link::{Destination, Request};
use crate::progress::Progress;
use crate::{Importing, Sent};

/// What stands between the files of an input; two of them never overlap.
const SEPARATOR: &[u8] = b"\xfe--\xff";
const MANIFEST: &str = "log.manifest";
const FILES: [&str; 3] = ["base", "first", "second"];
/// What it says unless the input does.
const MANIFEST_TEXT: &[u8] =
    b"file base seq 1 type b\nfile first seq 1 type i\nfile second seq 2 type i\n";

/// Files of the input under way. One process runs one input at a time.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("kelvin-fuzz-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for files");
    folder
});

/// One input of `log`: a byte of choices, and the manifest and files, between separators. Those that are missing are
/// not there.
pub fn log(input: &[u8]) {
    let Some((&choices, text)) = input.split_first() else { return };
    let mut parts = split(text).into_iter();
    let manifest = if choices & 1 == 0 { parts.next().unwrap_or_default() } else { MANIFEST_TEXT };
    std::fs::write(FOLDER.join(MANIFEST), manifest).expect("it can be written");
    for name in FILES {
        let path = FOLDER.join(name);
        match parts.next() {
            Some(bytes) => std::fs::write(path, bytes).expect("it can be written"),
            None => drop(std::fs::remove_file(path)),
        }
    }
    let path = if choices & 2 == 0 { FOLDER.clone() } else { FOLDER.join(FILES[0]) };
    let refused = if choices & 4 == 0 { usize::MAX } else { usize::from(choices >> 5) };
    let mut checked = Checked { left: refused };
    let imported = find(&path).and_then(|inputs| import(&inputs, choices, &mut checked));
    if let Err(error) = imported {
        is_one_line(&error.to_string());
    }
}

fn split(text: &[u8]) -> Vec<&[u8]> {
    let ends = text.windows(SEPARATOR.len()).enumerate();
    let ends = ends.filter(|(_, window)| *window == SEPARATOR).map(|(at, _)| at);
    let (mut parts, mut start) = (Vec::new(), 0);
    for end in ends {
        parts.push(&text[start..end]);
        start = end + SEPARATOR.len();
    }
    parts.push(&text[start..]);
    parts
}

fn import(inputs: &[Input], choices: u8, checked: &mut Checked) -> Result<(), ImportError> {
    let mut progress = Progress::new(inputs.iter().map(|input| input.bytes).sum(), true);
    let mut sent = Sent::default();
    for input in inputs {
        let mut importing = Importing {
            input,
            link: checked,
            progress: &mut progress,
            warn: &mut |text| is_one_line(&text),
            sent: &mut sent,
            replaces: choices & 8 != 0,
            is_strict: choices & 16 != 0,
        };
        importing.import()?;
    }
    Ok(())
}

fn is_one_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
}

/// A server that takes some requests, and looks at how they are written.
struct Checked {
    /// It is gone after so many more.
    left: usize,
}

impl Destination for Checked {
    fn send(&mut self, _: (&Input, u64), _: &[u8], request: &Request) -> Result<(), ImportError> {
        self.left = self.left.checked_sub(1).ok_or(ImportError::Closed)?;
        let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
        request.write(&mut bytes).expect("memory takes all");
        let limits =
            Limits { args_max: usize::MAX, bulk_bytes_max: usize::MAX, ..Limits::default() };
        let parsed = RequestParser::new().parse(&mut bytes, &mut ranges, &limits);
        assert_eq!(parsed, Ok(Some(bytes.len())));
        assert!(!ranges.is_empty());
        Ok(())
    }

    fn select(&mut self, input: &Input, offset: u64, db: u64) -> Result<(), ImportError> {
        self.send((input, offset), b"SELECT", &Request::of(&[b"SELECT", db.to_string().as_bytes()]))
    }

    fn forget_db(&mut self) {}
}
