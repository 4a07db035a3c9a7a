//! What the journal takes: records a second, and the time that an append takes with others beside it.
//!
//!     cargo run --release -p flash --example journal_append -- <folder> <always|everysec|no> <threads> <bytes> <seconds>
//!
//! Under `always` each thread waits until its record is durable before it appends the next, as a client does.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use flash::{Journal, JournalOptions, Position, Recovery, SyncPolicy, TornTail};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for what `is_so` says, which `ask` has the journal tell of.
fn wait(is_so: impl Fn() -> bool, ask: impl Fn(&Waker)) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    while !is_so() {
        ask(&waker);
        std::thread::park();
    }
}

fn until_durable(journal: &Journal, position: Position) {
    wait(|| journal.durable() >= position, |waker| journal.wake_when_durable(position, waker));
}

/// Appends until `end`. Returns how many records, how long they took, and how long the longest did.
fn append(
    journal: &Journal,
    sync: SyncPolicy,
    bytes: usize,
    end: Instant,
) -> (u64, Duration, Duration) {
    let payload = vec![b'x'; bytes];
    let (mut records, mut sum, mut longest) = (0, Duration::ZERO, Duration::ZERO);
    loop {
        wait(|| journal.has_room(), |waker| journal.wake_when_room(waker));
        let start = Instant::now();
        let position = journal.append(&[&payload]);
        let took = start.elapsed();
        (records, sum, longest) = (records + 1, sum + took, longest.max(took));
        if sync == SyncPolicy::Always {
            until_durable(journal, position);
        }
        if start >= end {
            return (records, sum, longest);
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, sync, threads, bytes, seconds] = &args[..] else {
        panic!("<folder> <always|everysec|no> <threads> <bytes> <seconds>");
    };
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let sync = match sync.as_str() {
        "always" => SyncPolicy::Always,
        "everysec" => SyncPolicy::EverySecond,
        _ => SyncPolicy::Never,
    };
    let options = JournalOptions { folder: PathBuf::from(folder), sync, torn_tail: TornTail::Cut };
    let mut recovery = Recovery::open(options).expect("it opens");
    let start = Instant::now();
    let mut read = 0;
    while recovery.read().expect("it is read").is_some() {
        read += 1;
    }
    let seconds_read = start.elapsed().as_secs_f64();
    println!("read {read} records, {} MiB, in {seconds_read:.3} s", recovery.bytes() >> 20);
    let journal = recovery.start().expect("it starts");
    let (from, start) = (journal.appended(), Instant::now());
    let end = start + Duration::from_secs(number(seconds));
    let done: Vec<_> = std::thread::scope(|scope| {
        let one = || scope.spawn(|| append(&journal, sync, number(bytes) as usize, end));
        let threads: Vec<_> = (0..number(threads)).map(|_| one()).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    let appended = start.elapsed().as_secs_f64();
    journal.close().expect("it is durable");
    let records: u64 = done.iter().map(|(records, ..)| records).sum();
    let nanos: u128 = done.iter().map(|(_, sum, _)| sum.as_nanos()).sum();
    let longest = done.iter().map(|(.., longest)| *longest).max().unwrap_or_default();
    let mib = (journal.appended().0 - from.0) as f64 / f64::from(1 << 20);
    println!(
        "{:.0} records/s, {:.1} MiB/s, {} ns an append, the longest {longest:?}, closed after {:.3} s",
        records as f64 / appended,
        mib / appended,
        nanos / u128::from(records.max(1)),
        start.elapsed().as_secs_f64(),
    );
}
