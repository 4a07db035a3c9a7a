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
        let kelvin = format!("{}; not the same: {}", show(&kelvin), self.find().join(", "));
        Err(Difference { step: 0, redis: show(&redis), kelvin })
    }

    /// Some of the keys whose values differ.
    fn find(&mut self) -> Vec<String> {
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
                found.extend(differing.map(|(key, _)| format!("db {db} \"{}\"", lossy(key))));
            }
        }
        found.truncate(SHOWN_KEYS);
        found
    }

    fn both(&mut self, request: &[&[u8]]) -> [Frame; 2] {
        [&mut self.redis, &mut self.kelvin].map(|client| {
            client.send_bytes(request);
            client.read()
        })
    }
}

/// Selects a database and meets its keys, which removes those whose time has come.
fn keys_of(client: &mut Client, db: usize) -> Vec<Vec<u8>> {
    let reply = client.call(&["SELECT", &db.to_string()]);
    assert_eq!(reply, Frame::Simple(b"OK".to_vec()));
    walk(client, &vec![b"COUNT".to_vec(), b"1000".to_vec()]).into_iter().collect()
}
