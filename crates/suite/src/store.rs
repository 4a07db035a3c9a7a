//! The folder of a run: `results.json`, rewritten whole after each test.
//!
//! Invariant: `results.json` is complete at every moment: a new one takes the old one's place by
//! renaming.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::SuiteError;
use crate::read::{RESULTS_FILE, read};
use crate::results::Results;

/// The folder.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// A new run's folder.
    ///
    /// Errors: it has the results of another run.
    pub fn create(folder: &Path) -> Result<Store, SuiteError> {
        let store = Store { folder: folder.to_owned() };
        if store.results_path().exists() {
            return Err(SuiteError::Options(format!(
                "{} has results already: go on with --resume {}, or choose another --out",
                folder.display(),
                folder.display()
            )));
        }
        fs::create_dir_all(store.raw_folder()).map_err(SuiteError::file(folder))?;
        Ok(store)
    }

    /// An earlier run's folder and its results.
    pub fn open(folder: &Path) -> Result<(Store, Results), SuiteError> {
        let store = Store { folder: folder.to_owned() };
        let results = read(&store.results_path())?;
        fs::create_dir_all(store.raw_folder()).map_err(SuiteError::file(folder))?;
        Ok((store, results))
    }

    /// Where the results are.
    pub fn results_path(&self) -> PathBuf {
        self.folder.join(RESULTS_FILE)
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where outputs of loads and logs of servers are kept.
    pub fn raw_folder(&self) -> PathBuf {
        self.folder.join("raw")
    }

    /// Writes the results as they are now.
    pub fn save(&self, results: &Results) -> Result<(), SuiteError> {
        let new = self.folder.join("results.json.new");
        let json = serde_json::to_vec_pretty(results)
            .expect("invariant: results have no maps with keys that are not texts");
        File::create(&new)
            .and_then(|mut file| {
                file.write_all(&json)?;
                file.sync_all()
            })
            .map_err(SuiteError::file(&new))?;
        let path = self.results_path();
        fs::rename(&new, &path).map_err(SuiteError::file(&path))
    }
}
