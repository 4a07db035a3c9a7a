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
        let bytes = std::fs::metadata(&path).map(|metadata| metadata.len());
        let bytes = bytes.map_err(|source| ImportError::Read { path: path.clone(), source })?;
        Ok(Input { path, bytes, is_last: number == last })
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
    let mut text = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(MANIFEST_BYTES_MAX).read_to_end(&mut text));
    read.map_err(|source| ImportError::Read { path: path.to_path_buf(), source })?;
    Manifest::parse(&text).map_err(|what| ImportError::Files { path: path.to_path_buf(), what })
}
