//! Streams that are put together piece by piece: leaves of entries, then rows of groups.

use keyspace::Key;
use value::StreamId;
use value::leaf::entries::Entries;
use value::leaf::stream::{Head, Packed};
use value::leaf::stream_rows::{Nack, owned_key, pending_key};

use super::{RowEdits, bound_of, in_ram};
use crate::collection::End;
use crate::collection::form::ENTRIES;
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};

/// The consumer of a pending entry until it is known.
pub(crate) const NOBODY: u32 = u32::MAX;

const SAME_TWICE: CommandError = fixed("ERR group of a stream: it has something twice");
const NOT_PENDING: CommandError = fixed("ERR group of a stream: who has an entry is not clear");

/// Rows of a stream that is being put together.
#[derive(Debug, Default)]
pub(crate) struct NewRows {
    /// Key and value of each.
    pub(crate) rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Entries that are pending with nobody so far, each with the group and the consumer that has it.
    pub(crate) owned: Vec<(u32, u32, StreamId)>,
}

impl Cx<'_, '_> {
    /// Puts leaves of entries behind those of a stream that exists and has entries, but no rows. No leaf is looked at.
    ///
    /// Errors: [`CommandError::NotResident`]; nothing is changed or taken then.
    pub(crate) fn append_leaves(
        &mut self,
        key: &Key<'_>,
        head: Head,
        leaves: &mut Vec<Vec<u8>>,
    ) -> CommandResult {
        if !self.is_stream_tree(key)? {
            let view = self.peek(key).expect("invariant: the stream exists");
            let before = Packed::new(in_ram(&view)).leaves().map(<[u8]>::to_vec);
            let leaves = before.chain(std::mem::take(leaves)).collect();
            self.make_tree(key, head, leaves);
            return Ok(());
        }
        for leaf in std::mem::take(leaves) {
            let place = self.place(key);
            let path = place.at_end(self.locked.slot(key.slot), End::Right);
            let bound = bound_of(Entries::new(&leaf).first_ever());
            self.edit_tree(key, &ENTRIES).insert_leaf_behind(&path, (bound, leaf));
        }
        self.set_stream_head(key, head);
        Ok(())
    }

    /// Adds rows to a stream that exists.
    ///
    /// Errors: [`CommandError::NotResident`]; one of the rows is there, or an entry that somebody has is not pending,
    /// or is another's. Nothing is changed then.
    pub(crate) fn add_rows(&mut self, key: &Key<'_>, new: &NewRows) -> CommandResult {
        let mut edits = RowEdits::default();
        let Some(mut stream) = self.read_stream(key)? else { return Ok(()) };
        let of_rows = new.rows.iter().map(|(row, _)| row.clone());
        let of_owned = new.owned.iter().map(|&(group, _, id)| pending_key(group, id));
        stream.announce_rows(of_rows.chain(of_owned))?;
        for (row, value) in &new.rows {
            if edits.get(row).is_some() || stream.row(row)?.is_some() {
                return Err(SAME_TWICE);
            }
            edits.set(row.clone(), value.clone());
        }
        for &(group, consumer, id) in &new.owned {
            let row = pending_key(group, id);
            let value = match edits.get(&row) {
                Some(value) => value.map(<[u8]>::to_vec),
                None => stream.row(&row)?,
            };
            let nack = value.map(|value| Nack::from_bytes(&value));
            let nack = nack.filter(|nack| nack.consumer == NOBODY).ok_or(NOT_PENDING)?;
            edits.set(row, Nack { consumer, ..nack }.to_bytes());
            edits.set(owned_key(group, consumer, id), Vec::new());
        }
        self.prepare_rows(key, &edits)?;
        self.edit_rows(key, &edits);
        Ok(())
    }
}
