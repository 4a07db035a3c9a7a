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
        Find::Count { at, first, step } => {
            let count = value::parse_i64(args.get(begin + at)?)?;
            let count = usize::try_from(count).ok().filter(|&count| count > 0)?;
            let first = begin + first;
            let last = (count - 1).checked_mul(step)?.checked_add(first)?;
            (last < args.len()).then_some((first, last, step))
        }
    }
}
