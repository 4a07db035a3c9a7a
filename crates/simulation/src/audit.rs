//! The counters beside a recount of the keyspace, once everything is at rest.

use std::sync::atomic::Ordering;

use flash::record_size;
use keyspace::{DB_COUNT, SLOT_COUNT, ScanPosition, Stored, TABLE_COUNT};
use tier::Tier;

/// What a recount finds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    keys: [i64; DB_COUNT],
    /// Leaves and branches of large collections.
    nodes: i64,
    volatile: [i64; DB_COUNT],
    hot: (i64, i64),
    clean: (i64, i64),
    cold: (i64, i64),
}

/// Compares what the server believes with what is there.
///
/// Errors: they differ.
pub(crate) fn check(tier: &Tier) -> Result<(), String> {
    let (found, flash_bytes) = recount(tier);
    let count = |counter: &std::sync::atomic::AtomicI64| counter.load(Ordering::Relaxed);
    let counters = &tier.counters;
    let mut believed = Counts {
        nodes: count(&counters.nodes),
        hot: (count(&counters.hot_count), count(&counters.hot_bytes)),
        clean: (count(&counters.clean_count), count(&counters.clean_bytes)),
        cold: (count(&counters.cold_count), count(&counters.cold_bytes)),
        ..Counts::default()
    };
    for table in 0..DB_COUNT {
        let counts = counters.table(table as u8);
        believed.keys[table] = counts.keys as i64;
        believed.volatile[table] = counts.volatile as i64;
    }
    if believed != found {
        return Err(format!("the counters say {believed:?}\nbut a recount finds {found:?}"));
    }
    let is_empty = found.keys.iter().all(|keys| *keys == 0) && found.nodes == 0;
    let value_bytes = count(&counters.value_bytes);
    if value_bytes < 0 || is_empty && value_bytes != 0 {
        return Err(format!("{value_bytes} bytes of values beside {found:?}"));
    }
    let data_bytes = tier.budget.memory_use().data_bytes;
    if data_bytes != counters.ram_bytes() {
        let counted = counters.ram_bytes();
        return Err(format!("the budget holds {data_bytes} bytes of data, the counters {counted}"));
    }
    let Some(engine) = tier.engine() else { return Ok(()) };
    let live = engine.free_space().live_bytes;
    if live != flash_bytes {
        return Err(format!("{live} bytes live on flash, but keys point at {flash_bytes}"));
    }
    Ok(())
}

/// Counts every key of every database, and the bytes of the records on flash that they point at.
fn recount(tier: &Tier) -> (Counts, u64) {
    let (mut counts, mut flash_bytes) = (Counts::default(), 0);
    for slot in 0..SLOT_COUNT as u16 {
        let state = tier.keyspace.lock(slot);
        for table in 0..TABLE_COUNT {
            if state.len(table as u8) == 0 {
                continue;
            }
            state.scan(table as u8, ScanPosition::default(), |view| {
                if table < DB_COUNT {
                    counts.keys[table] += 1;
                    counts.volatile[table] += i64::from(view.expire_at_ms != 0);
                } else {
                    counts.nodes += 1;
                }
                let place = match view.stored {
                    Stored::Hot(_) => &mut counts.hot,
                    Stored::Clean(..) => &mut counts.clean,
                    Stored::Cold(..) => &mut counts.cold,
                };
                place.0 += 1;
                place.1 += view.value_len() as i64;
                if let Stored::Clean(_, at) | Stored::Cold(at, _) = view.stored {
                    flash_bytes += record_size(view.key.len(), at.stored_len as usize) as u64;
                }
                false
            });
        }
    }
    (counts, flash_bytes)
}
