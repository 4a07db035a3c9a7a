//! The keys of a request.

use command::{KeyAt, find_keys};
use keyspace::Key;
use resp::Args;
use smallvec::SmallVec;

use crate::state::registry::{Entry, Run};

/// Keys of one request.
pub(crate) type Keys<'a> = SmallVec<[Key<'a>; 4]>;

/// The keys of a request with what the command wants of them.
pub(crate) fn keys_with_needs<'a>(
    entry: &Entry,
    args: Args<'a>,
) -> impl Iterator<Item = (Key<'a>, KeyAt)> {
    let mut found: SmallVec<[KeyAt; 4]> = SmallVec::new();
    if let Run::Keys(_) = entry.run {
        find_keys(entry.spec.keys, args, &mut found);
    }
    found.into_iter().filter_map(move |at| Some((Key::new(args.get(at.index)?), at)))
}
