//! Values that are read from a file.

use keyspace::Key;
use rdb::file::KeyPart;
use rdb::{Error, Source};

use crate::collection::Encodings;
use crate::cx::Cx;
use crate::error::CommandResult;
use crate::family::restore::uses;
use crate::family::restored::Restored;

/// A value that was read, before a key is made of it.
pub struct LoadedValue(Restored);

impl LoadedValue {
    /// Reads the value of a key, and returns how many bytes it takes to make one of it, too.
    ///
    /// Errors: it is none; [`Error::Stopped`] if it takes more than `bytes_max`.
    pub fn read(
        source: &mut impl Source,
        part: &KeyPart,
        encodings: &dyn Encodings,
        bytes_max: u64,
    ) -> Result<(LoadedValue, u64), Error> {
        let (restored, bytes) = Restored::read(encodings, part.object_type, source, bytes_max)?;
        Ok((LoadedValue(restored), bytes))
    }

    /// Makes a key of it, whatever that held.
    ///
    /// Errors: [`crate::CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn put(self, cx: &mut Cx<'_, '_>, part: &KeyPart) -> CommandResult {
        let key = Key::new(&part.key);
        self.0.store(cx, &key)?;
        if part.expire_at_ms > 0 {
            cx.db(&key).set_expiry(&key, part.expire_at_ms);
        }
        let idle_seconds =
            part.idle_seconds.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
        if let Some(uses) = uses(idle_seconds, part.frequency.map(i64::from)) {
            cx.db(&key).set_frequency(&key, uses);
        }
        Ok(())
    }
}
