//! The patterns of SORT, which name a key for each element, and what is there.

use keyspace::{Key, Stored};
use smallvec::SmallVec;
use value::Kind;

use crate::collection::{ColdLeaves, leaves_not_resident};
use crate::cx::Cx;
use crate::error::{ColdValue, CommandError, until_nul};

/// `prefix*suffix`, or `prefix*suffix->field`: the key, or a field of the hash there, of an element that
/// stands for the star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern<'a> {
    prefix: &'a [u8],
    suffix: &'a [u8],
    field: Option<&'a [u8]>,
}

impl<'a> Pattern<'a> {
    /// None: there is no star, so it names the same key for all, and nothing.
    pub(super) fn parse(text: &'a [u8]) -> Option<Pattern<'a>> {
        // What Redis looks for it looks for up to a NUL.
        let searched = until_nul(text);
        let star = searched.iter().position(|byte| *byte == b'*')?;
        let (prefix, rest) = (&text[..star], &text[star + 1..]);
        let searched = &searched[star + 1..];
        let arrow = searched.windows(2).position(|pair| pair == b"->");
        let (suffix, field) = match arrow {
            Some(at) if at + 2 < searched.len() => (&rest[..at], Some(&rest[at + 2..])),
            _ => (rest, None),
        };
        Some(Pattern { prefix, suffix, field })
    }

    /// The name of the key of an element.
    fn key(&self, element: &[u8]) -> Vec<u8> {
        [self.prefix, element, self.suffix].concat()
    }

    fn is_wanted(&self, kind: Kind) -> bool {
        if self.field.is_some() { kind.is_hash() } else { kind.is_string() }
    }

    /// Hands over what is there for an element: nothing if the key does not exist, holds another type, or
    /// the hash lacks the field.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub(super) fn look_up<R>(
        &self,
        cx: &mut Cx<'_, '_>,
        element: &[u8],
        then: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, CommandError> {
        let name = self.key(element);
        let key = Key::new(&name);
        let kind = cx.peek(&key).map(|view| Kind::from_bits(view.kind));
        if !kind.is_some_and(|kind| self.is_wanted(kind)) {
            cx.count_lookup(&key, kind.is_some());
            return Ok(then(None));
        }
        cx.count_read(&key);
        match self.field {
            None => Ok(then(cx.read_string(&key)?)),
            Some(field) => match cx.read_hash(&key)? {
                None => Ok(then(None)),
                Some(mut hash) => Ok(then(hash.get(field)?)),
            },
        }
    }
}

/// Values on flash that patterns name: all are asked for together.
#[derive(Default)]
pub(super) struct ColdValues(SmallVec<[ColdValue; 1]>);

impl ColdValues {
    /// Adds what a pattern needs for an element, whether it was fetched or not.
    pub(super) fn add(&mut self, cx: &mut Cx<'_, '_>, pattern: &Pattern<'_>, element: &[u8]) {
        let name = pattern.key(element);
        let key = Key::new(&name);
        let Some(view) = cx.peek(&key) else { return };
        let kind = Kind::from_bits(view.kind);
        if !pattern.is_wanted(kind) {
            return;
        }
        if let Stored::Cold(at, value_len) = view.stored {
            let key_len = name.len() as u32;
            self.0.push(ColdValue { at, key_len, value_len });
        } else if kind.is_tree()
            && let Some(field) = pattern.field
            && let Ok(Some(hash)) = cx.read_hash(&key)
        {
            self.0.extend(hash.cold_leaf(field));
        }
    }

    /// The wish for all of them, for a command on `key`, and for the leaves that its run has read from flash.
    pub(super) fn not_resident(self, key: &Key<'_>, cold_leaves: &ColdLeaves) -> CommandError {
        leaves_not_resident(key, self.0, cold_leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_keys_and_fields() {
        type Case = (&'static [u8], &'static [u8], Option<&'static [u8]>);
        let cases: &[Case] = &[
            (b"weight_*", b"weight_E", None),
            (b"*", b"E", None),
            (b"a*b*c", b"aEb*c", None),
            (b"o*->f", b"oE", Some(b"f")),
            (b"o*x->f->g", b"oEx", Some(b"f->g")),
            (b"o*->", b"oE->", None),
            (b"->*f", b"->Ef", None),
            (b"o*\0->f", b"oE\0->f", None),
            (b"o*->f\0g", b"oE", Some(b"f\0g")),
        ];
        for &(text, key, field) in cases {
            let pattern = Pattern::parse(text).expect("a star");
            let text = text.escape_ascii();
            assert_eq!(pattern.key(b"E"), key, "{text}");
            assert_eq!(pattern.field, field, "{text}");
        }
        assert_eq!(Pattern::parse(b"nosort"), None);
        assert_eq!(Pattern::parse(b"no\0*"), None);
    }
}
