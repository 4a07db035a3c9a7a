//! Reads a results file, and says in one line what is wrong with it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::results::{FORMAT, Results};

/// A results file of days of samples is some tens of MB; what is larger is something else.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Why a results file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is not what a run leaves.
    #[error("{}: not a results file: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where, and what was expected there.
        what: String,
    },
    /// It is from another version of the suite.
    #[error("{}: results format {format}; this version reads format {FORMAT}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
}

/// What every format has.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// The name of the results in the folder of a run.
pub const RESULTS_FILE: &str = "results.json";

/// Reads a results file, or the one in a run's folder.
///
/// Errors: what does not exist, is not a results file, or is of another format.
pub fn read(path: &Path) -> Result<Results, ReadError> {
    let in_folder = path.join(RESULTS_FILE);
    let path = if path.is_dir() { &in_folder } else { path };
    let bytes =
        read_bounded(path).map_err(|error| ReadError::Io { path: path.to_owned(), error })?;
    let malformed = |error: serde_json::Error| ReadError::Malformed {
        path: path.to_owned(),
        what: error.to_string(),
    };
    // The format comes first: of another one nothing else need be where it is here.
    let Head { format } = serde_json::from_slice(&bytes).map_err(malformed)?;
    if format != FORMAT {
        return Err(ReadError::Format { path: path.to_owned(), format });
    }
    serde_json::from_slice(&bytes).map_err(malformed)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}
