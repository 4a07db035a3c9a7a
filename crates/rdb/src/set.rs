//! Sets, as `object.rs` tells of their types.

use crate::error::Error;
use crate::intset;
use crate::length;
use crate::listpack::Listpack;
use crate::object::{Item, Visit, some};
use crate::source::Source;
use crate::text;

pub(crate) fn read_plain(source: &mut impl Source, visit: &mut impl Visit) -> Result<(), Error> {
    let mut scratch = Vec::new();
    for _ in 0..some(length::read(source)?)? {
        visit(Item::Member(text::read(source, &mut scratch)?))?;
    }
    Ok(())
}

pub(crate) fn read_intset(source: &mut impl Source, visit: &mut impl Visit) -> Result<(), Error> {
    let (mut scratch, mut count) = (Vec::new(), 0);
    for number in intset::integers(text::read(source, &mut scratch)?)? {
        visit(Item::Member(itoa::Buffer::new().format(number?).as_bytes()))?;
        count += 1;
    }
    some(count).map(drop)
}

pub(crate) fn read_listpack(source: &mut impl Source, visit: &mut impl Visit) -> Result<(), Error> {
    let (mut scratch, mut count) = (Vec::new(), 0);
    let mut packed = Listpack::new(text::read(source, &mut scratch)?)?;
    while let Some(value) = packed.next()? {
        visit(Item::Member(value.text(&mut itoa::Buffer::new())))?;
        count += 1;
    }
    some(count).map(drop)
}
