//! A server that keeps keys in a map, records every request, and can be told to do wrong.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the server does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// One bit of the value of keys that end in 7.
    Bit,
    /// The last byte is missing from the value of keys that end in 7.
    Short,
    /// Keys that end in 7 are not found.
    Missing,
    /// GETs of keys that end in 7 are refused.
    Error,
    /// The connection closes at the first GET of a key that ends in 7.
    Close,
    /// Two replies to GETs of keys that end in 7.
    Twice,
    /// No reply at all, but noise, to GETs of keys that end in 7.
    Noise,
    /// Every connection stands still once, at the same time, for so long: the first request to come
    /// after so many is answered late, and all that come meanwhile after it.
    Stall {
        after: usize,
        pause: Duration,
    },
}

/// A request: its words.
pub type Request = Vec<Vec<u8>>;

/// The server; its threads end with their connections.
pub struct Recorder {
    pub port: u16,
    state: Arc<State>,
}

struct State {
    fault: Fault,
    map: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    /// By connection, in the order they came.
    requests: Mutex<Vec<Vec<Request>>>,
    /// Requests so far; held while the server stands still.
    count: Mutex<usize>,
}

impl Recorder {
    pub fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State {
            fault,
            map: Mutex::default(),
            requests: Mutex::default(),
            count: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                let state = Arc::clone(&shared);
                state.requests.lock().expect("a lock").push(Vec::new());
                // A load that has seen enough closes: that ends the thread.
                std::thread::spawn(move || state.serve(stream.expect("a stream"), index));
            }
        });
        Self { port, state }
    }

    /// Requests that have come so far.
    pub fn request_count(&self) -> usize {
        *self.state.count.lock().expect("a lock")
    }

    /// Keys that are there.
    pub fn key_count(&self) -> usize {
        self.state.map.lock().expect("a lock").len()
    }

    /// What came, by connection; forgets it.
    pub fn take_by_connection(&self) -> Vec<Vec<Request>> {
        let mut requests = self.state.requests.lock().expect("a lock");
        let taken = requests.iter_mut().map(std::mem::take).collect::<Vec<_>>();
        taken.into_iter().filter(|requests| !requests.is_empty()).collect()
    }

    /// What came on all connections; forgets it.
    pub fn take(&self) -> Vec<Request> {
        self.take_by_connection().into_iter().flatten().collect()
    }
}

impl State {
    fn serve(&self, stream: TcpStream, index: usize) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut output = stream.try_clone().ok()?;
        let mut input = BufReader::new(stream);
        loop {
            let words = read_request(&mut input)?;
            self.requests.lock().expect("a lock")[index].push(words.clone());
            self.stall();
            let reply = self.answer(&words)?;
            output.write_all(&reply).ok()?;
        }
    }

    fn stall(&self) {
        let mut count = self.count.lock().expect("a lock");
        *count += 1;
        if let Fault::Stall { after, pause } = self.fault
            && *count == after
        {
            std::thread::sleep(pause);
        }
    }

    /// The reply; none closes the connection.
    fn answer(&self, words: &[Vec<u8>]) -> Option<Vec<u8>> {
        let mut map = self.map.lock().expect("a lock");
        let odd = words.get(1).is_some_and(|key| key.ends_with(b"7")) && words[0] == b"GET";
        Some(match (&words[0][..], self.fault) {
            (b"SET", _) => {
                map.insert(words[1].clone(), words[2].clone());
                b"+OK\r\n".to_vec()
            }
            (b"SETEX", _) => {
                map.insert(words[1].clone(), words[3].clone());
                b"+OK\r\n".to_vec()
            }
            (b"WAIT", _) => b":0\r\n".to_vec(),
            (b"MGET", _) => {
                let values = words[1..].iter().map(|key| encode(map.get(key).cloned()));
                let head = format!("*{}\r\n", words.len() - 1).into_bytes();
                [head, values.collect::<Vec<_>>().concat()].concat()
            }
            (b"CLUSTER", _) => b"-ERR This instance has cluster support disabled\r\n".to_vec(),
            (b"GET", Fault::Missing) if odd => b"$-1\r\n".to_vec(),
            (b"GET", Fault::Error) if odd => b"-ERR seven\r\n".to_vec(),
            (b"GET", Fault::Noise) if odd => b"seven\r\n".to_vec(),
            (b"GET", Fault::Close) if odd => return None,
            (b"GET", fault) => {
                let mut value = map.get(&words[1]).cloned();
                match (&mut value, fault) {
                    (Some(value), Fault::Bit) if odd => value[0] ^= 1,
                    (Some(value), Fault::Short) if odd => drop(value.pop()),
                    _ => {}
                }
                let reply = encode(value);
                if fault == Fault::Twice && odd { reply.repeat(2) } else { reply }
            }
            _ => b"+OK\r\n".to_vec(),
        })
    }
}

fn encode(value: Option<Vec<u8>>) -> Vec<u8> {
    match value {
        Some(value) => [format!("${}\r\n", value.len()).as_bytes(), &value[..], b"\r\n"].concat(),
        None => b"_\r\n".to_vec(),
    }
}

fn read_request(input: &mut impl BufRead) -> Option<Request> {
    let count = read_head(input, b'*')?;
    (0..count)
        .map(|_| {
            let size = read_head(input, b'$')?;
            let mut word = vec![0; size + 2];
            input.read_exact(&mut word).ok()?;
            assert!(word.ends_with(b"\r\n"));
            word.truncate(size);
            Some(word)
        })
        .collect()
}

fn read_head(input: &mut impl BufRead, sign: u8) -> Option<usize> {
    let mut line = Vec::new();
    input.by_ref().take(32).read_until(b'\n', &mut line).ok()?;
    let digits = line.strip_suffix(b"\r\n")?.strip_prefix(&[sign])?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
