//! The digests of DEBUG DIGEST and DEBUG DIGEST-VALUE, worked out while others are served.
//!
//! They are those of Redis 7.0, byte for byte. A key whose time has come counts until it is removed,
//! as there.

use std::collections::HashMap;

use keyspace::DB_COUNT;
use tier::{FoundValue, UnreadableValue};
use value::Kind;
use value::digest::Digest;

use crate::session::digest_long::chain_long;
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
    let mut long: Vec<(u8, Box<[u8]>)> = Vec::new();
    let mut visit = |found: FoundValue<'_>| {
        let mut digest = Digest::default();
        digest.chain(found.key);
        match chain_value(&mut digest, &found) {
            true => add(found.db, digest),
            false => long.push((found.db, found.key.into())),
        }
    };
    worker.tier.visit_all(&mut visit, others, async || pause(worker).await).await?;
    for (db, key) in long {
        let mut digest = Digest::default();
        digest.chain(&key);
        if let Some(digest) = chain_long(worker, digest, db, &key).await? {
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
    let mut long: Vec<Box<[u8]>> = Vec::new();
    let mut visit = |found: FoundValue<'_>| {
        let mut digest = Digest::default();
        match chain_value(&mut digest, &found) {
            true => drop(digests.insert(found.key.into(), digest)),
            false => long.push(found.key.into()),
        }
    };
    worker.tier.visit_keys(db, keys, &mut visit, others, async || pause(worker).await).await?;
    for key in long {
        if let Some(digest) = chain_long(worker, Digest::default(), db, &key).await? {
            digests.insert(key, digest);
        }
        others().await;
    }
    // A key that is missing has zeros.
    Ok(keys.iter().map(|key| digests.get(key).copied().unwrap_or_default()).collect())
}

/// Adds a value, unless it is long: a large collection, of which the root alone was found, or a string.
fn chain_value(digest: &mut Digest, found: &FoundValue<'_>) -> bool {
    let kind = Kind::from_bits(found.kind);
    match found.value {
        Some(value) if !kind.is_tree() => {
            digest.chain_value(kind, value, found.expire_at_ms != 0);
            true
        }
        _ => false,
    }
}

/// Gives other tasks their turn. Tokio looks at the sockets before it comes back from this.
pub(super) async fn others() {
    tokio::task::yield_now().await;
}

/// Waits a little: for what others make, such as memory.
pub(super) async fn pause(worker: &Worker) {
    worker.upkeep_tick.notified().await;
}
