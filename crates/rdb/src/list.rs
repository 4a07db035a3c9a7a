//! Lists, as `object.rs` tells of their types.

use crate::error::Error;
use crate::length;
use crate::listpack::Listpack;
use crate::object::{Item, Visit, some};
use crate::packed::Packed;
use crate::source::Source;
use crate::text;
use crate::ziplist::Ziplist;

const MALFORMED_NODE: Error = Error::Malformed("node of a list");
/// A node that is an element.
pub(crate) const PLAIN_NODE: u64 = 1;
/// A node that is a listpack of elements.
pub(crate) const PACKED_NODE: u64 = 2;

pub(crate) fn read_plain(source: &mut impl Source, visit: &mut impl Visit) -> Result<(), Error> {
    let mut scratch = Vec::new();
    for _ in 0..some(length::read(source)?)? {
        visit(Item::Element(text::read(source, &mut scratch)?))?;
    }
    Ok(())
}

pub(crate) fn read_ziplist(source: &mut impl Source, visit: &mut impl Visit) -> Result<(), Error> {
    let mut scratch = Vec::new();
    let packed = Packed::Ziplist(Ziplist::new(text::read(source, &mut scratch)?)?);
    some(read_packed(packed, visit)?).map(drop)
}

/// Nodes, of which some may be empty, but not all.
pub(crate) fn read_nodes(
    source: &mut impl Source,
    of_version_2: bool,
    visit: &mut impl Visit,
) -> Result<(), Error> {
    let (mut scratch, mut count) = (Vec::new(), 0);
    for _ in 0..length::read(source)? {
        let sort = if of_version_2 { length::read(source)? } else { 0 };
        let bytes = text::read(source, &mut scratch)?;
        let packed = match sort {
            0 if !of_version_2 => Packed::Ziplist(Ziplist::new(bytes)?),
            PACKED_NODE => Packed::Listpack(Listpack::new(bytes)?),
            PLAIN_NODE if bytes.is_empty() => return Err(MALFORMED_NODE),
            PLAIN_NODE => {
                visit(Item::Element(bytes))?;
                count += 1;
                continue;
            }
            _ => return Err(MALFORMED_NODE),
        };
        count += read_packed(packed, visit)?;
    }
    some(count).map(drop)
}

fn read_packed(mut packed: Packed<'_>, visit: &mut impl Visit) -> Result<u64, Error> {
    let mut count = 0;
    while let Some(value) = packed.next()? {
        visit(Item::Element(value.text(&mut itoa::Buffer::new())))?;
        count += 1;
    }
    Ok(count)
}
