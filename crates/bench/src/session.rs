//! What is said on a connection before the load: the protocol's version, who is there, which
//! database; and the questions that are asked of a cluster. One request at a time, waiting for the
//! reply.

use crate::stream::Stream;
use crate::target::{Address, Target};
use resp::{Frame, parse_frame};
use std::io::{self, Read, Write};

/// Longest reply that is waited for, in bytes: CLUSTER SLOTS of a thousand nodes is far less.
const REPLY_BYTES_MAX: usize = 16 << 20;
/// Bytes that one read takes.
const READ_BYTES: usize = 64 << 10;

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system said so.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The server refused a request of the greeting.
    #[error("{command} was refused: {text}")]
    Refused {
        /// The request.
        command: &'static str,
        /// The error reply.
        text: String,
    },
}

/// Connects to `address` and greets the server; the stream does not block any longer.
///
/// Errors: [`OpenError`].
pub fn open(target: &Target, address: &Address) -> Result<Stream, OpenError> {
    let stream = open_blocking(target, address)?;
    stream.unblock()?;
    Ok(stream)
}

/// Connects to `address` and greets the server, for [`ask`].
///
/// Errors: [`OpenError`].
pub fn open_blocking(target: &Target, address: &Address) -> Result<Stream, OpenError> {
    let mut stream = Stream::connect(target.tls.as_ref(), address)?;
    let greeting = &target.greeting;
    let credentials = greeting.credentials.as_ref().map(|(user, password)| (user, password));
    // HELLO carries the credentials, for a server that answers nothing without them.
    if let Some(protocol) = greeting.protocol {
        let version = protocol.to_string();
        let mut words = vec!["HELLO", &version];
        if let Some((user, password)) = &credentials {
            words.extend(["AUTH", user.as_deref().unwrap_or("default"), password]);
        }
        insist(&mut stream, "HELLO", &words)?;
    } else if let Some((user, password)) = &credentials {
        let words: Vec<&str> =
            ["AUTH"].into_iter().chain(user.as_deref()).chain([password.as_str()]).collect();
        insist(&mut stream, "AUTH", &words)?;
    }
    if let Some(database) = greeting.database {
        insist(&mut stream, "SELECT", &["SELECT", &database.to_string()])?;
    }
    // Without any of these TLS would shake hands with the first request only, and its failures
    // would look like lost connections.
    if target.tls.is_some() {
        ask(&mut stream, &["PING"])?;
    }
    Ok(stream)
}

fn insist(stream: &mut Stream, command: &'static str, words: &[&str]) -> Result<(), OpenError> {
    match ask(stream, words)? {
        Frame::Error(text) | Frame::BulkError(text) => {
            Err(OpenError::Refused { command, text: String::from_utf8_lossy(&text).into_owned() })
        }
        _ => Ok(()),
    }
}

/// Sends a request and waits for its reply.
///
/// Errors: the system's; `InvalidData` for what is no reply, or too long a one.
pub fn ask(stream: &mut Stream, words: &[&str]) -> io::Result<Frame> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    stream.write_all(&request)?;
    stream.flush()?;
    let mut reply = Vec::new();
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let size = match stream.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(size) => size,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer"));
            }
            Err(error) => return Err(error),
        };
        reply.extend_from_slice(&chunk[..size]);
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        match parse_frame(&reply) {
            Ok(Some((frame, used))) if used == reply.len() => return Ok(frame),
            Ok(Some(_)) => return Err(invalid("more replies than requests".to_owned())),
            Ok(None) if reply.len() > REPLY_BYTES_MAX => {
                return Err(invalid("the reply is too long".to_owned()));
            }
            Ok(None) => {}
            Err(error) => return Err(invalid(error.to_string())),
        }
    }
}
