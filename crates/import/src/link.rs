//! The connection: requests go out as they come, and a thread looks at the replies.

use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use resp::{Frame, parse_frame};

use crate::error::ImportError;
use crate::files::Input;

/// Requests that are not answered yet.
const REQUESTS_MAX: usize = 512;
/// Bytes that are written at a time.
const WRITE_BYTES: usize = 256 << 10;
const READ_BYTES: usize = 64 << 10;
/// Bytes of a key that an error names.
const ABOUT_BYTES_MAX: usize = 128;

/// A request under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    words: usize,
    body: Vec<u8>,
}

impl Request {
    /// A request of these words.
    pub(crate) fn of(words: &[&[u8]]) -> Request {
        let mut request = Request::default();
        words.iter().for_each(|word| request.push(word));
        request
    }

    pub(crate) fn push(&mut self, word: &[u8]) {
        self.begin_word(word.len());
        self.body.extend_from_slice(word);
        self.body.extend_from_slice(b"\r\n");
        self.words += 1;
    }

    pub(crate) fn push_number(&mut self, number: u64) {
        self.push(number.to_string().as_bytes());
    }

    /// Adds a word of so many bytes from where it is read. False: there are fewer.
    pub(crate) fn read_word(&mut self, len: u64, from: &mut impl Read) -> io::Result<bool> {
        self.begin_word(usize::try_from(len).unwrap_or(usize::MAX));
        let read = from.take(len).read_to_end(&mut self.body)?;
        self.body.extend_from_slice(b"\r\n");
        self.words += 1;
        Ok(read as u64 == len)
    }

    /// The word of so many bytes that was added last.
    pub(crate) fn last_word(&self, len: usize) -> &[u8] {
        let end = self.body.len() - b"\r\n".len();
        &self.body[end - len..end]
    }

    fn begin_word(&mut self, len: usize) {
        self.body.extend_from_slice(format!("${len}\r\n").as_bytes());
    }

    pub(crate) fn bytes(&self) -> usize {
        self.body.len()
    }

    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        write!(to, "*{}\r\n", self.words)?;
        to.write_all(&self.body)
    }
}

/// Where requests go.
pub(crate) trait Destination {
    /// Sends a request; where it comes from, and what it is about, is told if the server does not take it.
    ///
    /// Errors: that of an earlier one; the connection is lost.
    fn send(
        &mut self,
        from: (&Input, u64),
        about: &[u8],
        request: &Request,
    ) -> Result<(), ImportError>;

    /// Has what follows be for a database.
    fn select(&mut self, input: &Input, offset: u64, db: u64) -> Result<(), ImportError>;

    /// What has been sent may have chosen another database.
    fn forget_db(&mut self);
}

/// Where the server is, and who asks.
pub(crate) struct Server<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) user: Option<&'a str>,
    pub(crate) password: Option<&'a str>,
}

/// A request that is not answered yet.
struct Asked {
    path: PathBuf,
    offset: u64,
    about: String,
}

impl Asked {
    fn rejected(self, says: &[u8]) -> ImportError {
        let says = String::from_utf8_lossy(says).into_owned();
        let Asked { path, offset, about } = self;
        ImportError::Rejected { path, offset, about, says }
    }
}

pub(crate) struct Link {
    output: BufWriter<TcpStream>,
    /// None once it has failed.
    asked: Option<SyncSender<Asked>>,
    replies: Option<JoinHandle<Result<(), ImportError>>>,
    /// The database that requests are for, if that is known.
    db: Option<u64>,
}

impl Link {
    /// Errors: there is no server, or it does not take requests.
    pub(crate) fn connect(server: &Server<'_>) -> Result<Link, ImportError> {
        let Server { host, port, user, password } = *server;
        let failed = |source| ImportError::Connect { address: format!("{host}:{port}"), source };
        let stream = TcpStream::connect((host, port)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let output = BufWriter::with_capacity(WRITE_BYTES, stream);
        let mut link = Link { output, asked: None, replies: None, db: Some(0) };
        if let Some(password) = password {
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(user.map(str::as_bytes));
            words.push(password.as_bytes());
            link.call(&words)?;
        }
        // Says whether it is loading, or wants a password.
        link.call(&[b"PING"])?;
        Ok(link)
    }

    /// Errors: the server has keys.
    pub(crate) fn check_empty(&mut self) -> Result<(), ImportError> {
        let has_keys = match self.call(&[b"INFO", b"keyspace"])? {
            Frame::Bulk(text) | Frame::Verbatim(_, text) => {
                text.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"db"))
            }
            _ => return Err(ImportError::NoReply),
        };
        if has_keys { Err(ImportError::NotEmpty) } else { Ok(()) }
    }

    /// Asks something, with nothing under way. Errors: the server says no.
    fn call(&mut self, words: &[&[u8]]) -> Result<Frame, ImportError> {
        Request::of(words).write(&mut self.output)?;
        self.output.flush()?;
        let mut replies = Replies { stream: self.output.get_ref(), received: Vec::new(), taken: 0 };
        match replies.next()? {
            Frame::Error(text) | Frame::BulkError(text) => {
                Err(ImportError::Refused(String::from_utf8_lossy(&text).into_owned()))
            }
            frame => Ok(frame),
        }
    }

    fn start(&mut self) -> Result<(), ImportError> {
        let stream = self.output.get_ref().try_clone()?;
        let (sender, receiver) = sync_channel(REQUESTS_MAX);
        let watch = move || watch(&stream, &receiver);
        self.replies = Some(std::thread::Builder::new().name("replies".into()).spawn(watch)?);
        self.asked = Some(sender);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        self.output.flush().map_err(|error| self.failure(error.into()))
    }

    /// Waits for all replies. Errors: the server did not take something.
    pub(crate) fn finish(&mut self) -> Result<(), ImportError> {
        self.flush()?;
        self.asked = None;
        self.join()
    }

    /// Why it has come to nothing: what the server said is told before what it led to.
    fn failure(&mut self, other: ImportError) -> ImportError {
        self.asked = None;
        let _ = self.output.get_ref().shutdown(Shutdown::Write);
        self.join().err().unwrap_or(other)
    }

    fn join(&mut self) -> Result<(), ImportError> {
        match self.replies.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(ImportError::NoReply),
        }
    }
}

impl Destination for Link {
    fn send(
        &mut self,
        (input, offset): (&Input, u64),
        about: &[u8],
        request: &Request,
    ) -> Result<(), ImportError> {
        if self.replies.is_none() {
            self.start()?;
        }
        let about = about[..about.len().min(ABOUT_BYTES_MAX)].escape_ascii().to_string();
        let asked = Asked { path: input.path.clone(), offset, about };
        match self.asked.as_ref().map(|sender| sender.try_send(asked)) {
            Some(Ok(())) => {}
            Some(Err(TrySendError::Full(asked))) => {
                // Those in front are answered only once they have left.
                self.flush()?;
                let sent = self.asked.as_ref().map(|sender| sender.send(asked));
                if !matches!(sent, Some(Ok(()))) {
                    return Err(self.failure(ImportError::Closed));
                }
            }
            _ => return Err(self.failure(ImportError::Closed)),
        }
        request.write(&mut self.output).map_err(|error| self.failure(error.into()))
    }

    fn select(&mut self, input: &Input, offset: u64, db: u64) -> Result<(), ImportError> {
        if self.db == Some(db) {
            return Ok(());
        }
        self.db = Some(db);
        let number = db.to_string();
        self.send((input, offset), b"SELECT", &Request::of(&[b"SELECT", number.as_bytes()]))
    }

    fn forget_db(&mut self) {
        self.db = None;
    }
}

/// Reads the replies to what was asked. After one that is an error nothing more is sent.
fn watch(stream: &TcpStream, asked: &Receiver<Asked>) -> Result<(), ImportError> {
    let mut replies = Replies { stream, received: Vec::new(), taken: 0 };
    for asked in asked {
        let result = match replies.next() {
            Ok(frame) => match error_in(&frame) {
                Some(text) => Err(asked.rejected(text)),
                None => Ok(()),
            },
            Err(error) => Err(error),
        };
        if result.is_err() {
            // Whoever writes is not to wait for a server that waits for a reader.
            let _ = stream.shutdown(Shutdown::Both);
            return result;
        }
    }
    Ok(())
}

/// The error that a reply is, or has: that of a transaction has one for each of its commands.
fn error_in(frame: &Frame) -> Option<&[u8]> {
    match frame {
        Frame::Error(text) | Frame::BulkError(text) => Some(text),
        Frame::Array(frames) => frames.iter().find_map(error_in),
        _ => None,
    }
}

struct Replies<'s> {
    stream: &'s TcpStream,
    received: Vec<u8>,
    /// Bytes of `received` that have been read as replies.
    taken: usize,
}

impl Replies<'_> {
    fn next(&mut self) -> Result<Frame, ImportError> {
        loop {
            match parse_frame(&self.received[self.taken..]) {
                Err(_) => return Err(ImportError::NoReply),
                Ok(Some((frame, len))) => {
                    self.taken += len;
                    return Ok(frame);
                }
                Ok(None) => {}
            }
            self.received.drain(..std::mem::take(&mut self.taken));
            let mut chunk = [0; READ_BYTES];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ImportError::Closed),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
