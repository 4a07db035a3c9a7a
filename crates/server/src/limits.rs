//! The bounds of everything that grows with what clients send.

/// Requests parsed ahead of one connection: their cold reads fly together.
pub(crate) const BATCH_REQUESTS_MAX: usize = 256;
/// A batch shorter than this waits for the other clients that are ready, to prefetch the keys of all
/// together.
pub(crate) const TURN_REQUESTS_MAX: usize = 8;
/// Bytes of values that one connection fetches from flash at a time (one value may exceed it).
pub(crate) const FETCH_BYTES_MAX: usize = 32 << 20;
/// How often a command is run again because a value went cold in between, before the value is read
/// with its slot held.
pub(crate) const ATTEMPTS_MAX: u32 = 8;
/// Bytes of a buffer that a connection borrows for reading.
pub(crate) const READ_BUFFER_BYTES: usize = 64 << 10;
/// Buffers that a worker keeps for its connections.
pub(crate) const BUFFERS_KEPT_MAX: usize = 64;
/// Keys of cleared databases that a worker frees itself; more go to a thread of their own.
pub(crate) const FREE_AT_ONCE_MAX: usize = 4096;
/// Output at which a connection writes before it runs more requests.
pub(crate) const WRITE_EARLY_BYTES: usize = 256 << 10;
/// Lines that a MONITOR client may fall behind.
pub(crate) const MONITOR_LINES_MAX: usize = 8192;
/// Bytes of such lines.
pub(crate) const MONITOR_BYTES_MAX: usize = 64 << 20;
/// Bytes of one inline request, and of a header line.
pub(crate) const INLINE_BYTES_MAX: usize = 64 << 10;
/// Arguments of one request, as with Redis. Each takes six bytes of input at least, which
/// `client-query-buffer-limit` bounds.
pub(crate) const ARGS_MAX: usize = i32::MAX as usize;
/// Argument ranges that a connection keeps room for between its batches.
pub(crate) const RANGES_KEPT_MAX: usize = 4096;
/// Part of `maxmemory` that all clients' buffers may take when `maxmemory-clients` says nothing:
/// 1/4. Beyond it the largest is closed.
pub(crate) const CLIENTS_SHARE_SHIFT: u32 = 2;
/// Bytes by which a client's buffers grow before they are counted anew.
pub(crate) const CLIENT_STEP_BYTES: u64 = 256 << 10;
/// Error codes that are counted apart.
pub(crate) const ERROR_CODES_MAX: usize = 128;
/// Bytes that commands queued by one MULTI may take.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 1 << 30;
