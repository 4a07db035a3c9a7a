//! Whether both servers hold the same data: all keys, values and expiries of all databases, by the
//! digests that DEBUG DIGEST answers.
//!
//! Time does not come into it. A digest tells that a key expires, not when, and no time that is set
//! comes while the test runs: the nearest is 100,000 seconds away (`commands`, `words`). What was
//! set with a time long past stays in Redis until somebody meets it, so all keys are met first.

use resp::Frame;

use super::runner::{Difference, lossy, walk};
use super::support::{Client, show};

const DATABASES: usize = 16;
/// Keys whose digests are asked for at once, to find those that differ.
const KEYS_AT_ONCE: usize = 1_000;
/// Keys that a difference names.
const SHOWN_KEYS: usize = 10;

/// A connection to each server that does nothing else, so that it is in no transaction.
pub struct DigestPair {
    pub redis: Client,
    pub kelvin: Client,
}

impl DigestPair {
    /// Compares the data sets. Errors: how they differ.
    pub fn compare(&mut self) -> Result<(), Difference> {
        for client in [&mut self.redis, &mut self.kelvin] {
            (0..DATABASES).for_each(|db| {
                keys_of(client, db);
            });
        }
        let [redis, kelvin] = self.both(&[b"DEBUG", b"DIGEST"]);
        if redis == kelvin && matches!(redis, Frame::Simple(_)) {
            return Ok(());
        }
        Err(Difference { step: 0, redis: show(&redis), kelvin: not_the_same(&self.find()) })
    }

    /// The same where Kelvin alone was started again on what it has saved. A small sorted set is packed in what is
    /// saved, and loses the sign of a zero, as in Redis; one that has grown since still has it in Redis.
    pub fn compare_started_again(&mut self) -> Result<(), Difference> {
        let mut keys = self.find();
        keys.retain(|key| !self.is_same_but_for_signs_of_zero(key));
        match keys.is_empty() {
            true => Ok(()),
            false => Err(Difference { step: 0, redis: String::new(), kelvin: not_the_same(&keys) }),
        }
    }

    /// The keys whose values differ, with their databases.
    fn find(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut found = Vec::new();
        for db in 0..DATABASES {
            let mut keys = keys_of(&mut self.redis, db);
            keys.extend(keys_of(&mut self.kelvin, db));
            keys.sort_unstable();
            keys.dedup();
            for some in keys.chunks(KEYS_AT_ONCE) {
                let mut request: Vec<&[u8]> = vec![b"DEBUG", b"DIGEST-VALUE"];
                request.extend(some.iter().map(Vec::as_slice));
                let replies = self.both(&request);
                let [Frame::Array(redis), Frame::Array(kelvin)] = &replies else {
                    panic!("DIGEST-VALUE answers {}", replies.each_ref().map(show).join(" and "));
                };
                let pairs = some.iter().zip(redis.iter().zip(kelvin));
                let differing = pairs.filter(|(_, (redis, kelvin))| redis != kelvin);
                found.extend(differing.map(|(key, _)| (db, key.clone())));
            }
        }
        found
    }

    /// Whether a key holds sorted sets that do not differ but in signs of zeros.
    fn is_same_but_for_signs_of_zero(&mut self, (db, key): &(usize, Vec<u8>)) -> bool {
        self.both(&[b"SELECT", db.to_string().as_bytes()]);
        let lifetimes = self.both(&[b"PEXPIRETIME", key]);
        let sets = self.both(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]);
        let [redis, kelvin] = sets.map(|reply| match reply {
            Frame::Array(items) => Some(items.iter().map(unsigned_zero).collect::<Vec<_>>()),
            _ => None,
        });
        redis.is_some() && redis == kelvin && lifetimes[0] == lifetimes[1]
    }

    fn both(&mut self, request: &[&[u8]]) -> [Frame; 2] {
        [&mut self.redis, &mut self.kelvin].map(|client| {
            client.send_bytes(request);
            client.read()
        })
    }
}

/// A score without the sign of a zero. A member of that name would be taken for one, in both.
fn unsigned_zero(item: &Frame) -> Frame {
    match item {
        Frame::Bulk(bytes) if bytes.as_slice() == b"-0" => Frame::Bulk(b"0".to_vec()),
        other => other.clone(),
    }
}

fn not_the_same(keys: &[(usize, Vec<u8>)]) -> String {
    let name = |(db, key): &(usize, Vec<u8>)| format!("db {db} \"{}\"", lossy(key));
    let names: Vec<String> = keys.iter().take(SHOWN_KEYS).map(name).collect();
    format!("not the same: {} keys, {}", keys.len(), names.join(", "))
}

/// Selects a database and meets its keys, which removes those whose time has come.
fn keys_of(client: &mut Client, db: usize) -> Vec<Vec<u8>> {
    let reply = client.call(&["SELECT", &db.to_string()]);
    assert_eq!(reply, Frame::Simple(b"OK".to_vec()));
    walk(client, &vec![b"COUNT".to_vec(), b"1000".to_vec()]).into_iter().collect()
}
