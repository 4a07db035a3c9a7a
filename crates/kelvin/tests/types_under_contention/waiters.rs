//! A thousand clients that wait for elements. Some pop them, and each element goes to one of these, those of
//! a producer in their order, though many give up or are told to. Others move them on, and are killed
//! meanwhile: what they were to move is in one list or the other, in its order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use resp::Frame;
use stdx::Random;

use crate::support::{Client, show, text};
use crate::{Run, call, integer, padded, texts, transaction, unpadded, words};

const POPPERS: usize = 700;
const MOVERS: usize = 300;
const PRODUCERS: u64 = 4;
/// Queues that are popped, and queues whose elements are moved on.
const QUEUES: u64 = 6;
const MOVED_QUEUES: u64 = 4;
const ELEMENT_BYTES: usize = 100;
const PUSHED_MAX: u64 = 4;
/// Elements that are taken at a time from where they were moved to.
const TAKEN: usize = 100;
/// Of the thread of a client, which reads through a buffer on it.
const STACK_BYTES: usize = 512 << 10;

/// A connection that there is not yet.
const NOBODY: i64 = i64::MAX;

/// How far each producer has come in each queue.
type Counts = BTreeMap<(String, u64), u64>;

/// An element: its queue, its producer, and its number among this one's there.
type Element = (String, u64, u64);

struct Waiting<'a> {
    run: &'a Run<'a>,
    /// Who waits, by the numbers of their connections.
    poppers: Vec<AtomicI64>,
    movers: Vec<AtomicI64>,
    /// Nothing more is pushed, and nobody is disturbed any more.
    pushed: AtomicBool,
    /// Nothing more is moved on.
    moved: AtomicBool,
    connected: AtomicUsize,
    gave_up: AtomicUsize,
    killed: AtomicUsize,
}

pub fn check(run: &Run) -> String {
    let none = |count| (0..count).map(|_| AtomicI64::new(NOBODY)).collect();
    let waiting = Waiting {
        run,
        poppers: none(POPPERS),
        movers: none(MOVERS),
        pushed: AtomicBool::new(false),
        moved: AtomicBool::new(false),
        connected: AtomicUsize::new(0),
        gave_up: AtomicUsize::new(0),
        killed: AtomicUsize::new(0),
    };
    let (pushed, popped, taken) = thread::scope(|scope| {
        let waiting = &waiting;
        let poppers = (0..POPPERS).map(|index| start(scope, run, move || waiting.pop(index)));
        let poppers: Vec<_> = poppers.collect();
        let movers = (0..MOVERS).map(|index| start(scope, run, move || waiting.move_on(index)));
        let movers: Vec<_> = movers.collect();
        let taker = start(scope, run, move || waiting.take());
        let producers = (0..PRODUCERS).map(|seed| start(scope, run, move || waiting.push(seed)));
        let producers: Vec<_> = producers.collect();
        let meddler = start(scope, run, move || waiting.meddle());
        let pushed: Vec<_> = producers.into_iter().map(ScopedJoinHandle::join).collect();
        let meddled = meddler.join();
        waiting.pushed.store(true, Ordering::Release);
        let movers: Vec<_> = movers.into_iter().map(ScopedJoinHandle::join).collect();
        waiting.moved.store(true, Ordering::Release);
        let taken = taker.join();
        let popped: Vec<_> = poppers.into_iter().map(ScopedJoinHandle::join).collect();
        meddled.expect("a client that meddles");
        movers.into_iter().for_each(|mover| mover.expect("a client that moves elements"));
        let pushed = pushed.into_iter().flat_map(|counts| counts.expect("a producer"));
        let popped = popped.into_iter().flat_map(|got| got.expect("a client that pops"));
        (
            pushed.collect::<Counts>(),
            popped.collect::<Vec<_>>(),
            taken.expect("a client that takes what was moved"),
        )
    });
    assert!(!run.has_failed(), "another part failed");
    let delivered = counts_of(popped).into_iter().chain(taken).collect::<Counts>();
    assert_eq!(delivered, pushed, "delivered and pushed");
    let mut client = run.server.connect();
    for (queue, _) in pushed.keys() {
        assert_eq!(client.show(&format!("EXISTS {queue}")), ":0", "{queue} is empty");
    }
    format!(
        "{} elements pushed to a thousand clients that wait, {:?} of them gave up and {:?} were killed",
        pushed.values().sum::<u64>(),
        waiting.gave_up,
        waiting.killed
    )
}

/// Starts the thread of one client.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: &'scope Run,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let builder = thread::Builder::new().stack_size(STACK_BYTES);
    builder.spawn_scoped(scope, || run.guard(work)).expect("a thread")
}

/// Which queues are pushed to at their right end, and so popped at their left.
fn is_pushed_right(queue: &str) -> bool {
    queue.as_bytes().last().is_some_and(|digit| digit % 2 == 0)
}

/// The side that elements of a queue are taken from.
fn side(queue: &str) -> &'static str {
    if is_pushed_right(queue) { "LEFT" } else { "RIGHT" }
}

impl Waiting<'_> {
    /// Pushes to any of the queues until the run is over. Returns how many elements each got.
    fn push(&self, producer: u64) -> Counts {
        let mut client = self.run.server.connect();
        let mut random = Random::new(producer);
        let mut counts = Counts::new();
        while self.run.goes_on() {
            let push = |random: &mut Random, counts: &mut Counts| {
                let queue = match random.below(QUEUES + MOVED_QUEUES) {
                    queue if queue < QUEUES => format!("queue-{queue}"),
                    queue => format!("moved-{}", queue - QUEUES),
                };
                let command = if is_pushed_right(&queue) { "RPUSH" } else { "LPUSH" };
                let count = counts.entry((queue.clone(), producer)).or_default();
                let mut request = words(&format!("{command} {queue}"));
                for _ in 0..random.between(1, PUSHED_MAX) {
                    request.push(padded(&format!("{queue}:{producer}:{count}"), ELEMENT_BYTES));
                    *count += 1;
                }
                request
            };
            let request = push(&mut random, &mut counts);
            if random.below(4) == 0 {
                let other = push(&mut random, &mut counts);
                let lens = transaction(&mut client, &[request, other]);
                lens.iter().for_each(|len| assert!(integer(len) > 0));
            } else {
                assert!(integer(&call(&mut client, &request)) > 0);
            }
        }
        counts
    }

    /// Pops elements until there are no more. Returns them.
    fn pop(&self, index: usize) -> Vec<Element> {
        let mut client = self.run.server.connect();
        self.poppers[index].store(integer(&client.line("CLIENT ID")), Ordering::Relaxed);
        self.count_connected();
        let mut random = Random::new(index as u64);
        let mut got = Vec::new();
        let mut last = Counts::new();
        while !self.run.has_failed() {
            let is_last = self.pushed.load(Ordering::Acquire);
            // At the end all are waited for: who gives up then has seen all of them empty.
            let popped = pop_some(&mut client, &mut random, index as u64 % 2, is_last);
            if popped.is_empty() {
                self.gave_up.fetch_add(1, Ordering::Relaxed);
                if is_last {
                    break;
                }
            }
            for (queue, producer, number) in popped {
                let before = last.insert((queue.clone(), producer), number);
                assert!(before < Some(number), "{queue}: {number} of {producer} after {before:?}");
                got.push((queue, producer, number));
            }
        }
        got
    }

    /// Moves elements of one queue on until there are no more, also when it is killed meanwhile.
    fn move_on(&self, index: usize) {
        let mut client = self.mover(index);
        self.count_connected();
        let mut random = Random::new(index as u64);
        let queue = format!("moved-{}", index as u64 % MOVED_QUEUES);
        let put = if is_pushed_right(&queue) { "RIGHT" } else { "LEFT" };
        while !self.run.has_failed() {
            let is_last = self.pushed.load(Ordering::Acquire);
            let seconds = seconds(&mut random);
            let from = side(&queue);
            let line = format!("BLMOVE {queue} taken-{queue} {from} {put} {seconds}\r\n");
            let moved = client.try_write(line.as_bytes()).then(|| client.try_read()).flatten();
            match moved {
                None => client = self.mover(index),
                Some(Frame::Bulk(moved)) => {
                    assert_eq!(element(&String::from_utf8_lossy(&moved)).0, queue);
                }
                Some(none) => {
                    assert_eq!(show(&none), "_");
                    self.gave_up.fetch_add(1, Ordering::Relaxed);
                    if is_last {
                        break;
                    }
                }
            }
        }
    }

    fn count_connected(&self) {
        if self.connected.fetch_add(1, Ordering::Relaxed) + 1 == POPPERS + MOVERS {
            self.run.begin();
        }
    }

    /// A connection that moves elements, and may be killed from now on.
    fn mover(&self, index: usize) -> Client {
        let mut client = self.run.server.connect();
        self.movers[index].store(integer(&client.line("CLIENT ID")), Ordering::Relaxed);
        client
    }

    /// Takes what was moved on until there is no more: all of each producer, in its order.
    fn take(&self) -> Counts {
        let mut client = self.run.server.connect();
        let mut counts = Counts::new();
        while !self.run.has_failed() {
            let is_last = self.moved.load(Ordering::Acquire);
            let mut found = 0;
            for queue in (0..MOVED_QUEUES).map(|queue| format!("moved-{queue}")) {
                let pop = if is_pushed_right(&queue) { "LPOP" } else { "RPOP" };
                let taken = client.line(&format!("{pop} taken-{queue} {TAKEN}"));
                if show(&taken) == "_" {
                    continue;
                }
                for (from, producer, number) in texts(taken).iter().map(|text| element(text)) {
                    assert_eq!(from, queue);
                    let next = counts.entry((from, producer)).or_default();
                    assert_eq!(number, *next, "{queue}: the next of producer {producer}");
                    *next += 1;
                    found += 1;
                }
            }
            if found == 0 {
                if is_last {
                    break;
                }
                // What is moved on meanwhile becomes a list worth the name.
                thread::sleep(Duration::from_millis(5));
            }
        }
        counts
    }

    /// Kills clients that move elements, and tells those that pop them to give up, until the run is over.
    fn meddle(&self) {
        let mut client = self.run.server.connect();
        let mut random = Random::new(1);
        while self.run.goes_on() {
            let pick = |ids: &[AtomicI64], random: &mut Random| {
                ids[random.below(ids.len() as u64) as usize].load(Ordering::Relaxed)
            };
            let id = pick(&self.movers, &mut random);
            let killed = integer(&client.line(&format!("CLIENT KILL ID {id}")));
            self.killed.fetch_add(killed as usize, Ordering::Relaxed);
            let how = ["TIMEOUT", "ERROR"][random.below(2) as usize];
            let id = pick(&self.poppers, &mut random);
            integer(&client.line(&format!("CLIENT UNBLOCK {id} {how}")));
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Waits for elements of some of the queues of one parity, whose elements are taken from the same side, or of
/// all these. Returns none when it has given up.
fn pop_some(client: &mut Client, random: &mut Random, parity: u64, all: bool) -> Vec<Element> {
    let seconds = seconds(random);
    let some = |random: &mut Random| (0..3).map(|_| random.below(QUEUES / 2)).collect();
    let queues: Vec<u64> = if all { (0..QUEUES / 2).collect() } else { some(random) };
    let queues = queues.iter().map(|queue| format!("queue-{}", queue * 2 + parity));
    let queues: Vec<String> = queues.collect();
    let from = side(&queues[0]);
    let request = if random.below(4) == 0 {
        let count = random.between(1, 5);
        format!("BLMPOP {seconds} {} {} {from} COUNT {count}", queues.len(), queues.join(" "))
    } else {
        let command = if from == "LEFT" { "BLPOP" } else { "BRPOP" };
        format!("{command} {} {seconds}", queues.join(" "))
    };
    match call(client, &words(&request)) {
        Frame::Array(found) => {
            let [queue, popped] = <[Frame; 2]>::try_from(found).expect("a queue and what it had");
            let popped = match popped {
                Frame::Bulk(_) => vec![text(&popped)],
                several => texts(several),
            };
            let popped = popped.iter().map(|popped| element(popped));
            let of_queue = |(from, ..): &Element| assert_eq!(*from, text(&queue));
            popped.inspect(of_queue).collect()
        }
        Frame::Error(error) if error.starts_with(b"UNBLOCKED") => Vec::new(),
        other if show(&other) == "_" => Vec::new(),
        other => panic!("{request}: {}", show(&other)),
    }
}

/// How long to wait.
fn seconds(random: &mut Random) -> String {
    format!("0.{:03}", random.between(10, 999))
}

fn element(text: &str) -> Element {
    assert_eq!(text.len(), ELEMENT_BYTES, "{text}");
    let mut parts = unpadded(text).split(':');
    let mut part = || parts.next().expect("queue, producer and number");
    let queue = part().to_owned();
    let mut number = || part().parse().expect("a number");
    (queue, number(), number())
}

/// How many elements of each producer there are, each once.
fn counts_of(mut elements: Vec<Element>) -> Counts {
    elements.sort_unstable();
    let mut counts = Counts::new();
    for (queue, producer, number) in elements {
        let next = counts.entry((queue.clone(), producer)).or_default();
        assert_eq!(number, *next, "{queue}: the next of producer {producer}, lost or doubled");
        *next += 1;
    }
    counts
}
