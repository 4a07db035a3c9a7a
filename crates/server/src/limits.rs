//! The bounds of everything that grows with what clients send.

use std::time::Duration;

/// Requests parsed ahead of one connection: their cold reads fly together.
pub(crate) const BATCH_REQUESTS_MAX: usize = 256;
/// A batch shorter than this waits for the other clients that are ready, to prefetch the keys of all
/// together.
pub(crate) const TURN_REQUESTS_MAX: usize = 8;
/// Bytes of values that one connection fetches from flash at a time (one value may exceed it).
pub(crate) const FETCH_BYTES_MAX: usize = 32 << 20;
/// The same of the requests behind the one under way, as a part of `maxmemory`: 1/64.
pub(crate) const FETCH_AHEAD_SHIFT: u32 = 6;
/// Arguments from which on a request to one key counts as one that adds very many elements to it.
pub(crate) const ELEMENTS_MIN: usize = 1_000;
/// Bytes that each argument of such a request takes in the tables of a run.
pub(crate) const ELEMENT_BYTES: u64 = 64;
/// A request that takes no more claims no memory ahead to be made.
pub(crate) const CLAIM_BYTES_MIN: u64 = 256 << 10;
/// Of a small `maxmemory` this part need not be asked for, 1/1024, or so many bytes.
pub(crate) const REPLY_FREE_SHIFT: u32 = 10;
pub(crate) const REPLY_BYTES_FREE_MIN: u64 = 64 << 10;
/// Bytes of a reply that need not be asked for.
pub(crate) const REPLY_BYTES_FREE: usize = 256 << 10;
/// Replies of a transaction's commands without keys, for which nothing is reserved, take this part of what a request may
/// take: a quarter.
pub(crate) const UNRESERVED_SHIFT: u32 = 2;
/// A reply that takes no more than any command as it is queued, in bytes.
pub(crate) const SMALL_REPLY_BYTES: u64 = 64;
/// What a value takes in a reply besides its bytes.
pub(crate) const REPLY_OVERHEAD_BYTES: u64 = 16;
/// Keys of one request that are looked through before others have their turn.
pub(crate) const GATHERED_KEYS_MAX: usize = 1024;
/// Bytes of values that are copied into a large reply before others have their turn.
pub(crate) const FILLED_BYTES_MAX: usize = 512 << 10;
/// Bytes of leaves of a large collection that are read before others have their turn: they fit in read buffers.
pub(crate) const WALKED_BYTES_MAX: u64 = READ_BUFFER_BYTES as u64;
/// How often a command is run again because a value went cold in between, before the value is read
/// with its slot held.
pub(crate) const ATTEMPTS_MAX: u32 = 8;
/// Part of what a request may take that is read at most for a snapshot, which must see values before they change,
/// while a transaction holds its slots: 1/4. Beyond, the snapshot fails.
pub(crate) const SAVED_HELD_SHIFT: u32 = 2;
/// Values fetched together that are promoted at their first use where there is room: more are a scan,
/// whose values would be in RAM three times.
pub(crate) const PROMOTED_AT_ONCE_MAX: usize = 1024;
/// Values promoted of a request of more keys that runs on all of them at once: they are copied with its
/// slots held.
pub(crate) const PROMOTED_OF_MANY_MAX: usize = 256;
/// Values promoted of those that are read together (`PREFETCH_KEYS`) for a request of very many keys.
pub(crate) const PROMOTED_OF_PIECE_MAX: usize = 4;
/// Watched keys of one slot beyond which a read of very many keys watches no more: to end its watch it
/// looks through them.
pub(crate) const WATCHERS_MAX: usize = 64;
/// What a key takes while it is watched, besides its bytes: its place in the map of its slot, of which many
/// have one key, and its place with the client.
pub(crate) const WATCHED_KEY_BYTES: u64 = 320;
/// What a client watches is counted when it has grown by this: 64 KiB.
pub(crate) const WATCHED_STEP_BYTES: usize = 64 << 10;
/// Bytes of a buffer that a connection borrows for reading.
pub(crate) const READ_BUFFER_BYTES: usize = 64 << 10;
/// Buffers that a worker keeps for its connections at most. As many may hold replies that are written together.
pub(crate) const BUFFERS_KEPT_MAX: usize = 64;
/// What it keeps however little memory clients may take.
pub(crate) const BUFFERS_KEPT_MIN: usize = 4;
/// Keys of detached tables that a worker frees itself; more go to a thread of their own.
pub(crate) const FREE_AT_ONCE_MAX: usize = 4096;
/// Bytes of a buffer for records of the journal that a worker keeps.
pub(crate) const RECORD_BUFFER_BYTES_MAX: usize = 64 << 10;
/// Output at which a connection writes before it runs more requests.
pub(crate) const WRITE_EARLY_BYTES: usize = 256 << 10;
/// Each further buffer for the replies that a client leaves unread: a few times [`WRITE_EARLY_BYTES`].
pub(crate) const OUTPUT_BUFFER_BYTES: usize = 1 << 20;
/// For how long a client that leaves replies unread waits for memory for such a buffer before it goes on without.
pub(crate) const OUTPUT_WAIT_MAX: Duration = Duration::from_secs(1);
/// Bytes of lines that a MONITOR client may fall behind.
pub(crate) const MONITOR_BYTES_MAX: u64 = 64 << 20;
/// What a message on its way to a client counts for besides its bytes: its place in a queue that may be half
/// empty, and what is in front of the bytes that are shared.
pub(crate) const PUSH_OVERHEAD_BYTES: u64 = 96;
/// Places for messages that a queue keeps when it is empty.
pub(crate) const PUSHES_KEPT_MAX: usize = 64;
/// Output of a client for which whoever gives it a message does not look at its limit; its connection does.
pub(crate) const PUSHES_UNCHECKED_BYTES_MAX: u64 = 16 << 10;
/// Replies and messages at which no more messages are taken until they are written.
pub(crate) const PUSHED_BYTES_MAX: usize = 32 << 10;
/// What a name that a client listens to takes besides its bytes: in the register, and with the client.
pub(crate) const SUBSCRIPTION_OVERHEAD_BYTES: u64 = 192;
/// Bytes of one inline request, and of a header line.
pub(crate) const INLINE_BYTES_MAX: usize = 64 << 10;
/// Arguments of one request, as with Redis. Each takes six bytes of input at least, which
/// `client-query-buffer-limit` bounds.
pub(crate) const ARGS_MAX: usize = i32::MAX as usize;
/// Argument ranges that room for a batch, of which a worker keeps as many as buffers, is kept for.
pub(crate) const RANGES_KEPT_MAX: usize = 1024;
/// Part of `maxmemory` that all clients' buffers may take when `maxmemory-clients` says nothing:
/// 1/4. Beyond it the largest is closed.
pub(crate) const CLIENTS_SHARE_SHIFT: u32 = 2;
/// That share is never less: whoever sets `maxmemory` to next to nothing is answered with errors, not
/// closed.
pub(crate) const CLIENTS_SHARE_BYTES_MIN: u64 = 4 << 20;
/// Bytes by which a client's buffers grow before they are counted anew: 10,000 clients may take 2.5
/// MiB that nobody has counted yet.
pub(crate) const CLIENT_STEP_BYTES: u64 = 256;
/// What a connection takes that has no buffers: its task, its place with the runtime and in the register, its
/// addresses.
pub(crate) const CONNECTION_BYTES: u64 = 2560;
/// Part of what clients may take that connections by themselves may take besides: 1/8. What they take beyond
/// leaves less for buffers, though never less than half.
pub(crate) const CONNECTIONS_SHIFT: u32 = 3;
/// Buffers of a client that waits while all together take too much.
pub(crate) const CROWD_BYTES_MIN: u64 = 256 << 10;
/// Beyond so much more than clients may take, 1/8, even small ones are not read until some have been closed.
pub(crate) const BRAKE_SHIFT: u32 = 3;
/// And where buffers take as small a part of that: beyond so much more of `maxmemory` than its limit allows, 1/64, until
/// values have left RAM for it.
pub(crate) const AHEAD_SHIFT: u32 = 6;
/// Bytes by which buffers grow between two measurements of resident memory, beside those of upkeep.
pub(crate) const MEASURED_BYTES: i64 = 1 << 20;
/// Bytes that are read even then of a client that has sent nothing yet: small requests.
pub(crate) const BRAKED_READ_BYTES: usize = 512;
/// All clients are counted anew, and the largest closed, when they have grown by this part of their
/// limit since: 1/16.
pub(crate) const RECOUNT_SHIFT: u32 = 4;
/// Bytes that the buffers of all clients that have not authenticated may take.
pub(crate) const STRANGERS_BYTES_MAX: u64 = 4 << 20;
/// Bytes that the buffer of one such client may take: it is closed beyond. A request of one is
/// shorter.
pub(crate) const STRANGER_BYTES_MAX: u64 = 256 << 10;
/// A buffer grows to so many times of what has arrived, whatever was announced.
pub(crate) const INPUT_GROWTH: usize = 4;
/// Bytes by which the buffer of a large request grows at most when its length is not known.
pub(crate) const INPUT_STEP_BYTES_MAX: usize = 4 << 20;
/// Part of what clients may take that large requests which are arriving share: 1/8. One alone may take
/// all that others leave.
pub(crate) const INPUTS_SHARE_SHIFT: u32 = 3;
/// A request that takes at most this part of what clients may take is small: 1/8.
pub(crate) const SMALL_SHIFT: u32 = 3;
/// Part of it that small requests may take whatever large ones do: 1/4.
pub(crate) const SMALL_SHARE_SHIFT: u32 = 2;
/// A request of at most this part of it arrives as a small one: 1/32, a quarter of the share. The smallest that
/// asks, of somewhat more than two read buffers, is one where clients may take 8 MiB or more.
pub(crate) const SMALL_INPUT_SHIFT: u32 = 5;
/// Bytes of a large request or reply that have to pass for its client to get on, in the time after which others
/// that wait have it closed: two to four seconds.
pub(crate) const PROGRESS_BYTES: usize = 16 << 10;
/// Bytes whose pages are asked for at a time.
pub(crate) const PREFAULT_BYTES: usize = 128 << 10;
/// Read buffers of a worker that connections keep while they wait for the rest of a request; beyond,
/// they keep what has arrived in memory of its size.
pub(crate) const BUFFERS_LENT_MAX: usize = 16;
/// The same of connections whose requests wait for values or for memory. It is more since most wait shortly, and
/// each has one to read into and one for its replies.
pub(crate) const WAITING_BUFFERS_MAX: usize = 128;
/// Part of what clients may take that such buffers of all workers come to at most, and spare ones likewise: 1/8.
pub(crate) const BUFFERS_SHIFT: u32 = 3;
/// Bytes that a worker's clients read and are answered before it looks for new events: the others
/// wait no longer than that takes.
pub(crate) const TURN_BYTES_MAX: u64 = 2 << 20;
/// Bytes that each read counts for besides those that it brings where many buffers are lent, which is about the time
/// that the call takes: else thousands of clients with a small request each would hold a buffer in one turn.
pub(crate) const READ_COST_BYTES: usize = 4 << 10;
/// Time that their requests run before that, in nanoseconds.
pub(crate) const TURN_NANOS_MAX: u64 = 1_000_000;
/// Time that a heavy client goes on when it has a turn of its own, in nanoseconds. A small request is
/// read, run and written in a poll each, and may wait for one such turn before each of them.
pub(crate) const OWN_TURN_NANOS_MAX: u64 = 250_000;
/// Beside a crowd, which waits for whole turns, four times as long.
pub(crate) const CROWDED_TURN_SHIFT: u32 = 2;
/// A batch goes on for 64 turns: its input is held until it has run, and who holds much while others go is
/// the first to be closed when memory for clients lacks.
pub(crate) const BATCH_TURNS_SHIFT: u32 = 6;
/// A client that takes more of a turn until all that it had sent has run is heavy: a quarter, more than
/// a pipeline of small requests takes.
pub(crate) const HEAVY_PART_SHIFT: u32 = 2;
/// Light clients that go on after one look for events; more that wait are a crowd.
pub(crate) const GRANTED_AT_ONCE_MAX: usize = 64;
/// Bytes that a connection writes before others have their turn.
pub(crate) const WRITE_BYTES_MAX: usize = 1 << 20;
/// Sockets of clients that have gone which are closed before others have their turn, or a part of those
/// that wait for it, if that is more: 1/64.
pub(crate) const CLOSED_AT_ONCE_MIN: usize = 16;
pub(crate) const CLOSED_SHIFT: u32 = 6;
/// Sockets that wait to be closed.
pub(crate) const CLOSING_MAX: usize = 16 << 10;
/// Leaves of hashes on flash in which fields have expired and that wait to be read.
pub(crate) const COLD_FIELDS_LEAVES_MAX: usize = 1024;
/// Error codes that are counted apart.
pub(crate) const ERROR_CODES_MAX: usize = 128;
/// Bytes that commands queued by one MULTI may take.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 1 << 30;
/// What a snapshot takes from first to last beside values: what is noted of each slot, buffers that flash is read into,
/// and what is on its way to the file. Measured: 5.0 MB, where values were read one by one; reads of several values, of 64 KiB
/// each, are reckoned as a megabyte more, and so is what packs a file.
pub(crate) const SAVED_FIXED_BYTES: u64 = 7 << 20;
/// Leaves of a large collection that are read together for a snapshot, and written with their slot held.
pub(crate) const SAVED_LEAVES_MAX: usize = 128;
/// Bytes of a collection that is saved at once, all of it in memory and with its slot held.
pub(crate) const SAVED_AT_ONCE_BYTES_MAX: u64 = 128 << 10;
/// A longer string goes into the file by itself, uncompressed and in windows: this part of `maxmemory`, 1/256,
/// within bounds.
pub(crate) const SAVED_STRING_SHIFT: u32 = 8;
pub(crate) const SAVED_STRING_BYTES_MIN: u64 = 128 << 10;
pub(crate) const SAVED_STRING_BYTES_MAX: u64 = 1 << 20;
/// Bytes of such a window.
pub(crate) const SAVED_WINDOW_BYTES: usize = 256 << 10;
/// Bytes on their way to a snapshot's file: this part of `maxmemory`, 1/128, within bounds.
pub(crate) const SAVED_PIPE_SHIFT: u32 = 7;
pub(crate) const SAVED_PIPE_BYTES_MIN: u64 = 512 << 10;
pub(crate) const SAVED_PIPE_BYTES_MAX: u64 = 8 << 20;
/// What a checkpoint that makes room on flash may read at a time though there is no memory for it within `maxmemory`, where none
/// comes in this time: this part of that, 1/8. Without room on flash nothing is demoted for it.
pub(crate) const CHECKPOINT_OVERRUN_SHIFT: u32 = 3;
pub(crate) const CHECKPOINT_WAIT_MAX: Duration = Duration::from_millis(250);
/// Names that are saved before others because somebody waits.
pub(crate) const SAVED_WANTED_MAX: usize = 1024;
/// Keys of a slot that a snapshot looks at before others have their turn with the slot: about 100 us.
pub(crate) const SAVED_KEYS_MAX: usize = 1024;
/// Bytes of their values, which take as long where they are compressed.
pub(crate) const SAVED_TURN_BYTES_MAX: usize = 32 << 10;
/// Bytes of leaves of a large collection, or of a long string, that are in memory at a time.
pub(crate) const SAVED_BYTES_MAX: usize = 256 << 10;
/// Values in places of their own that a snapshot reads at a time, so many reads of clients may wait for. (BGSAVE beside
/// 20,000 requests a second on one core, p50 and p99: 0.64 and 3.6 ms where it read 128, 0.21 and 1.5 with 8.)
pub(crate) const SAVED_READS_MAX: usize = 8;
/// Bytes between two values that it reads together: a drive that gives 5 GB or 100,000 reads a second takes less time for
/// them than for another read.
pub(crate) const SAVED_GAP_BYTES: u32 = 32 << 10;
/// Values that it reads at a time where they lie near each other.
pub(crate) const SAVED_TOGETHER_MAX: usize = 128;
/// Pieces of 64 KiB in which these lie: as many reads of the drive, about, as where each lies in a place of its own.
pub(crate) const SAVED_PIECES_MAX: usize = SAVED_READS_MAX;
/// Bytes that names may take which wait for the reads of a window: at least, where there is no memory for more, and at most.
pub(crate) const SAVED_WINDOW_NAMES_BYTES_MIN: u64 = 64 << 10;
pub(crate) const SAVED_WINDOW_NAMES_BYTES_MAX: u64 = 256 << 20;
/// Bytes that those of one slot may take: they are looked through with the slot held.
pub(crate) const SAVED_SLOT_NAMES_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a long value that a digest looks at before others have their turn, a leaf of that or one more.
pub(crate) const DIGESTED_BYTES_MAX: usize = 256 << 10;
/// Leaves of them.
pub(crate) const DIGESTED_LEAVES_MAX: usize = 128;
/// Bytes of the last records in front of a checkpoint that stay with it, since it may refer to them: so many times those
/// of the values that are in RAM alone.
pub(crate) const RECENT_SHARE: u64 = 6;
/// And at most so many: they are read before a checkpoint begins, and by a start.
pub(crate) const RECENT_BYTES_MAX: u64 = 4 << 30;
/// A segment in which the values of less than this part of it are wanted, 1/16, is the first that is kept.
pub(crate) const RECENT_WORTH: u64 = 16;
/// Shorter values are written: a reference takes some 12 bytes.
pub(crate) const RECENT_VALUE_BYTES_MIN: usize = 128;
/// What is noted of these values while a checkpoint is taken: this part of `maxmemory` at most, 1/32.
pub(crate) const RECENT_VALUES_SHIFT: u32 = 5;
/// Pieces of values that are loaded from a file before others have their turn.
pub(crate) const LOADED_KEYS_MAX: usize = 64;
/// Bytes of them, and of a piece of a large collection.
pub(crate) const LOADED_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a file that the kernel is asked for ahead of what is read of it.
pub(crate) const LOADED_AHEAD_BYTES: u64 = 8 << 20;
/// Keys of one slot whose values are on flash that are put together, and what they take on their way.
pub(crate) const LOADED_PLACES_MAX: usize = 1024;
pub(crate) const LOADED_PLACES_BYTES_MAX: u64 = 128 << 10;
/// How often a piece is refused memory, with a tick of upkeep after each, before it is put without or the load fails:
/// a tenth of a second.
pub(crate) const LOADED_REFUSALS_MAX: u32 = 20;
/// What a load of what a server had itself, its journal, may use beyond the limit where nothing can be freed: this part of
/// `maxmemory`, a quarter.
pub(crate) const LOADED_OVER_SHIFT: u32 = 2;
/// The same of a dump, which may be anybody's: an eighth.
pub(crate) const DUMP_OVER_SHIFT: u32 = 3;
/// Ticks of upkeep for which DEBUG RELOAD waits for what it has flushed to be freed: some ten seconds.
pub(crate) const FLUSHED_TICKS_MAX: u32 = 2_000;
/// Bytes that a load puts before it measures again what is resident.
pub(crate) const LOADED_MEASURE_BYTES: u64 = 64 << 10;
/// Ticks of upkeep for which a load waits while `maxmemory` is overrun, before it goes on all the same, slowly, until
/// that has ended: half a second, or less while upkeep has much to do.
pub(crate) const LOADED_OVER_TICKS_MAX: u32 = 100;
/// Bytes of a string of a file that is checked.
pub(crate) const CHECKED_STRING_BYTES_MAX: u64 = 1 << 30;
/// Bytes of references to values on flash that are checked together: the more, the more of them are neighbours.
pub(crate) const CHECKED_BATCH_BYTES: usize = 64 << 20;
/// Bytes of keys whose value is lost that a repair follows through the journal; it has them up to three times.
pub(crate) const LOST_KEYS_BYTES_MAX: usize = 1 << 30;
/// Batches of them that are read ahead.
pub(crate) const LOADED_BATCHES_MAX: usize = 2;
/// Beside a batch that takes so much none is read ahead.
pub(crate) const LOADED_LARGE_BYTES: u64 = 1 << 20;
/// Elements of the piece that makes a key, on all servers: more than what is packed by default, whose encoding says
/// what becomes of a negative zero. It needs no leaves, so its bytes are what bounds its memory.
pub(crate) const LOADED_FIRST_ELEMENTS_MAX: usize = 1024;
/// Elements of a piece that is added to it, fewer where clients may take little: each may need leaves that are on flash,
/// of which so many bytes count for it.
pub(crate) const LOADED_ELEMENTS_MAX: usize = 64;
pub(crate) const LOADED_ELEMENT_BYTES: u64 = 16 << 10;

/// How often, a millisecond apart, it is looked for memory for values that come back to RAM since flash is to go.
pub(crate) const DRAIN_LOOKS_MAX: u32 = 2_000;
/// Walks over all values that come back so, one behind the other, that leave as many on flash as there were.
pub(crate) const DRAIN_WALKS_MAX: u32 = 200;
