//! What DUMP makes of an object, for RESTORE.
//!
//! ```text
//! type (1), object, version of the format (2, the low byte first), checksum of all in front (8, likewise)
//! ```

use crate::checksum::Checksum;
use crate::error::Error;
use crate::object::{Dialect, ObjectType};

/// The version that Redis 7.0 writes, and reads.
pub const VERSION_7_0: u16 = 10;
/// The version that Redis 7.4 writes: for hashes with fields that expire, which no earlier one knows.
pub const VERSION_7_4: u16 = 12;
/// The version that Valkey 9.0 writes.
const VERSION_VALKEY_9: u16 = 80;

/// Bytes behind the object.
pub const FOOTER_BYTES: usize = size_of::<u16>() + size_of::<u64>();

/// Whether objects of a version are read.
pub fn is_known(version: u16) -> bool {
    version <= VERSION_7_4 || version == VERSION_VALKEY_9
}

/// The bytes of an object and its type, from a payload that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    dialect: Dialect,
    object: &'a [u8],
}

impl<'a> Payload<'a> {
    /// Errors: the version is not known, or the checksum is another.
    pub fn check(bytes: &'a [u8]) -> Result<Payload<'a>, Error> {
        let payload = Payload::without_check(bytes)?;
        let (rest, sum) = bytes.split_last_chunk::<8>().ok_or(Error::Short)?;
        if Checksum::of(rest) != u64::from_le_bytes(*sum) {
            return Err(Error::Malformed("checksum"));
        }
        Ok(payload)
    }

    /// A payload whose checksum may be anything. Errors: the version is not known.
    pub fn without_check(bytes: &'a [u8]) -> Result<Payload<'a>, Error> {
        let (rest, _sum) = bytes.split_last_chunk::<8>().ok_or(Error::Short)?;
        let (object, version) = rest.split_last_chunk::<2>().ok_or(Error::Short)?;
        let version = u16::from_le_bytes(*version);
        if !is_known(version) {
            return Err(Error::Unsupported("version", version.into()));
        }
        Ok(Payload { dialect: Dialect::of_version(version), object })
    }

    /// The type of the object, and its bytes. Redis does not look at what follows the object, if anything does.
    ///
    /// Errors: it is of no type that is known.
    pub fn object(&self) -> Result<(ObjectType, &'a [u8]), Error> {
        let (&byte, object) = self.object.split_first().ok_or(Error::Short)?;
        Ok((ObjectType::from_byte(byte, self.dialect)?, object))
    }
}

/// Ends a payload, which begins at `start`.
pub fn finish(out: &mut Vec<u8>, start: usize, version: u16) {
    out.extend(version.to_le_bytes());
    let sum = Checksum::of(&out[start..]);
    out.extend(sum.to_le_bytes());
}
