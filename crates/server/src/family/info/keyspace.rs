//! INFO keyspace: the keys of each database.

use keyspace::DB_COUNT;

use crate::state::server::Server;

use super::text::Text;

/// INFO keyspace. The mean time to live is not known and stands as 0, as with Redis before its
/// first sample.
pub(super) fn keyspace(server: &Server, text: &mut Text) {
    for db in 0..DB_COUNT as u8 {
        let counts = server.tier.counters.table(server.tier.keyspace.table_of(db));
        if counts.keys > 0 {
            text.field(
                &format!("db{db}"),
                format_args!("keys={},expires={},avg_ttl=0", counts.keys, counts.volatile),
            );
        }
    }
}
