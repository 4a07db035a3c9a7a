//! Further pieces of a collection, of which a key holds what came in front.

use keyspace::Key;
use value::Kind;

use crate::collection::{End, ExpiryCondition, ScoreChange, has_long};
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};
use crate::family::restored::Restored;

const SAME_TWICE: CommandError = fixed("ERR collection: it has an element twice");

impl Restored {
    /// Adds it to what a key holds, a collection of the same type.
    ///
    /// Errors: [`CommandError::NotResident`], [`CommandError::OUT_OF_MEMORY`]; nothing is changed then. An element is
    /// there already; some others were added then.
    pub(super) fn append(&self, cx: &mut Cx<'_, '_>, key: &Key<'_>) -> CommandResult {
        match self {
            Restored::String(_) | Restored::Stream(_) => unreachable!("it is not cut so"),
            Restored::List(elements) => {
                cx.push_elements(key, End::Right, elements.iter()).map(drop)
            }
            Restored::Set(members) => {
                if has_long(members.iter()) {
                    cx.spread(key, Kind::is_set)?;
                }
                let is_known = cx.edit_set(key, members.iter(), |set| {
                    members.iter().fold(false, |is_known, member| is_known | !set.add(member))
                })?;
                check_new(is_known)
            }
            Restored::SortedSet { members, scores, .. } => {
                let members: Vec<&[u8]> = members.iter().collect();
                let Some(mut set) = cx.read_sorted_set(key)? else { return Ok(()) };
                set.announce(members.iter().copied())?;
                for member in &members {
                    check_new(set.score(member)?.is_some())?;
                }
                let scored = members.into_iter().zip(scores);
                let change = |(at, (member, &score))| ScoreChange {
                    member,
                    old: None,
                    new: Some(score),
                    begun: at + 1,
                };
                let changes: Vec<ScoreChange<'_>> = scored.enumerate().map(change).collect();
                cx.change_sorted_set(key, &changes)
            }
            Restored::Hash { parts, expiries, .. } => {
                let now_ms = cx.now_ms;
                if has_long(parts.iter()) {
                    cx.spread(key, Kind::is_hash)?;
                }
                let has_expired = |at_ms: u64| at_ms > 0 && at_ms <= now_ms;
                let is_known = cx.edit_hash(key, parts.iter().step_by(2), |hash| {
                    let mut is_known = false;
                    for (at, &at_ms) in expiries.iter().enumerate() {
                        let (field, value) = (parts.at(2 * at), parts.at(2 * at + 1));
                        if has_expired(at_ms) {
                            continue;
                        }
                        is_known |= !hash.set(field, value);
                        if at_ms > 0 {
                            hash.expire(field, at_ms, ExpiryCondition::Always);
                        }
                    }
                    is_known
                })?;
                check_new(is_known)
            }
        }
    }
}

/// Errors: it was there before.
fn check_new(is_known: bool) -> CommandResult {
    if is_known { Err(SAME_TWICE) } else { Ok(()) }
}
