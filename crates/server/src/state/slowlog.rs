//! The slow log: the latest commands that took longer than `slowlog-log-slower-than`.

use std::collections::VecDeque;

use parking_lot::Mutex;
use resp::Args;

/// Arguments of an entry; the rest are counted only.
const ARGS_MAX: usize = 32;
/// Bytes of an argument; the rest are counted only.
const ARG_BYTES_MAX: usize = 128;

/// Part of `maxmemory` that the entries take at most: 1/64. Without one, and never more than, `BYTES_MAX`.
const BYTES_SHIFT: u32 = 6;
const BYTES_MAX: u64 = 64 << 20;

/// Bytes that entries may take under this `maxmemory`, 0 for none.
pub(crate) fn bytes_max(max_memory: u64) -> u64 {
    match max_memory {
        0 => BYTES_MAX,
        max_memory => (max_memory >> BYTES_SHIFT).min(BYTES_MAX),
    }
}

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

impl SlowCommand {
    fn memory_bytes(&self) -> u64 {
        let args: usize = self.args.iter().map(|arg| size_of::<Vec<u8>>() + arg.capacity()).sum();
        let strings = self.address.capacity() + self.client_name.capacity();
        (size_of::<SlowCommand>() + args + strings) as u64
    }
}

/// The log, newest first.
#[derive(Default)]
pub(crate) struct SlowLog(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    next_id: u64,
    entries: VecDeque<SlowCommand>,
    /// What they take.
    bytes: u64,
}

impl SlowLog {
    /// Adds a command, dropping the oldest beyond `len_max`, and of what they take beyond `bytes_max`.
    pub(crate) fn add(&self, mut command: SlowCommand, len_max: usize, bytes_max: u64) {
        let mut inner = self.0.lock();
        command.id = inner.next_id;
        inner.next_id += 1;
        inner.bytes += command.memory_bytes();
        inner.entries.push_front(command);
        while inner.entries.len() > len_max || inner.bytes > bytes_max {
            let Some(oldest) = inner.entries.pop_back() else { break };
            inner.bytes -= oldest.memory_bytes();
        }
    }

    /// The latest `count` commands.
    pub(crate) fn latest(&self, count: usize) -> Vec<SlowCommand> {
        self.0.lock().entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    pub(crate) fn clear(&self) {
        let mut inner = self.0.lock();
        inner.entries = VecDeque::new();
        inner.bytes = 0;
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

/// The name of a client as the log keeps it: short.
pub(crate) fn trimmed_name(name: &str) -> String {
    String::from_utf8_lossy(&trim(name.as_bytes())).into_owned()
}

fn trim(arg: &[u8]) -> Vec<u8> {
    if arg.len() <= ARG_BYTES_MAX {
        return arg.to_vec();
    }
    let mut text = arg[..ARG_BYTES_MAX].to_vec();
    text.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX).as_bytes());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(arg_bytes: usize) -> SlowCommand {
        SlowCommand {
            id: 0,
            at_seconds: 1,
            duration_us: 1,
            args: vec![vec![b'a'; arg_bytes]],
            address: String::new(),
            client_name: trimmed_name(&"n".repeat(1000)),
        }
    }

    #[test]
    fn the_oldest_go_beyond_the_length_and_beyond_the_bytes() {
        let log = SlowLog::default();
        (0..10).for_each(|_| log.add(command(100), 4, u64::MAX));
        let ids =
            |log: &SlowLog| log.latest(9).iter().map(|command| command.id).collect::<Vec<_>>();
        assert_eq!(ids(&log), [9, 8, 7, 6]);
        let each = command(100).memory_bytes();
        log.add(command(100), 9, 3 * each);
        assert_eq!(ids(&log), [10, 9, 8]);
        log.add(command(100), 9, 3 * each - 1);
        assert_eq!(ids(&log), [11, 10]);
        log.clear();
        log.add(command(100), 9, each);
        assert_eq!(ids(&log), [12]);
        assert_eq!(
            log.latest(1)[0].client_name,
            format!("{}... (872 more bytes)", "n".repeat(128))
        );
    }
}
