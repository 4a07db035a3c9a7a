//! A connection to the server for what the suite itself asks: INFO, DBSIZE, FLUSHALL.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use resp::{Frame, Reply, parse_frame};

use crate::error::SuiteError;

/// A reply that takes longer is none: the server hangs.
const REPLY_SECONDS_MAX: u64 = 30;
/// INFO has some KiB.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// A connection.
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    /// Connects to `host:port`.
    pub fn connect(address: &str) -> Result<Client, SuiteError> {
        let fail = |error: String| SuiteError::Server(format!("{address}: {error}"));
        let wait = Duration::from_secs(REPLY_SECONDS_MAX);
        let mut addresses = address.to_socket_addrs().map_err(|error| fail(error.to_string()))?;
        let first = addresses.next().ok_or_else(|| fail("no such host".to_owned()))?;
        let stream =
            TcpStream::connect_timeout(&first, wait).map_err(|error| fail(error.to_string()))?;
        stream
            .set_read_timeout(Some(wait))
            .and_then(|()| stream.set_write_timeout(Some(wait)))
            .map_err(|error| fail(error.to_string()))?;
        Ok(Client { stream, received: Vec::new() })
    }

    /// Sends a command and reads its reply. After an error the connection is of no more use.
    ///
    /// Errors: no reply, and replies that are errors.
    pub fn call(&mut self, words: &[&str]) -> Result<Frame, SuiteError> {
        let mut request = Reply::default();
        request.array(words.len());
        words.iter().for_each(|word| request.bulk(word.as_bytes()));
        let fail = |what: String| SuiteError::Server(format!("{}: {what}", words.join(" ")));
        self.stream.write_all(request.as_slice()).map_err(|error| fail(error.to_string()))?;
        match self.read().map_err(fail)? {
            Frame::Error(text) => Err(fail(String::from_utf8_lossy(&text).into_owned())),
            frame => Ok(frame),
        }
    }

    fn read(&mut self) -> Result<Frame, String> {
        self.received.clear();
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some((frame, _)) = parse_frame(&self.received).map_err(|e| e.to_string())? {
                return Ok(frame);
            }
            let count = match self.stream.read(&mut chunk) {
                // Stopped in a read that has a timeout, and continued.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count.map_err(|error| error.to_string())?,
            };
            if count == 0 || self.received.len() > REPLY_BYTES_MAX {
                return Err("the server closed the connection".to_owned());
            }
            self.received.extend_from_slice(&chunk[..count]);
        }
    }

    /// All that INFO says.
    pub fn info(&mut self) -> Result<Info, SuiteError> {
        match self.call(&["INFO", "everything"])? {
            Frame::Bulk(text) | Frame::Verbatim(_, text) => {
                Ok(Info::parse(&String::from_utf8_lossy(&text)))
            }
            other => Err(SuiteError::Server(format!("INFO answers {other:?}"))),
        }
    }

    /// How many keys there are.
    pub fn key_count(&mut self) -> Result<u64, SuiteError> {
        match self.call(&["DBSIZE"])? {
            Frame::Integer(count) => Ok(count.unsigned_abs()),
            other => Err(SuiteError::Server(format!("DBSIZE answers {other:?}"))),
        }
    }
}

/// Fields of INFO by name.
#[derive(Debug, Clone, Default)]
pub struct Info {
    fields: HashMap<String, String>,
}

impl Info {
    /// Takes the text apart.
    pub fn parse(text: &str) -> Info {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Info { fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect() }
    }

    /// A field as a number; none where the server has no such field.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.fields.get(name)?.parse().ok()
    }

    /// A field as it is.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::Info;

    #[test]
    fn fields_are_numbers_where_they_are() {
        let info = Info::parse("# Server\r\nredis_version:7.0.15\r\nuptime:12\r\nratio:0.5\r\n");
        assert_eq!(info.text("redis_version"), Some("7.0.15"));
        assert_eq!(info.number("uptime"), Some(12_u64));
        assert_eq!(info.number("ratio"), Some(0.5));
        assert_eq!(info.number::<u64>("redis_version"), None);
        assert_eq!(info.number::<u64>("missing"), None);
    }
}
