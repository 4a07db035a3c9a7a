//! The digests of DEBUG DIGEST and DEBUG DIGEST-VALUE, worked out while others are served.
//!
//! They are those of Redis 7.0, byte for byte. A key whose time has come counts until it is removed,
//! as there.

use std::collections::HashMap;

use command::collection::leaves;
use keyspace::{DB_COUNT, Key, Stored};
use tier::{FoundValue, UnreadableValue};
use value::Kind;
use value::digest::Digest;

use crate::state::worker::Worker;

/// What a digest is made of.
#[derive(Debug)]
pub(crate) enum DigestOf {
    /// All databases, in one digest. No snapshot: others may write meanwhile.
    DataSet,
    /// The values of keys of a database, each in a digest of its own.
    Values { db: u8, keys: Vec<Box<[u8]>> },
}

/// Digests, or why there are none.
pub(crate) type Digests = Result<Vec<Digest>, UnreadableValue>;

impl DigestOf {
    /// Reads all that it takes. Cold values are read in bounded batches; none is promoted.
    pub(crate) async fn run(self, worker: &Worker) -> Digests {
        match self {
            DigestOf::DataSet => data_set(worker).await.map(|digest| vec![digest]),
            DigestOf::Values { db, keys } => values(worker, db, &keys).await,
        }
    }
}

/// The sum over the keys of a database.
#[derive(Clone, Copy, Default)]
struct Sum {
    digest: Digest,
    has_keys: bool,
}

async fn data_set(worker: &Worker) -> Result<Digest, UnreadableValue> {
    let mut sums = [Sum::default(); DB_COUNT];
    let mut add = |db: u8, digest: Digest| {
        let sum = &mut sums[usize::from(db)];
        sum.digest.add(digest.as_bytes());
        sum.has_keys = true;
    };
    let mut large: Vec<(u8, Box<[u8]>)> = Vec::new();
    let mut visit = |found: FoundValue<'_>| {
        let mut digest = Digest::default();
        digest.chain(found.key);
        match chain_value(&mut digest, &found) {
            true => add(found.db, digest),
            false => large.push((found.db, found.key.into())),
        }
    };
    worker.tier.visit_all(&mut visit, others).await?;
    for (db, key) in large {
        let mut digest = Digest::default();
        digest.chain(&key);
        if chain_large(worker, &mut digest, db, &key)? {
            add(db, digest);
        }
        others().await;
    }
    let mut total = Digest::default();
    for (db, sum) in (0u32..).zip(sums).filter(|(_, sum)| sum.has_keys) {
        total.chain(&db.to_be_bytes());
        total ^= sum.digest;
    }
    Ok(total)
}

async fn values(worker: &Worker, db: u8, keys: &[Box<[u8]>]) -> Digests {
    let mut digests: HashMap<Box<[u8]>, Digest> = HashMap::new();
    let mut large: Vec<Box<[u8]>> = Vec::new();
    let mut visit = |found: FoundValue<'_>| {
        let mut digest = Digest::default();
        match chain_value(&mut digest, &found) {
            true => drop(digests.insert(found.key.into(), digest)),
            false => large.push(found.key.into()),
        }
    };
    worker.tier.visit_keys(db, keys, &mut visit, others).await?;
    for key in large {
        let mut digest = Digest::default();
        if chain_large(worker, &mut digest, db, &key)? {
            digests.insert(key, digest);
        }
        others().await;
    }
    // A key that is missing has zeros.
    Ok(keys.iter().map(|key| digests.get(key).copied().unwrap_or_default()).collect())
}

/// Adds a value, unless it is a large collection, of which the root alone was found.
fn chain_value(digest: &mut Digest, found: &FoundValue<'_>) -> bool {
    let kind = Kind::from_bits(found.kind);
    if !kind.is_tree() {
        digest.chain_value(kind, found.value, found.expire_at_ms != 0);
    }
    !kind.is_tree()
}

/// Adds a large collection, its leaves on flash being read one by one with its slot held. False: the key
/// has got another value meanwhile.
fn chain_large(
    worker: &Worker,
    digest: &mut Digest,
    db: u8,
    key: &[u8],
) -> Result<bool, UnreadableValue> {
    let (tier, key) = (&worker.server.tier, Key::new(key));
    let slot = tier.keyspace.lock(key.slot);
    let table = tier.keyspace.table_of(db);
    let Some(view) = slot.view(table, &key) else { return Ok(false) };
    let kind = Kind::from_bits(view.kind);
    if !kind.is_tree() {
        return Ok(false);
    }
    digest.chain_type(kind);
    for leaf in leaves(&slot, table, &key) {
        let found = slot.view(leaf.table(), &leaf.key());
        let found = found.expect("invariant: a leaf that a branch names is there");
        match found.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => digest.chain_elements(kind, bytes),
            Stored::Cold(at, value_len) => {
                let want = tier.want(&leaf.key(), at, value_len);
                let fetched = worker.tier.fetch_blocking(vec![want]);
                match fetched.value(want.record) {
                    Some(bytes) => digest.chain_elements(kind, bytes),
                    None => {
                        let failure = fetched.failure(want.record).unwrap_or("it is gone");
                        return Err(UnreadableValue(failure.to_owned()));
                    }
                }
            }
        }
    }
    digest.end_value(view.expire_at_ms != 0);
    Ok(true)
}

/// Gives other tasks their turn. Tokio looks at the sockets before it comes back from this.
async fn others() {
    tokio::task::yield_now().await;
}
