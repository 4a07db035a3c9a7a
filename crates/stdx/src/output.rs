//! What command-line programs print.
//!
//! `print!` and `eprintln!` panic when nothing can be written. Here, as in other programs of Unix,
//! a reader that has gone away, such as `head`, has what it wanted: that is no failure. Any other
//! failure, such as a full disk, is for the caller to report.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// Writes all of `text` to the standard output.
///
/// Errors: it cannot be written, for another reason than that nobody reads it.
pub fn print(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut output = io::stdout().lock();
    unless_closed(output.write_all(text.as_ref()).and_then(|()| output.flush()))
}

/// The outcome of writing to the standard output, where a reader that has gone away is no failure.
///
/// Errors: those of `written` but for a closed pipe.
pub fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// How `program` ends once it has written to the standard output all that it was asked for: with
/// `failure` and a complaint when it could not.
pub fn exit_code(program: &str, written: io::Result<()>, failure: u8) -> ExitCode {
    match unless_closed(written.and_then(|()| io::stdout().flush())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(program, format_args!("standard output: {error}"));
            ExitCode::from(failure)
        }
    }
}

/// Writes a line about `what` went wrong in `program` to the standard error. When that cannot be
/// written, there is nobody to tell.
pub fn complain(program: &str, what: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{program}: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_pipe_is_forgiven() {
        let failed = |kind: io::ErrorKind| unless_closed(Err(kind.into())).map_err(|e| e.kind());
        assert_eq!(failed(io::ErrorKind::BrokenPipe), Ok(()));
        assert_eq!(failed(io::ErrorKind::StorageFull), Err(io::ErrorKind::StorageFull));
    }
}
