//! Values that a checkpoint refers to in the journal.

use std::collections::HashMap;

use command::saved::Journaled;
use flash::{JournalError, Recent, Recovery};
use keyspace::DB_COUNT;

use super::error::CheckError;
use super::follow::database_of;
use super::lost::Lost;
use super::report::Report;
use crate::session::load_recent::last_sets;

/// Keys that have some, by how far in front of the checkpoint their records begin.
#[derive(Default)]
pub(super) struct RecentKeys(HashMap<u64, Vec<RecentKey>>);

struct RecentKey {
    table: u8,
    key: Box<[u8]>,
    value_len: u32,
}

impl RecentKeys {
    pub(super) fn add(
        &mut self,
        table: u8,
        key: Box<[u8]>,
        Journaled { back, value_len }: Journaled,
    ) {
        self.0.entry(back).or_default().push(RecentKey { table, key, value_len });
    }

    /// Looks for all values. Those that are not there are lost.
    ///
    /// Errors: the journal cannot be read.
    pub(super) fn check(
        mut self,
        recovery: &Recovery,
        tables: &[u8; DB_COUNT],
        lost: &mut Lost,
        report: &mut Report,
    ) -> Result<(), CheckError> {
        let (mut records, mut damage): (_, Option<JournalError>) = (recovery.kept_records(), None);
        let mut lose = |key: &RecentKey, why: &str| {
            lost.add(key.table, &key.key);
            report.lost(database_of(tables, key.table).into(), &key.key, why);
        };
        while !self.0.is_empty() {
            let (begin, payload) = match records.read()? {
                Recent::Record { begin, payload } => (begin, payload),
                // It matters if it is what is sought.
                Recent::Damage(error) => {
                    damage.get_or_insert(error);
                    continue;
                }
                Recent::End => break,
            };
            let back = recovery.checkpoint().0.saturating_sub(begin.0);
            let Some(keys) = self.0.remove(&back) else { continue };
            let sets = last_sets(payload, keys.iter().map(|key| &key.key[..]));
            let sets = sets.unwrap_or_default();
            for key in &keys {
                let set = sets.get(&key.key[..]);
                if set.is_none_or(|set| set.value_len != key.value_len as usize) {
                    lose(key, "its value is not in the record of the journal that should have it");
                }
            }
        }
        let why = damage.map_or(
            "the record of the journal that has its value is missing".to_owned(),
            |damage| damage.to_string(),
        );
        self.0.values().flatten().for_each(|key| lose(key, &why));
        Ok(())
    }
}
