//! Where a result goes. Files are opened before the load, so that one that cannot be written is known
//! at once and not after hours; what is in them stays until there is a result.

use crate::{LoadError, Options, Report, hdr};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The open files of a load.
pub struct Outputs {
    /// None: the text goes to the standard output.
    text: Option<OutputFile>,
    json: Option<OutputFile>,
    hdr_prefix: Option<String>,
}

struct OutputFile {
    path: String,
    file: File,
}

impl Outputs {
    /// Opens what the options name.
    ///
    /// Errors: [`LoadError::File`].
    pub fn open(options: &Options) -> Result<Self, LoadError> {
        if let Some(prefix) = &options.hdr_file_prefix {
            OutputFile::open(Path::new(&hdr::first_file(prefix)))?;
        }
        Ok(Self {
            text: options.out_file.as_deref().map(OutputFile::open).transpose()?,
            json: options.json_out_file.as_deref().map(OutputFile::open).transpose()?,
            hdr_prefix: options.hdr_file_prefix.clone(),
        })
    }

    /// Writes the result. All files are tried before a failure is told.
    ///
    /// Errors: [`LoadError::File`], also for the standard output.
    pub fn write(self, report: &Report) -> Result<(), LoadError> {
        let text = match self.text {
            Some(file) => file.write(&report.to_string()),
            None => stdx::output::print(report.to_string())
                .map_err(|source| LoadError::File { path: "the standard output".into(), source }),
        };
        let json = self.json.map(|file| file.write(&format!("{:#}\n", report.to_json())));
        let hdr = self.hdr_prefix.map(|prefix| hdr::write_files(report, &prefix));
        text.and(json.unwrap_or(Ok(()))).and(hdr.unwrap_or(Ok(())))
    }
}

impl OutputFile {
    fn open(path: &Path) -> Result<Self, LoadError> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let path = path.display().to_string();
        match file {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(LoadError::File { path, source }),
        }
    }

    fn write(mut self, text: &str) -> Result<(), LoadError> {
        let written = self.replace(text);
        written.map_err(|source| LoadError::File { path: self.path, source })
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        // A pipe or a device has no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}
