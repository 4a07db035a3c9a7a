//! Hashes, as `object.rs` tells of their types.

use crate::error::Error;
use crate::length;
use crate::listpack::Listpack;
use crate::object::{Item, Visit, some};
use crate::packed::{Packed, Value};
use crate::source::{Source, i64_le};
use crate::text;
use crate::ziplist::Ziplist;
use crate::zipmap::Zipmap;

const MALFORMED_EXPIRY: Error = Error::Malformed("expiry of a field");
/// Fields expire before this at the latest: Redis keeps 48 bits of a time.
const EXPIRY_MAX_MS: u64 = (1 << 48) - 1;

/// Where the expiries of fields stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiries {
    None,
    /// In front of each field.
    Absolute,
    /// Likewise, as what they are later than the first, which stands in front of all.
    FromFirst,
    /// Behind each value.
    Behind,
}

pub(crate) fn read_plain(
    source: &mut impl Source,
    expiries: Expiries,
    visit: &mut impl Visit,
) -> Result<(), Error> {
    let first = if expiries == Expiries::FromFirst { i64_le(source)? } else { 0 };
    let (mut scratch, mut name, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..some(length::read(source)?)? {
        let mut expire_at_ms = match expiries {
            Expiries::None | Expiries::Behind => 0,
            Expiries::Absolute => time(length::read(source)?)?,
            Expiries::FromFirst => time_from(first, length::read(source)?)?,
        };
        name.clear();
        name.extend_from_slice(text::read(source, &mut scratch)?);
        let field = &name[..];
        if expiries != Expiries::Behind {
            let value = text::read(source, &mut scratch)?;
            visit(Item::Field { field, value, expire_at_ms })?;
            continue;
        }
        kept.clear();
        kept.extend_from_slice(text::read(source, &mut scratch)?);
        let at_ms = i64_le(source)?;
        if at_ms != -1 {
            expire_at_ms = time(u64::try_from(at_ms).map_err(|_| MALFORMED_EXPIRY)?)?;
        }
        visit(Item::Field { field, value: &kept, expire_at_ms })?;
    }
    Ok(())
}

fn time(at_ms: u64) -> Result<u64, Error> {
    if at_ms <= EXPIRY_MAX_MS { Ok(at_ms) } else { Err(MALFORMED_EXPIRY) }
}

/// The time of a field that expires so much later than the first, and 1 more; 0: never.
fn time_from(first: i64, later: u64) -> Result<u64, Error> {
    let Some(later) = later.checked_sub(1) else { return Ok(0) };
    let first = u64::try_from(first).map_err(|_| MALFORMED_EXPIRY)?;
    time(first.checked_add(later).ok_or(MALFORMED_EXPIRY)?)
}

pub(crate) fn read_zipmap(source: &mut impl Source, visit: &mut impl Visit) -> Result<(), Error> {
    let (mut scratch, mut count) = (Vec::new(), 0);
    let mut zipmap = Zipmap::new(text::read(source, &mut scratch)?)?;
    while let Some((field, value)) = zipmap.next()? {
        visit(Item::Field { field, value, expire_at_ms: 0 })?;
        count += 1;
    }
    some(count).map(drop)
}

/// Whether the expiry of a field stands behind its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Triples {
    No,
    /// And nothing in front of all.
    Alone,
    /// And the first of them in front of all.
    BehindFirst,
}

pub(crate) fn read_ziplist(source: &mut impl Source, visit: &mut impl Visit) -> Result<(), Error> {
    let mut scratch = Vec::new();
    let packed = Packed::Ziplist(Ziplist::new(text::read(source, &mut scratch)?)?);
    read_packed(packed, false, visit)
}

pub(crate) fn read_listpack(
    source: &mut impl Source,
    triples: Triples,
    visit: &mut impl Visit,
) -> Result<(), Error> {
    if triples == Triples::BehindFirst {
        i64_le(source)?;
    }
    let mut scratch = Vec::new();
    let packed = Packed::Listpack(Listpack::new(text::read(source, &mut scratch)?)?);
    read_packed(packed, triples != Triples::No, visit)
}

fn read_packed(
    mut packed: Packed<'_>,
    have_expiry: bool,
    visit: &mut impl Visit,
) -> Result<(), Error> {
    let mut count = 0;
    while let Some(field) = packed.next()? {
        let value = packed.second()?;
        let expire_at_ms = match have_expiry {
            false => 0,
            true => expiry_of(packed.second()?)?,
        };
        let mut buffers = [itoa::Buffer::new(), itoa::Buffer::new()];
        let [field_buffer, value_buffer] = &mut buffers;
        let (field, value) = (field.text(field_buffer), value.text(value_buffer));
        visit(Item::Field { field, value, expire_at_ms })?;
        count += 1;
    }
    some(count).map(drop)
}

fn expiry_of(value: Value<'_>) -> Result<u64, Error> {
    let at_ms = value.integer().and_then(|number| u64::try_from(number).ok());
    time(at_ms.ok_or(MALFORMED_EXPIRY)?)
}
