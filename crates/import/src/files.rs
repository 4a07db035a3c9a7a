//! Which files are imported.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::ImportError;
use crate::manifest::Manifest;

/// The directory that Redis makes for its log.
const LOG_DIRECTORY: &str = "appendonlydir";
const MANIFEST_END: &str = ".manifest";
/// What an RDB file begins with.
const RDB_HEADS: [&[u8]; 2] = [b"REDIS", b"VALKEY"];
/// Bytes of a manifest: some hundred a file.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// A file that is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// A crash may have cut it off.
    pub(crate) is_last: bool,
}

impl Input {
    pub(crate) fn open(&self) -> Result<File, ImportError> {
        File::open(&self.path).map_err(|source| self.unreadable(source))
    }

    pub(crate) fn unreadable(&self, source: io::Error) -> ImportError {
        ImportError::Read { path: self.path.clone(), source }
    }

    pub(crate) fn damaged(&self, offset: u64, what: impl Into<String>) -> ImportError {
        ImportError::Damaged { path: self.path.clone(), offset, what: what.into() }
    }

    /// Whether it has keys in front of commands.
    pub(crate) fn begins_as_rdb(&self) -> Result<bool, ImportError> {
        let mut head = Vec::new();
        let longest = RDB_HEADS.iter().map(|head| head.len()).max().unwrap_or_default();
        let read = self.open()?.take(longest as u64).read_to_end(&mut head);
        read.map_err(|source| self.unreadable(source))?;
        Ok(RDB_HEADS.iter().any(|known| head.starts_with(known)))
    }
}

/// The files of a path in their order.
///
/// Errors: there are none, or it is not clear which.
pub(crate) fn find(path: &Path) -> Result<Vec<Input>, ImportError> {
    let unreadable = |source| ImportError::Read { path: path.to_path_buf(), source };
    let paths = match std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        true => {
            let manifest = find_manifest(path)?;
            let directory = manifest.parent().unwrap_or(path);
            read_manifest(&manifest)?.files.iter().map(|name| directory.join(name)).collect()
        }
        false => vec![path.to_path_buf()],
    };
    let last = paths.len() - 1;
    let input = |(number, path): (usize, PathBuf)| {
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {
                Ok(Input { path, bytes: metadata.len(), is_last: number == last })
            }
            // To open a pipe would wait for somebody who writes into it.
            Ok(_) => Err(ImportError::Files { path, what: "it is no file".to_owned() }),
            Err(source) => Err(ImportError::Read { path, source }),
        }
    };
    paths.into_iter().enumerate().map(input).collect()
}

/// The manifest in a directory, or in that of the log below it.
fn find_manifest(path: &Path) -> Result<PathBuf, ImportError> {
    let wrong = |what: &str| ImportError::Files { path: path.to_path_buf(), what: what.to_owned() };
    for directory in [path.to_path_buf(), path.join(LOG_DIRECTORY)] {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        let names = entries.flatten().map(|entry| entry.path());
        let is_manifest = |path: &PathBuf| path.to_string_lossy().ends_with(MANIFEST_END);
        let mut manifests = names.filter(is_manifest);
        match (manifests.next(), manifests.next()) {
            (Some(manifest), None) => return Ok(manifest),
            (Some(_), Some(_)) => return Err(wrong("it has several manifests")),
            (None, _) => {}
        }
    }
    Err(wrong("there is no manifest of an append-only log in it; to import an RDB file, name that"))
}

fn read_manifest(path: &Path) -> Result<Manifest, ImportError> {
    let wrong = |what| ImportError::Files { path: path.to_path_buf(), what };
    let mut text = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut text));
    read.map_err(|source| ImportError::Read { path: path.to_path_buf(), source })?;
    if text.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(wrong(format!("it is longer than {MANIFEST_BYTES_MAX} bytes")));
    }
    Manifest::parse(&text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a folder with a manifest, and a file `log` in it.
    fn found(name: &str, manifest: &str) -> Result<Vec<Input>, String> {
        let folder = format!("kelvin-import-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(folder.join("folder")).expect("a folder");
        std::fs::write(folder.join("log"), "*1").expect("a file");
        std::fs::write(folder.join("a.manifest"), manifest).expect("a file");
        let found = find(&folder).map_err(|error| error.to_string());
        std::fs::remove_dir_all(folder).expect("it is there");
        found
    }

    #[test]
    fn a_manifest_that_is_too_long_is_told() {
        let line = "file log seq 1 type i\n";
        let remarks = "#\n".repeat((MANIFEST_BYTES_MAX as usize - line.len()) / 2);
        let whole = line.to_owned() + &remarks;
        assert_eq!(found("whole", &whole).map(|files| files.len()), Ok(1));
        let error = found("long", &(whole + "file more seq 2 type i\n")).expect_err("it is");
        assert!(error.contains("longer than"), "{error}");
    }

    #[test]
    fn what_is_no_file_is_told() {
        for name in ["folder", "..", "."] {
            let error =
                found(name, &format!("file {name} seq 1 type i\n")).expect_err("it is none");
            assert!(error.ends_with("it is no file"), "{error}");
        }
    }
}
