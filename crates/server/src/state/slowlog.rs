//! The slow log: the latest commands that took longer than `slowlog-log-slower-than`.

use std::collections::VecDeque;

use parking_lot::Mutex;
use resp::Args;

/// Arguments of an entry; the rest are counted only.
const ARGS_MAX: usize = 32;
/// Bytes of an argument; the rest are counted only.
const ARG_BYTES_MAX: usize = 128;

/// One slow command.
#[derive(Clone, Debug)]
pub(crate) struct SlowCommand {
    pub(crate) id: u64,
    pub(crate) at_seconds: u64,
    pub(crate) duration_us: u64,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) address: String,
    pub(crate) client_name: String,
}

/// The log, newest first.
#[derive(Default)]
pub(crate) struct SlowLog(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    next_id: u64,
    entries: VecDeque<SlowCommand>,
}

impl SlowLog {
    /// Adds a command, dropping the oldest beyond `len_max`.
    pub(crate) fn add(&self, mut command: SlowCommand, len_max: usize) {
        let mut inner = self.0.lock();
        command.id = inner.next_id;
        inner.next_id += 1;
        inner.entries.push_front(command);
        inner.entries.truncate(len_max);
    }

    /// The latest `count` commands.
    pub(crate) fn latest(&self, count: usize) -> Vec<SlowCommand> {
        self.0.lock().entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().entries.clear();
    }
}

/// The arguments as the log keeps them: few, and short.
pub(crate) fn trimmed(args: Args<'_>) -> Vec<Vec<u8>> {
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let mut trimmed: Vec<Vec<u8>> = args.iter().take(shown).map(trim).collect();
    if shown < args.len() {
        trimmed.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    trimmed
}

fn trim(arg: &[u8]) -> Vec<u8> {
    if arg.len() <= ARG_BYTES_MAX {
        return arg.to_vec();
    }
    let mut text = arg[..ARG_BYTES_MAX].to_vec();
    text.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX).as_bytes());
    text
}
