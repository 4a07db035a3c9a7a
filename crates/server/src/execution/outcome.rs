//! What became of a request.

use command::Flags;
use flash::RecordId;
use tier::Want;

use crate::execution::dispatch::Attempt;
use crate::limits::ATTEMPTS_MAX;
use crate::session::Session;
use crate::state::registry::Entry;

/// What a request needs before it can run.
#[derive(Default)]
pub(crate) struct Needed {
    /// Values, some of which it may have.
    pub(crate) wants: Vec<Want>,
    /// The records of values that it will ask for, in that order; a hint, none for a request of one.
    pub(crate) order: Vec<RecordId>,
    /// Memory for a reply of values.
    pub(crate) reply_bytes: u64,
    /// Whether that is for copies, or for what is kept, so that it is no buffer of the reply's that takes it.
    pub(crate) is_for_copies: bool,
    /// Memory for what else is made of cold values, at a time: a copy in RAM, a result.
    pub(crate) copy_bytes: u64,
    /// How many of the values the last run named.
    pub(crate) named: usize,
    /// It is more than a request may take, and was not gathered to the end.
    pub(crate) is_too_much: bool,
    /// Memory to watch its keys, when it is to be read in windows.
    pub(crate) watch_bytes: u64,
}

impl Needed {
    /// Memory alone, for what the server keeps for a client once its request has run; `length` is that of the
    /// replies before it. None: it has that, or it is little and others leave it.
    pub(crate) fn to_keep(
        bytes: usize,
        length: usize,
        attempt: Attempt,
        session: &mut Session,
    ) -> Option<Needed> {
        let has_room = length.saturating_add(bytes) <= attempt.reply_bytes_max;
        let reply_bytes = bytes as u64;
        if attempt.number >= ATTEMPTS_MAX || has_room && session.may_keep(reply_bytes) {
            return None;
        }
        let is_too_much = !session.ask_to_keep(reply_bytes);
        Some(Needed { reply_bytes, is_for_copies: true, is_too_much, ..Needed::default() })
    }
}

/// What a run of a request lacked, which its keys do not name.
#[derive(Default)]
pub(crate) struct Lacked {
    /// Values, those among them that it has included.
    pub(crate) wants: Vec<Want>,
    /// Memory for a reply, all of it.
    pub(crate) reply_bytes: u64,
    /// Whether that is for copies instead.
    pub(crate) is_for_copies: bool,
}

impl Lacked {
    /// Memory for a copy of the longest of them, if a command copies leaves into RAM, one after another, to change them.
    pub(crate) fn copy_bytes(&self, entry: Option<&Entry>) -> u64 {
        let changes_leaves = entry.is_some_and(|entry| {
            entry.spec.flags.has(Flags::WRITE) && entry.spec.docs.group.is_of_collections()
        });
        match changes_leaves && !self.is_for_copies {
            true => self.wants.iter().map(|want| u64::from(want.value_len)).max().unwrap_or(0),
            false => 0,
        }
    }
}

/// What became of a request.
pub(crate) enum Outcome {
    /// It was answered.
    Done,
    /// It was answered without having run: queued, or refused.
    NotRun,
    /// It needs this; then it is to be run again.
    Fetch(Needed),
    /// What it needs is to be looked for in windows, besides this; then it is to be run again.
    Gather(Lacked),
    /// It is to be run on one window of a large collection after another.
    InWindows,
    /// It must wait for memory, then it is to be run again.
    Memory,
    /// It must wait for the end of a pause, or until the journal takes writes.
    Paused,
    /// A snapshot is to save what this name holds first; then it is to be run again.
    Saving(Box<[u8]>),
    /// Its client waits in the queues of its keys (`Session::place`).
    Waits,
    /// It must wait for the session's errand, then it is to be run again.
    Errand,
}
