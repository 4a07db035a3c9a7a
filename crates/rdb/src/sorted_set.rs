//! Sorted sets, as `object.rs` tells of their types.
//!
//! ```text
//! score as text: 253 for what is no number (which is refused), 254 infinite, 255 infinite and negative;
//!                else the bytes of the text, and the text
//! score in 8 bytes: as in memory, the low byte first
//! ```

use value::number::parse_f64_of_any_size;

use crate::error::Error;
use crate::length;
use crate::listpack::Listpack;
use crate::object::{Item, Visit, some};
use crate::packed::{Packed, Value};
use crate::source::{Source, array, byte};
use crate::text;
use crate::ziplist::Ziplist;

const MALFORMED: Error = Error::Malformed("score");
const INFINITE: u8 = 254;
const INFINITE_NEGATIVE: u8 = 255;
const NO_NUMBER: u8 = 253;

pub(crate) fn read_plain(
    source: &mut impl Source,
    in_8_bytes: bool,
    visit: &mut impl Visit,
) -> Result<(), Error> {
    let (mut scratch, mut member) = (Vec::new(), Vec::new());
    for _ in 0..some(length::read(source)?)? {
        member.clear();
        member.extend_from_slice(text::read(source, &mut scratch)?);
        let score = match in_8_bytes {
            true => f64::from_le_bytes(array(source)?),
            false => read_score_text(source)?,
        };
        visit(Item::Scored(&member, number(score)?))?;
    }
    Ok(())
}

/// Passes over the text of a score.
pub(crate) fn skip_score_text(source: &mut impl Source) -> Result<(), Error> {
    read_score_text(source).map(drop)
}

fn read_score_text(source: &mut impl Source) -> Result<f64, Error> {
    Ok(match byte(source)? {
        NO_NUMBER => return Err(MALFORMED),
        INFINITE => f64::INFINITY,
        INFINITE_NEGATIVE => f64::NEG_INFINITY,
        len => parse_f64_of_any_size(source.bytes(len.into())?).ok_or(MALFORMED)?,
    })
}

fn number(score: f64) -> Result<f64, Error> {
    if score.is_nan() { Err(MALFORMED) } else { Ok(score) }
}

pub(crate) fn read_packed(
    source: &mut impl Source,
    is_listpack: bool,
    visit: &mut impl Visit,
) -> Result<(), Error> {
    let (mut scratch, mut count) = (Vec::new(), 0);
    let bytes = text::read(source, &mut scratch)?;
    let mut packed = match is_listpack {
        true => Packed::Listpack(Listpack::new(bytes)?),
        false => Packed::Ziplist(Ziplist::new(bytes)?),
    };
    while let Some(member) = packed.next()? {
        let score = match packed.second()? {
            Value::Integer(score) => score as f64,
            Value::Bytes(text) => parse_f64_of_any_size(text).ok_or(MALFORMED)?,
        };
        visit(Item::Scored(member.text(&mut itoa::Buffer::new()), number(score)?))?;
        count += 1;
    }
    some(count).map(drop)
}
