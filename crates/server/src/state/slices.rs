//! In what slices large requests are served, and clients have their turns.

use crate::limits::{
    FILLED_BYTES_MAX, GATHERED_KEYS_MAX, GRANTED_AT_ONCE_MAX, OWN_TURN_NANOS_MAX, READ_COST_BYTES,
    REPLY_BYTES_FREE, TURN_BYTES_MAX, WAITING_BUFFERS_MAX, WALKED_BYTES_MAX,
};

/// The bounds of slices and turns. The simulation makes them small, so that small requests come in several,
/// and few clients crowd.
#[derive(Clone, Copy, Debug)]
pub struct Slices {
    /// Bytes of a reply that need not be asked for. In a larger one fetched values leave gaps.
    pub reply_bytes_free: usize,
    /// Keys of one request that are looked through before others have their turn.
    pub gathered_keys_max: usize,
    /// Bytes of values that are copied into a large reply before others have their turn.
    pub filled_bytes_max: usize,
    /// Bytes of leaves of a collection that are read before others have their turn.
    pub walked_bytes_max: u64,
    /// Time that a heavy client goes on in a turn of its own, in nanoseconds. 0: others have their turn
    /// after each slice.
    pub own_turn_nanos_max: u64,
    /// Bytes that a worker's clients read and are answered before it looks for new events.
    pub turn_bytes_max: u64,
    /// Bytes that each read counts for besides those that it brings.
    pub read_cost_bytes: usize,
    /// Read buffers of a worker beyond which connections whose requests wait keep none.
    pub waiting_buffers_max: usize,
    /// Light clients that go on after one such look.
    pub granted_at_once_max: usize,
}

impl Default for Slices {
    fn default() -> Slices {
        Slices {
            reply_bytes_free: REPLY_BYTES_FREE,
            gathered_keys_max: GATHERED_KEYS_MAX,
            filled_bytes_max: FILLED_BYTES_MAX,
            walked_bytes_max: WALKED_BYTES_MAX,
            own_turn_nanos_max: OWN_TURN_NANOS_MAX,
            turn_bytes_max: TURN_BYTES_MAX,
            read_cost_bytes: READ_COST_BYTES,
            waiting_buffers_max: WAITING_BUFFERS_MAX,
            granted_at_once_max: GRANTED_AT_ONCE_MAX,
        }
    }
}
