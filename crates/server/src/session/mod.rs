//! What is known of a client between its requests.

pub(crate) mod cold;
pub(crate) mod digest;
mod digest_long;
pub(crate) mod errand;
pub(crate) mod flash;
mod flash_drain;
pub(crate) mod journal;
pub(crate) mod last_checkpoint;
pub(crate) mod load;
mod load_brake;
pub(crate) mod load_file;
mod load_memory;
pub(crate) mod load_recent;
mod load_room;
pub(crate) mod replay;
pub(crate) mod save;
pub(crate) mod subscriptions;
mod taken_once;
pub(crate) mod transaction;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use command::collection::ColdLeaves;
use keyspace::Key;
use resp::{Protocol, Reply};

use crate::session::errand::Errand;
use crate::session::subscriptions::Subscriptions;
use crate::session::transaction::Transaction;
use crate::state::clients::Client;
use crate::state::kept_memory::{may_keep, try_keep};
use crate::state::push::{Delivery, Push, close_pushes, take_pushes};
use crate::state::server::Server;
use crate::state::waiters::Place;
use crate::state::worker::Worker;

/// Which replies a client wants (CLIENT REPLY).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyMode {
    On,
    Off,
    /// The command under way is not answered, later ones are.
    SkipThis,
    /// The next command is not answered.
    SkipNext,
}

/// How a connection goes on after a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    No,
    /// After what has been answered is written.
    AfterReplies,
    /// At once.
    Now,
}

/// One client's state; owned by its connection's task.
pub(crate) struct Session {
    pub(crate) worker: Rc<Worker>,
    pub(crate) client: Arc<Client>,
    pub(crate) db: u8,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    pub(crate) transaction: Transaction,
    pub(crate) reply_mode: ReplyMode,
    pub(crate) closing: Closing,
    /// Every request is shown to it (MONITOR).
    pub(crate) is_monitor: bool,
    pub(crate) subscriptions: Subscriptions,
    /// What the command under way waits for, and then what came of it.
    pub(crate) errand: Errand,
    /// The client's place in the queues of the keys that the command under way waits for.
    pub(crate) place: Option<Place>,
    /// What the command under way has asked to have kept, in bytes.
    asked_bytes: u64,
    /// A random number for the command under way, the same for each of its runs: another would have it want
    /// other values than were fetched for it.
    pub(crate) random: u64,
    /// Reads are no uses of keys (CLIENT NO-TOUCH).
    pub(crate) no_touch: bool,
    /// The time of the batch under way, Unix milliseconds.
    pub(crate) now_ms: u64,
    /// Large leaves that the request under way has read from flash.
    pub(crate) large_leaves: RefCell<ColdLeaves>,
}

impl Session {
    pub(crate) fn new(worker: Rc<Worker>, client: Arc<Client>) -> Session {
        let authenticated = worker.server.config.requirepass.load().is_empty();
        client.queued.store(-1, Ordering::Relaxed);
        client.protocol.store(2, Ordering::Relaxed);
        client.is_stranger.store(!authenticated, Ordering::Relaxed);
        Session {
            worker,
            client,
            db: 0,
            protocol: Protocol::Resp2,
            authenticated,
            transaction: Transaction::default(),
            reply_mode: ReplyMode::On,
            closing: Closing::No,
            is_monitor: false,
            subscriptions: Subscriptions::default(),
            errand: Errand::None,
            place: None,
            asked_bytes: 0,
            random: 0,
            large_leaves: RefCell::default(),
            no_touch: false,
            now_ms: 0,
        }
    }

    #[inline]
    pub(crate) fn server(&self) -> &Server {
        &self.worker.server
    }

    /// Selects a database that exists.
    pub(crate) fn select(&mut self, db: u8) {
        self.db = db;
        self.client.db.store(db, Ordering::Relaxed);
    }

    /// Starts to watch a key for the transaction to come.
    pub(crate) fn watch(&mut self, key: &[u8]) {
        let key = Key::new(key);
        let server = self.worker.server.clone();
        let tally = &mut self.worker.tally.borrow_mut();
        self.transaction.watch(&server.tier, self.db, &key, self.expiry_ms(), tally);
        self.show_watched();
    }

    /// By when keys have expired that it looks at. None has while data is loaded: records of the journal tell when keys
    /// went.
    pub(crate) fn expiry_ms(&self) -> u64 {
        match self.server().pause.is_loading() {
            true => 0,
            false => self.now_ms,
        }
    }

    /// Ends every watch.
    pub(crate) fn unwatch(&mut self) {
        let server = self.worker.server.clone();
        self.transaction.unwatch(&server.tier.keyspace);
        self.show_watched();
    }

    /// Shows others what it watches.
    fn show_watched(&self) {
        let (count, bytes) = (self.transaction.watched_count(), self.transaction.watched_bytes());
        self.client.watched.store(count as u32, Ordering::Relaxed);
        let before = self.client.watched_bytes.swap(bytes as u64, Ordering::Relaxed);
        self.server().kept_memory.change(before, bytes as u64);
    }

    /// Asks for memory that the server is to keep for the client once the command under way has run: from now on
    /// others are refused what would not fit beside it. False: it may not have that.
    pub(crate) fn ask_to_keep(&mut self, bytes: u64) -> bool {
        self.end_asking();
        let may_keep = try_keep(self.server(), &self.client, bytes);
        if may_keep {
            self.asked_bytes = bytes;
        }
        may_keep
    }

    /// A random number for a command of its transaction.
    pub(crate) fn random_of(&self, index: usize) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        self.random ^ (index as u64 + 1).wrapping_mul(ODD)
    }

    /// Whether the server may keep so many bytes for the client, or has been asked for them.
    pub(crate) fn may_keep(&self, bytes: u64) -> bool {
        bytes <= self.asked_bytes || may_keep(self.server(), &self.client, bytes)
    }

    /// What was asked for is kept now, or will not be. Cost: a comparison when nothing was.
    #[inline]
    pub(crate) fn end_asking(&mut self) {
        if self.asked_bytes > 0 {
            let before = std::mem::take(&mut self.asked_bytes);
            self.server().kept_memory.change(before, 0);
        }
    }

    /// Leaves MULTI, dropping what was queued.
    pub(crate) fn discard(&mut self) {
        self.transaction.discard();
        self.unwatch();
        self.client.queued.store(-1, Ordering::Relaxed);
        self.client.queued_bytes.store(0, Ordering::Relaxed);
    }

    /// Back to how the connection began (RESET), but for what it listens to.
    pub(crate) fn reset(&mut self) {
        self.discard();
        self.stop_monitor();
        self.select(0);
        self.set_protocol(Protocol::Resp2);
        let authenticated = self.server().config.requirepass.load().is_empty();
        self.set_authenticated(authenticated);
        self.reply_mode = ReplyMode::On;
        // The library stays what it is.
        self.client.change_labels(|labels| labels.name = String::new());
        self.client.no_evict.store(false, Ordering::Relaxed);
        self.set_no_touch(false);
    }

    /// Says whether the client has shown that it may do more than authenticate.
    pub(crate) fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
        self.client.is_stranger.store(!authenticated, Ordering::Relaxed);
    }

    pub(crate) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        let number = if protocol == Protocol::Resp3 { 3 } else { 2 };
        self.client.protocol.store(number, Ordering::Relaxed);
    }

    /// Names the connection, for CLIENT LIST. Errors: the name has characters that would break the
    /// list's format.
    pub(crate) fn set_name(&mut self, name: &[u8]) -> command::CommandResult {
        if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
            return Err(command::fixed(
                "ERR Client names cannot contain spaces, newlines or special characters.",
            ));
        }
        let name = String::from_utf8_lossy(name).into_owned();
        self.client.change_labels(|labels| labels.name = name);
        Ok(())
    }

    /// Says whether reads are left out of the frequency of keys.
    pub(crate) fn set_no_touch(&mut self, no_touch: bool) {
        self.no_touch = no_touch;
        self.client.no_touch.store(no_touch, Ordering::Relaxed);
    }

    /// Whether EXEC is under way: it holds slots, and it has announced how many replies follow.
    pub(crate) fn is_in_exec(&self) -> bool {
        !self.transaction.is_open() && self.client.queued.load(Ordering::Relaxed) >= 0
    }

    /// Whether the client expects messages and can tell them from few replies alone: it listens, in the
    /// version of the protocol that has no pushes.
    #[inline]
    pub(crate) fn takes_messages_only(&self) -> bool {
        self.protocol == Protocol::Resp2 && !self.subscriptions.are_none()
    }

    /// Writes the messages that have come behind what has been replied, which must end with a whole reply:
    /// until that is longer than `len_max`.
    pub(crate) fn take_pushes(&self, reply: &mut Reply, len_max: usize) {
        reply.set_protocol(self.protocol);
        take_pushes(self.server(), &self.client, reply, len_max);
    }

    /// Writes a message of the client's own that answers it, though it is no reply: it comes where there
    /// are no replies, too (CLIENT REPLY), behind the messages in front of it.
    pub(crate) fn push(&self, reply: &mut Reply, write: impl FnOnce(&mut Reply)) {
        if self.reply_mode == ReplyMode::On {
            return write(reply);
        }
        let mut message = Reply::new(self.protocol);
        write(&mut message);
        let message = Push::encoded(message.as_slice());
        let mut delivery = Delivery::new(self.server(), Some(self.worker.index));
        delivery.give(&self.client, message.bytes(), || message);
    }

    pub(crate) fn stop_monitor(&mut self) {
        if std::mem::take(&mut self.is_monitor) {
            self.server().monitors.remove(&self.client);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.discard();
        self.end_asking();
        self.stop_monitor();
        self.unsubscribe_all();
        close_pushes(self.server(), &self.client);
    }
}
