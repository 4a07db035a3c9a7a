//! Sends steps to both servers and compares what comes back.

use std::collections::BTreeSet;

use resp::{Frame, Reply};

use super::commands::Rule;
use super::compare::{same, same_all};
use super::digest::DigestPair;
use super::generator::{Action, CONNECTIONS, Step, Words};
use super::support::{Client, Server};

/// A walk with SCAN that takes more calls than this does not end.
const WALK_CALLS_MAX: usize = 100_000;

/// What TIER may answer when there is little flash, and commands on hashes of a key of another type.
const KELVINS_ERRORS: [&[u8]; 2] =
    [b"ERR flash is full", b"WRONGTYPE Operation against a key holding the wrong kind of value"];

/// A pair of servers.
pub struct Pair {
    pub redis: Server,
    pub kelvin: Server,
}

/// Connections to a pair of servers.
pub struct Runner {
    redis: Vec<Client>,
    kelvin: Vec<Client>,
    /// Of each connection: what MULTI has queued, by the replies of Redis.
    queued: Vec<Option<Vec<Rule>>>,
    /// Whether a MULTI has been sent and not ended.
    in_transaction: Vec<bool>,
    digest: DigestPair,
}

/// Where and how the servers differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Index of the step.
    pub step: usize,
    pub redis: String,
    pub kelvin: String,
}

impl Pair {
    /// Removes all data.
    pub fn flush(&self) {
        for server in [&self.redis, &self.kelvin] {
            let reply = server.connect().call(&["FLUSHALL"]);
            assert_eq!(reply, Frame::Simple(b"OK".to_vec()));
        }
    }

    /// New connections.
    pub fn connect(&self) -> Runner {
        Runner {
            redis: (0..CONNECTIONS).map(|_| self.redis.connect()).collect(),
            kelvin: (0..CONNECTIONS).map(|_| self.kelvin.connect()).collect(),
            queued: vec![None; CONNECTIONS],
            in_transaction: vec![false; CONNECTIONS],
            digest: DigestPair { redis: self.redis.connect(), kelvin: self.kelvin.connect() },
        }
    }
}

impl Runner {
    /// Runs steps, those of one turn as one pipeline, up to the first difference.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), Difference> {
        let mut done = 0;
        for turn in steps.chunk_by(|one, two| one.turn == two.turn) {
            self.run_turn(turn).map_err(|mut difference| {
                difference.step += done;
                difference
            })?;
            done += turn.len();
        }
        Ok(())
    }

    fn run_turn(&mut self, steps: &[Step]) -> Result<(), Difference> {
        let connection = steps[0].connection;
        match steps {
            [Step { action: Action::Scan(words), .. }] => return self.walk(connection, words),
            [Step { action: Action::Digest, .. }] => return self.digest.compare(),
            _ => {}
        }
        let (mut for_redis, mut for_kelvin) = (Reply::default(), Reply::default());
        let mut sent = vec![true; steps.len()];
        for (index, step) in steps.iter().enumerate() {
            match &step.action {
                Action::Both(words, _) => {
                    self.note_transaction(connection, words);
                    write(&mut for_redis, words);
                    write(&mut for_kelvin, words);
                }
                // A shortened run may have lost the EXEC before it.
                Action::Kelvin(_) if self.in_transaction[connection] => sent[index] = false,
                Action::Kelvin(words) => write(&mut for_kelvin, words),
                Action::Scan(_) | Action::Digest => sent[index] = false,
            }
        }
        self.redis[connection].write(for_redis.as_slice());
        self.kelvin[connection].write(for_kelvin.as_slice());
        // After a difference the rest is read all the same, so that the servers come to rest.
        let mut result = Ok(());
        for (index, step) in steps.iter().enumerate().filter(|(index, _)| sent[*index]) {
            if let (Err((redis, kelvin)), Ok(())) = (self.read_replies(connection, step), &result) {
                result = Err(Difference { step: index, redis, kelvin });
            }
        }
        result
    }

    fn note_transaction(&mut self, connection: usize, words: &Words) {
        match words[0].to_ascii_uppercase().as_slice() {
            b"MULTI" if words.len() == 1 => self.in_transaction[connection] = true,
            b"EXEC" | b"DISCARD" | b"RESET" if words.len() == 1 => {
                self.in_transaction[connection] = false;
            }
            _ => {}
        }
    }

    fn read_replies(&mut self, connection: usize, step: &Step) -> Result<(), (String, String)> {
        let read = |client: &mut Client| client.try_read();
        let Action::Both(words, rule) = &step.action else {
            return match read(&mut self.kelvin[connection]) {
                Some(Frame::Error(text)) if !KELVINS_ERRORS.contains(&&*text) => {
                    Err(("no error".into(), lossy(&text)))
                }
                Some(_) => Ok(()),
                None => Err(("a reply".into(), "the connection was closed".into())),
            };
        };
        let redis = read(&mut self.redis[connection]).expect("redis-server answers");
        let Some(kelvin) = read(&mut self.kelvin[connection]) else {
            return Err((show(&redis), "the connection was closed".into()));
        };
        let name = words[0].to_ascii_uppercase();
        let rules = match name.as_slice() {
            b"EXEC" if words.len() == 1 => self.queued[connection].take(),
            _ => None,
        };
        let is_same = match &rules {
            Some(rules) => same_all(rules, &redis, &kelvin),
            None => same(*rule, &redis, &kelvin),
        };
        let queued = &mut self.queued[connection];
        match (name.as_slice(), &redis) {
            (b"MULTI", Frame::Simple(_)) => *queued = Some(Vec::new()),
            (b"DISCARD" | b"RESET", Frame::Simple(_)) => *queued = None,
            (_, Frame::Simple(text)) if text == b"QUEUED" => {
                queued.iter_mut().for_each(|rules| rules.push(*rule));
            }
            _ => {}
        }
        if is_same { Ok(()) } else { Err((show(&redis), show(&kelvin))) }
    }

    fn walk(&mut self, connection: usize, words: &Words) -> Result<(), Difference> {
        if self.in_transaction[connection] {
            return Ok(());
        }
        let redis = walk(&mut self.redis[connection], words);
        let kelvin = walk(&mut self.kelvin[connection], words);
        if redis == kelvin {
            return Ok(());
        }
        let missing: Vec<String> = redis.difference(&kelvin).map(|key| lossy(key)).collect();
        let extra: Vec<String> = kelvin.difference(&redis).map(|key| lossy(key)).collect();
        let kelvin = format!("without {missing:?}, with {extra:?}");
        Err(Difference { step: 0, redis: format!("{} keys", redis.len()), kelvin })
    }
}

/// The keys that a whole walk with SCAN finds.
pub fn walk(client: &mut Client, words: &Words) -> BTreeSet<Vec<u8>> {
    let mut keys = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    for _ in 0..WALK_CALLS_MAX {
        let mut request: Vec<&[u8]> = vec![b"SCAN", &cursor];
        request.extend(words.iter().map(Vec::as_slice));
        client.send_bytes(&request);
        let Frame::Array(mut parts) = client.read() else { panic!("SCAN answers an array") };
        let (Some(Frame::Array(found)), Some(Frame::Bulk(next))) = (parts.pop(), parts.pop())
        else {
            panic!("SCAN answers a cursor and keys");
        };
        keys.extend(found.into_iter().map(|key| match key {
            Frame::Bulk(key) => key,
            other => panic!("{other:?} is no key"),
        }));
        if next == b"0" {
            return keys;
        }
        cursor = next;
    }
    panic!("the walk does not end");
}

fn write(request: &mut Reply, words: &Words) {
    request.array(words.len());
    words.iter().for_each(|word| request.bulk(word));
}

fn show(frame: &Frame) -> String {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    shorten(&bytes)
}

/// Bytes for people: escaped.
pub fn lossy(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Bytes for people: escaped, and cut when there are many.
pub fn shorten(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 300;
    match bytes.len() {
        0..=SHOWN_BYTES_MAX => lossy(bytes),
        len => format!("{}... ({len} bytes)", lossy(&bytes[..SHOWN_BYTES_MAX])),
    }
}
