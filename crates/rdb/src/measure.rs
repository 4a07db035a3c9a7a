//! What an object may take before anything of it is made.

use crate::error::Error;
use crate::length;
use crate::object::ObjectType;
use crate::sorted_set::skip_score_text;
use crate::source::Source;
use crate::stream::ID_BYTES;
use crate::text;

const TIME_BYTES: u64 = 8;
const SCORE_BYTES: u64 = 8;

/// What the lengths in an object say. They need not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Bytes of all strings together, where these are as they are; a packed collection counts as one.
    pub bytes: u64,
    /// Bytes of the longest string that is made in a buffer while it is read.
    pub unpacked_bytes: u64,
}

impl Claims {
    fn add(&mut self, source: &mut impl Source) -> Result<(), Error> {
        let (bytes, is_unpacked) = text::skip(source)?;
        self.bytes = self.bytes.saturating_add(bytes);
        if is_unpacked {
            self.unpacked_bytes = self.unpacked_bytes.max(bytes);
        }
        Ok(())
    }
}

/// Passes over an object, and tells what it takes to read it. Nothing is allocated. Cost: linear in its strings,
/// and in the pending entries of a stream.
///
/// Errors: it ends early, or its lengths cannot be.
pub fn measure(source: &mut impl Source, object_type: ObjectType) -> Result<Claims, Error> {
    use ObjectType::*;
    let mut claims = Claims::default();
    if let HashExpiring | HashListpackExpiring = object_type {
        source.bytes(TIME_BYTES)?;
    }
    let count = match object_type {
        String
        | HashZipmap
        | ListZiplist
        | SetIntset
        | SortedSetZiplist
        | HashZiplist
        | HashListpack
        | SortedSetListpack
        | SetListpack
        | HashListpackExpiringEarly
        | HashListpackExpiring => 1,
        _ => length::read(source)?,
    };
    for _ in 0..count {
        match object_type {
            HashExpiringEarly | HashExpiring | ListQuicklist2 => length::read(source).map(drop)?,
            Hash | HashExpiringValkey | Stream1 | Stream2 | Stream3 => claims.add(source)?,
            _ => {}
        }
        claims.add(source)?;
        match object_type {
            SortedSetText => skip_score_text(source)?,
            SortedSet => source.bytes(SCORE_BYTES).map(drop)?,
            HashExpiringEarly | HashExpiring => claims.add(source)?,
            HashExpiringValkey => source.bytes(TIME_BYTES).map(drop)?,
            _ => {}
        }
    }
    if object_type.is_stream() {
        skip_groups(source, object_type, &mut claims)?;
    }
    Ok(claims)
}

fn skip_groups(
    source: &mut impl Source,
    object_type: ObjectType,
    claims: &mut Claims,
) -> Result<(), Error> {
    let has_offsets = object_type != ObjectType::Stream1;
    let numbers =
        |source: &mut _, count: usize| (0..count).try_for_each(|_| length::read(source).map(drop));
    numbers(source, if has_offsets { 8 } else { 3 })?;
    for _ in 0..length::read(source)? {
        claims.add(source)?;
        numbers(source, if has_offsets { 3 } else { 2 })?;
        for _ in 0..length::read(source)? {
            source.bytes(ID_BYTES + TIME_BYTES)?;
            length::read(source)?;
        }
        for _ in 0..length::read(source)? {
            claims.add(source)?;
            let times = if object_type == ObjectType::Stream3 { 2 } else { 1 };
            source.bytes(times * TIME_BYTES)?;
            for _ in 0..length::read(source)? {
                source.bytes(ID_BYTES)?;
            }
        }
    }
    Ok(())
}
