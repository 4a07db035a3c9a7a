//! Finds the keys among the arguments of a command.

use resp::Args;
use smallvec::SmallVec;

use crate::spec::{Begin, Find, KeyFlags, KeySpec, Needs};

/// One key of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAt {
    /// Which argument it is.
    pub index: usize,
    /// What happens to it.
    pub flags: KeyFlags,
    /// Whether its value is wanted.
    pub needs: Needs,
}

/// The keys of a request, in the order of the specifications. `args` counts from the command's
/// name (a subcommand's container is argument 0). Arguments that make no sense give no keys: the
/// handler reports them.
pub fn find_keys(specs: &[KeySpec], args: Args<'_>, found: &mut SmallVec<[KeyAt; 4]>) {
    found.clear();
    for spec in specs {
        let Some(begin) = begin(spec.begin, args) else { continue };
        let Some((first, last, step)) = range(spec.find, begin, args) else { continue };
        let keys = (first..=last.min(args.len().saturating_sub(1))).step_by(step);
        found.extend(keys.map(|index| KeyAt { index, flags: spec.flags, needs: spec.needs }));
    }
}

fn begin(begin: Begin, args: Args<'_>) -> Option<usize> {
    match begin {
        Begin::Index(index) => (index < args.len()).then_some(index),
        Begin::Unknown(find) => find(args),
        Begin::Keyword(keyword, from) => {
            let is_keyword = |index: &usize| args[*index].eq_ignore_ascii_case(keyword.as_bytes());
            let found = match usize::try_from(from) {
                Ok(from) => (from..args.len()).find(is_keyword),
                Err(_) => (0..args.len().checked_add_signed(from + 1)?).rev().find(is_keyword),
            };
            found.map(|index| index + 1).filter(|&index| index < args.len())
        }
        Begin::Option(keyword, _, others) => {
            let mut index = 1;
            loop {
                let word = args.get(index)?;
                if word.eq_ignore_ascii_case(keyword.as_bytes()) {
                    return Some(index + 1);
                }
                let is_it = |(name, _): &&(&str, usize)| word.eq_ignore_ascii_case(name.as_bytes());
                index += 1 + others.iter().find(is_it)?.1;
            }
        }
    }
}

fn range(find: Find, begin: usize, args: Args<'_>) -> Option<(usize, usize, usize)> {
    match find {
        Find::Range { last, step } => {
            let last = match usize::try_from(last) {
                Ok(last) => begin + last,
                Err(_) => args.len().checked_add_signed(last)?,
            };
            Some((begin, last, step))
        }
        Find::Half => {
            let count = args.len().saturating_sub(begin);
            (count > 0 && count.is_multiple_of(2)).then(|| (begin, begin + count / 2 - 1, 1))
        }
        Find::Count { at, first, step } => {
            let count = value::parse_i64(args.get(begin + at)?)?;
            let count = usize::try_from(count).ok().filter(|&count| count > 0)?;
            let first = begin + first;
            let last = (count - 1).checked_mul(step)?.checked_add(first)?;
            (last < args.len()).then_some((first, last, step))
        }
    }
}
