use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::Waker;
use std::time::Duration;

use keyspace::{Db, Key, SLOT_COUNT};
use tier::{Budget, Clock, Environment, Tier};

use super::*;
use crate::config::Config;
use crate::execution::outcome::Needed;
use crate::execution::upkeep::Upkeep;
use crate::family::REGISTRY;
use crate::limits::{
    BATCH_REQUESTS_MAX, BUFFERS_KEPT_MAX, BUFFERS_KEPT_MIN, BUFFERS_LENT_MAX, BUFFERS_SHIFT,
    HEAVY_PART_SHIFT, OUTPUT_BUFFER_BYTES, TURN_BYTES_MAX, TURN_REQUESTS_MAX, WAITING_BUFFERS_MAX,
};
use crate::state::server::Server;
use crate::state::snapshot::Snapshot;
use crate::state::snapshot_file::tests::closed_file;

mod unread;

/// A client that takes more in one go is heavy.
const HEAVY_BYTES_MIN: u64 = TURN_BYTES_MAX >> HEAVY_PART_SHIFT;

#[test]
fn a_wait_ends_when_its_client_is_killed() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let (client, ended) = (Client::default(), Cell::new(false));
        poll_fn(|cx| {
            client.set_waker(cx.waker());
            Poll::Ready(())
        })
        .await;
        assert_eq!(unless_killed(&client, pin!(async { 7 })).await, Some(7));
        let wait = async {
            let _ended = scope_end(&ended);
            std::future::pending::<()>().await;
        };
        // The wait comes first in each turn: it is woken, not met by chance.
        let waiting = async { unless_killed(&client, pin!(wait)).await };
        let (waited, ()) = tokio::join!(biased; waiting, async { client.kill() });
        assert_eq!(waited, None);
        assert!(ended.get(), "it was dropped");
        assert_eq!(unless_killed(&client, pin!(async { 7 })).await, None);
    });
}

/// Sets `ended` when it is dropped.
fn scope_end(ended: &Cell<bool>) -> impl Drop + '_ {
    struct End<'a>(&'a Cell<bool>);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    End(ended)
}

/// A connection that is polled by hand.
type Serving = Pin<Box<dyn Future<Output = ()>>>;

/// What is on its way between a client and its connection.
#[derive(Default)]
struct Wire {
    requests: Vec<u8>,
    replies: Vec<u8>,
    has_ended: bool,
    /// Whether the client takes no replies.
    is_full: bool,
    /// How many bytes of replies it takes before it takes no more for a while; none: all that come.
    room: Option<usize>,
}

impl Transport for Rc<RefCell<Wire>> {
    fn has_hung_up(&self) -> bool {
        let wire = self.borrow();
        wire.has_ended && wire.requests.is_empty()
    }

    fn poll_read(&self, _: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let mut wire = self.borrow_mut();
        if wire.requests.is_empty() && !wire.has_ended {
            return Poll::Pending;
        }
        let count = wire.requests.len().min(buffer.capacity() - buffer.len());
        buffer.extend(wire.requests.drain(..count));
        Poll::Ready(Ok(count))
    }

    fn poll_write(&self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut wire = self.borrow_mut();
        if wire.is_full {
            return Poll::Pending;
        }
        let count = bytes.len().min(wire.room.unwrap_or(usize::MAX));
        if count == 0 {
            return Poll::Pending;
        }
        wire.room = wire.room.map(|room| room - count);
        wire.replies.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }
}

fn worker() -> Rc<Worker> {
    worker_with(Config::default())
}

fn worker_with(config: Config) -> Rc<Worker> {
    worker_in(config, Environment::of_machine(None))
}

fn worker_in(config: Config, environment: Environment) -> Rc<Worker> {
    let budget = Budget::new(0).expect("resident memory can be read");
    let tier = Tier::new(Arc::default(), None, environment, budget, 1);
    let server = Server::new(config, &REGISTRY, Arc::new(tier));
    Worker::new(Arc::new(server), 0).expect("a worker without flash")
}

fn connect(worker: &Rc<Worker>) -> (Rc<RefCell<Wire>>, Serving) {
    let id = worker.server.clients.next_id();
    let client = Arc::new(Client { id, ..Client::default() });
    worker.server.clients.add(client.clone());
    let wire = Rc::new(RefCell::new(Wire::default()));
    let connection = Connection::new(worker.clone(), wire.clone(), client);
    (wire, Box::pin(connection.serve()))
}

/// Polls a connection until it has nothing left to do without its client. Whether it has ended.
fn serve(connection: &mut Serving) -> bool {
    // Thrice: a short batch gives its turn away once, and replies are written once others have run.
    (0..3).any(|_| connection.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready())
}

#[test]
fn a_large_request_that_has_run_leaves_its_place_to_others() {
    let config = Config::default();
    let options = [b"--maxmemory-clients".to_vec(), b"8mb".to_vec()];
    config.load_arguments(&options).expect("options that there are");
    let worker = worker_with(config);
    let (wire, mut connection) = connect(&worker);
    let large = [b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$200000\r\n", &[b'v'; 200_000][..], b"\r\n"];
    let large = large.concat();
    wire.borrow_mut().requests.extend(&large[..100_000]);
    assert!(!serve(&mut connection));
    assert!(worker.server.client_memory.has_large_inputs());
    // The end of it, and the start of the next.
    wire.borrow_mut().requests.extend(&large[100_000..]);
    wire.borrow_mut().requests.extend(&large[..1000]);
    assert!(!serve(&mut connection));
    assert_eq!(wire.borrow().replies, b"+OK\r\n");
    assert!(!worker.server.client_memory.has_large_inputs());
}

/// A connection whose requests are run by hand.
fn connection(worker: &Rc<Worker>) -> Connection<Rc<RefCell<Wire>>> {
    let client = Arc::new(Client { id: worker.server.clients.next_id(), ..Client::default() });
    Connection::new(worker.clone(), Rc::new(RefCell::new(Wire::default())), client)
}

#[test]
fn what_a_request_holds_from_a_run_before_is_not_claimed_again() {
    let worker = worker();
    let mut connection = connection(&worker);
    let has_claim_after_fetch = |connection: &mut Connection<_>| {
        let needed = Needed { reply_bytes: 64 << 20, ..Needed::default() };
        let fetch = std::pin::pin!(connection.fetch(needed));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        assert!(runtime.expect("a runtime").block_on(fetch));
        worker.server.tier.budget.has_claims()
    };
    assert!(has_claim_after_fetch(&mut connection));
    assert!(!has_claim_after_fetch(&mut connection), "its buffer is there");
    connection.reply = resp::Reply::default();
    assert!(has_claim_after_fetch(&mut connection));
}

#[test]
fn a_request_that_stores_copies_has_no_buffer_for_them() {
    let worker = worker();
    let mut connection = connection(&worker);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for _ in 0..2 {
        let needed = Needed { reply_bytes: 64 << 20, is_for_copies: true, ..Needed::default() };
        assert!(runtime.block_on(connection.fetch(needed)));
        assert!(connection.reply.capacity() < 1 << 20, "{}", connection.reply.capacity());
        assert!(worker.server.tier.budget.has_claims(), "each run makes them anew");
        assert_eq!(
            connection.memory_granted,
            Some(true),
            "it does not wait again, without its claim"
        );
    }
}

/// It would ask again, and, with memory short, wait for it again, without end.
#[test]
fn a_buffer_that_a_large_request_was_let_have_is_kept_while_it_waits() {
    for (limit, bytes) in [(&b"8mb"[..], 200_000), (b"100kb", 80_000)] {
        let config = Config::default();
        let options = [b"--maxmemory-clients".to_vec(), limit.to_vec()];
        config.load_arguments(&options).expect("options that there are");
        let worker = worker_with(config);
        let mut connection = connection(&worker);
        connection.input = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${bytes}\r\n").into_bytes();
        assert!(matches!(connection.start_batch(), Start::Nothing));
        let Next::Wait(Wait::Input(bytes)) = connection.next_read() else {
            panic!("a large request asks for its buffer")
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(connection.wait(Wait::Input(bytes)));
        worker.note_lent(2 * BUFFERS_LENT_MAX as i32);
        assert!(worker.lacks_waiting_buffers());
        connection.shrink_scarce_buffers();
        assert!(matches!(connection.next_read(), Next::Io), "{}", connection.input.capacity());
        // Nor is it when nothing more is read of anybody for a while.
        worker.server.tier.budget.add_buffers(16 << 20);
        worker.server.client_memory.brake();
        let read = connection.poll_read(&mut Context::from_waker(Waker::noop()));
        assert!(connection.is_braked && matches!(read, Poll::Ready(Ok(()))));
        assert!(matches!(connection.next_read(), Next::Io), "{}", connection.input.capacity());
    }
}

/// Else clients that send nothing more would keep it from others.
#[test]
fn a_buffer_that_a_large_request_was_let_have_is_given_back_when_nothing_arrives() {
    let config = Config::default();
    let options = [b"--maxmemory-clients".to_vec(), b"8mb".to_vec()];
    config.load_arguments(&options).expect("options that there are");
    let worker = worker_with(config);
    let (wire, mut connection) = connect(&worker);
    wire.borrow_mut().requests.extend(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\nabc");
    assert!(!serve(&mut connection));
    let client = worker.server.clients.all().pop().expect("it is connected");
    let capacity = client.input_capacity.load(Ordering::Relaxed);
    assert!(capacity <= 2 * READ_BUFFER_BYTES as u64, "{capacity}");
    assert!(!worker.server.client_memory.has_large_inputs());
    // And it goes on when more does.
    wire.borrow_mut().requests.extend(&[b'v'; 2_000_000 - 3]);
    wire.borrow_mut().requests.extend(b"\r\n");
    (0..20).any(|_| serve(&mut connection) || !wire.borrow().replies.is_empty());
    assert_eq!(wire.borrow().replies, b"+OK\r\n");
}

/// It may be what the snapshot waits for.
#[test]
fn who_waits_for_a_snapshot_holds_no_memory_and_asks_for_none() {
    let worker = worker();
    let tier = &worker.server.tier;
    let snapshot = Arc::new(Snapshot::new(tier, closed_file(tier), false, u64::MAX, None));
    let mut connection = connection(&worker);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let needed = Needed { reply_bytes: 64 << 20, is_for_copies: true, ..Needed::default() };
    assert!(runtime.block_on(connection.fetch(needed)));
    connection.spare = Vec::with_capacity(1 << 20);
    worker.server.saves.set_snapshot(Some(snapshot.clone()));
    let key = Key::new(b"key");
    let mut cx = Context::from_waker(Waker::noop());
    {
        assert!(tier.budget.has_claims());
        let mut wait = Box::pin(connection.wait(Wait::Saving(key.bytes.into())));
        for _ in 0..3 {
            assert!(wait.as_mut().poll(&mut cx).is_pending());
            worker.upkeep_tick.notify_waiters();
        }
        assert!(!tier.budget.has_claims());
        snapshot.take_slot(key.slot);
        assert!(wait.as_mut().poll(&mut cx).is_ready());
    }
    assert_eq!((connection.spare.capacity(), connection.memory_granted), (0, None));
    worker.server.saves.set_snapshot(None);
}

/// What a request reads of a tree is little first, a leaf of the index, and then much.
#[test]
fn a_request_that_has_had_its_turn_keeps_it_while_it_fetches_little() {
    let worker = worker();
    let mut connection = connection(&worker);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let large = || Needed { reply_bytes: 4 << 20, is_for_copies: true, ..Needed::default() };
    let small = || Needed { reply_bytes: 100, ..Needed::default() };
    assert!(runtime.block_on(connection.fetch(large())));
    let reserved = worker.server.tier.budget.client_bytes();
    connection.copies_bytes = 0;
    assert!(runtime.block_on(connection.fetch(small())));
    assert!(connection.counted.is_granted(), "else it is the last of the queue again");
    assert_eq!(worker.server.tier.budget.client_bytes(), reserved, "others must not take it");
    assert!(runtime.block_on(connection.fetch(large())));
    assert!(runtime.block_on(connection.fetch(small())));
    assert!(connection.reply_granted >= 4 << 20, "the next run makes its copies as well");
    connection.release_fetched();
    assert!(!connection.counted.is_granted());
}

/// Time that passes when a test says so, in milliseconds.
#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.unix_ms())
    }

    fn unix_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn what_waits_for_its_turn_runs_at_the_time_of_its_run() {
    let clock = Arc::new(HandClock(AtomicU64::new(1_000)));
    let environment = Environment { clock: clock.clone(), ..Environment::of_machine(None) };
    let worker = worker_in(Config::default(), environment);
    let (wire, mut connection) = connect(&worker);
    let mut poll = || {
        assert!(connection.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    };
    wire.borrow_mut().requests.extend(b"SET k v PX 5\r\nPEXPIRETIME k\r\n");
    poll();
    // The batch has been read; the turn that it waits for is spent by others.
    worker.turn.add(TURN_BYTES_MAX as usize + 1);
    poll();
    assert!(wire.borrow().replies.is_empty());
    clock.0.store(1_100, Ordering::Relaxed);
    poll();
    poll();
    assert_eq!(wire.borrow().replies, b"+OK\r\n:1105\r\n");
}

#[test]
fn replies_are_written_when_all_that_are_ready_have_run() {
    let worker = worker();
    let (wire, mut one) = connect(&worker);
    let (other_wire, mut other) = connect(&worker);
    let pings = b"PING\r\n".repeat(TURN_REQUESTS_MAX);
    wire.borrow_mut().requests.extend(&pings);
    other_wire.borrow_mut().requests.extend(&pings);
    let poll = |connection: &mut Serving| {
        assert!(connection.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    };
    poll(&mut one);
    poll(&mut other);
    assert_eq!(calls(&worker), 2 * TURN_REQUESTS_MAX as u64);
    assert!(wire.borrow().replies.is_empty() && other_wire.borrow().replies.is_empty());
    poll(&mut one);
    assert_eq!(wire.borrow().replies, b"+PONG\r\n".repeat(TURN_REQUESTS_MAX));
}

/// Commands that have run.
fn calls(worker: &Worker) -> u64 {
    worker.stats.commands.iter().map(|command| command.calls.get()).sum()
}

/// Others spend the turn.
fn spend_turn(worker: &Worker) {
    worker.turn.add(TURN_BYTES_MAX as usize + 1);
}

#[test]
fn a_client_whose_requests_are_answered_in_turn_stays_light() {
    let worker = worker();
    let mut client = HandServed::connect(&worker);
    let set = format!("SET k {}", "v".repeat(30_000));
    client.send(&set);
    let rounds = 3 * HEAVY_BYTES_MIN as usize / set.len();
    let mut heavy = 0;
    for round in 0..rounds {
        let before = calls(&worker);
        while calls(&worker) == before {
            client.poll();
        }
        // Others spend the turn before its reply is written; then its next request is there at once.
        spend_turn(&worker);
        client.poll();
        assert_eq!(client.take_replies(), b"+OK\r\n", "{round}");
        heavy += usize::from(worker.turn.is_waited_for_by_heavy());
        client.send(&set);
    }
    // The time of a run counts, and the machine may have been elsewhere in the midst of one.
    assert!(heavy < rounds / 4, "{heavy} of {rounds} times");
}

#[test]
fn a_client_that_asks_for_one_large_reply_after_another_is_heavy() {
    let worker = worker();
    let mut client = HandServed::connect(&worker);
    // Its reply leaves in one piece.
    client.call(&format!("SETRANGE k {} x", HEAVY_BYTES_MIN * 3 / 2));
    client.send("GET k");
    for round in 0..5 {
        let before = calls(&worker);
        while calls(&worker) == before {
            client.poll();
        }
        spend_turn(&worker);
        client.send("GET k");
        for _ in 0..POLLS_MAX {
            if worker.turn.is_waited_for_by_heavy() {
                break;
            }
            client.poll();
        }
        assert!(worker.turn.is_waited_for_by_heavy(), "{round}");
        assert!(client.take_replies().len() as u64 > HEAVY_BYTES_MIN, "{round}");
    }
}

#[test]
fn a_client_that_takes_no_replies_is_read_also_while_others_spend_each_turn() {
    let worker = worker();
    let mut client = HandServed::connect(&worker);
    client.wire.borrow_mut().is_full = true;
    for _ in 0..20 {
        client.send("INCR k");
        for _ in 0..4 {
            spend_turn(&worker);
            client.poll();
            client.poll();
        }
    }
    client.wire.borrow_mut().is_full = false;
    let expected: String = (1..=20).map(|number| format!(":{number}\r\n")).collect();
    client.poll();
    assert_eq!(client.take_replies(), expected.as_bytes());
}

/// In one buffer that grows they would be in memory twice each time it does.
#[test]
fn replies_that_are_left_unread_stay_where_they_are_and_come_in_their_order() {
    const REPLY_BYTES: usize = 100_000;
    const REPLIES: usize = 100;
    let worker = worker();
    let mut client = HandServed::connect(&worker);
    client.call(&format!("SETRANGE k {} x", REPLY_BYTES - 1));
    client.wire.borrow_mut().is_full = true;
    let mut expected = Vec::new();
    for count in 1..=REPLIES {
        client.send(&format!("GETRANGE k {count} -1"));
        client.send(&format!("ECHO {count}"));
        (0..POLLS_MAX).for_each(|_| client.poll());
        let len = REPLY_BYTES - count;
        expected.extend(format!("${len}\r\n").into_bytes());
        expected.extend([vec![0; len - 1], b"x\r\n".to_vec()].concat());
        expected.extend(format!("${}\r\n{count}\r\n", count.to_string().len()).into_bytes());
        let held = worker.server.tier.budget.client_bytes() as usize;
        let most = expected.len() * 3 / 2 + 2 * OUTPUT_BUFFER_BYTES;
        assert!(held <= most, "{held} bytes for {}", expected.len());
    }
    client.wire.borrow_mut().is_full = false;
    (0..4 * REPLIES).for_each(|_| client.poll());
    assert!(client.take_replies() == expected);
    assert!(worker.server.tier.budget.client_bytes() < OUTPUT_BUFFER_BYTES as i64);
}

#[test]
fn who_has_hung_up_is_ended_while_it_waits_unless_it_has_sent_anything_but_reads() {
    let worker = worker();
    for (requests, has_hung_up, has_unwritten, ends) in [
        ("GET a\r\n", true, false, true),
        ("GET a\r\nMGET a b\r\n", true, false, true),
        ("GET a\r\n", false, false, false),
        ("GET a\r\n", true, true, false),
        ("GET a\r\nSET a b\r\n", true, false, false),
        ("SET a b\r\nGET a\r\n", true, false, false),
        ("PUBLISH a b\r\n", true, false, false),
        ("NONE\r\n", true, false, false),
        ("GET a\r\nGE", true, false, false),
    ] {
        let mut connection = connection(&worker);
        connection.input.extend_from_slice(requests.as_bytes());
        assert!(!matches!(connection.start_batch(), Start::Nothing), "{requests}");
        connection.transport.borrow_mut().has_ended = has_hung_up;
        if has_unwritten {
            connection.reply.bulk(b"x");
        }
        for _ in 0..8 {
            worker.server.tier.measure();
            connection.end_if_left(&Context::from_waker(Waker::noop()));
        }
        let is_ended = connection.session.client.is_killed();
        assert_eq!(is_ended, ends, "{requests:?} {has_hung_up} {has_unwritten}");
    }
}

#[test]
fn the_rest_of_a_large_reply_is_written_in_a_turn_of_its_own() {
    let worker = worker();
    let mut client = HandServed::connect(&worker);
    client.call(&format!("SETRANGE k {} x", HEAVY_BYTES_MIN * 3 / 2));
    client.wire.borrow_mut().is_full = true;
    client.send("GET k");
    for _ in 0..POLLS_MAX {
        client.poll();
    }
    // The client reads on while others spend the turn.
    client.wire.borrow_mut().is_full = false;
    spend_turn(&worker);
    client.poll();
    assert!(client.take_replies().is_empty());
    assert!(worker.turn.is_waited_for_by_heavy());
    for _ in 0..POLLS_MAX {
        client.poll();
    }
    assert!(client.take_replies().len() as u64 > HEAVY_BYTES_MIN);
}

#[test]
fn buffers_that_grow_while_their_client_waits_are_counted() {
    let worker = worker();
    let mut holder = HandServed::connect(&worker);
    holder.wire.borrow_mut().requests.extend(b"*2\r\n$4\r\nECHO\r\n$40000\r\n");
    holder.wire.borrow_mut().requests.extend([b'x'; READ_BUFFER_BYTES / 2 + 1]);
    holder.poll();
    let held = worker.buffers_lent();
    let mut client = HandServed::connect(&worker);
    for _ in 0..5 {
        client.send("BLPOP list 0");
        client.poll();
        // What comes behind it outgrows a buffer.
        let bytes = 2 * READ_BUFFER_BYTES;
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${bytes}\r\n");
        client.wire.borrow_mut().requests.extend(head.into_bytes());
        client.wire.borrow_mut().requests.extend(vec![b'v'; bytes]);
        client.wire.borrow_mut().requests.extend(b"\r\n");
        for _ in 0..POLLS_MAX {
            client.poll();
        }
        let mut other = HandServed::connect(&worker);
        other.call("RPUSH list element");
        for _ in 0..POLLS_MAX {
            client.poll();
        }
        assert!(client.take_replies().ends_with(b"+OK\r\n"));
    }
    assert_eq!(worker.buffers_lent(), held);
}

#[test]
fn spare_buffers_take_no_more_than_a_part_of_what_clients_may_take() {
    let kept = |clients: String| {
        let options = [b"--maxmemory-clients".to_vec(), clients.into_bytes()];
        let config = Config::default();
        config.load_arguments(&options).expect("an option");
        let worker = worker_with(config);
        worker.fit_buffers();
        let buffers: Vec<_> = (0..2 * BUFFERS_KEPT_MAX).map(|_| worker.take_buffer()).collect();
        buffers.into_iter().for_each(|buffer| worker.give_buffer(buffer));
        worker.buffers_kept()
    };
    let share = |count: usize| ((count * READ_BUFFER_BYTES) << BUFFERS_SHIFT).to_string();
    assert_eq!(kept(share(20)), 20);
    assert_eq!(kept(share(1)), BUFFERS_KEPT_MIN);
    assert_eq!(kept(share(1000)), BUFFERS_KEPT_MAX);
}

#[test]
fn requests_that_wait_leave_buffers_to_others_when_many_do() {
    // As many reads as a turn has time for are twice as many.
    const CLIENTS: usize = 250;
    let worker = worker();
    let mut control = HandServed::connect(&worker);
    control.call("SET k value");
    control.call("CLIENT PAUSE 100000 ALL");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| HandServed::connect(&worker)).collect();
    for client in &mut clients {
        client.send("PING");
        client.send("GET k");
        // Some come when the turn is spent.
        (0..POLLS_MAX).for_each(|_| client.poll());
    }
    let all = worker.server.clients.all();
    let is_blocked = |client: &&Arc<Client>| client.is_blocked.load(Ordering::Relaxed);
    assert_eq!(all.iter().filter(is_blocked).count(), CLIENTS);
    let lent = worker.buffers_lent();
    assert!((WAITING_BUFFERS_MAX / 2..=WAITING_BUFFERS_MAX + 2).contains(&lent), "{lent}");
    control.call("CLIENT UNPAUSE");
    worker.upkeep_tick.notify_waiters();
    for client in &mut clients {
        (0..POLLS_MAX).for_each(|_| client.poll());
        assert_eq!(client.take_replies(), b"+PONG\r\n$5\r\nvalue\r\n");
    }
    assert_eq!(worker.buffers_lent(), 0);
}

#[test]
fn a_client_that_is_killed_while_it_waits_for_its_turn_runs_nothing_more() {
    let worker = worker();
    let mut client = HandServed::connect(&worker);
    client.send("SET k v");
    client.poll();
    spend_turn(&worker);
    client.poll();
    worker.server.clients.all().iter().for_each(|client| client.kill());
    assert!(serve(&mut client.serving));
    let mut other = HandServed::connect(&worker);
    assert_eq!(other.call("EXISTS k"), b":0\r\n");
}

#[test]
fn a_large_reply_counts_unless_it_is_taken_at_once() {
    const REPLY_BYTES: usize = 500_000;
    let worker = worker();
    let mut client = HandServed::connect(&worker);
    client.call(&format!("SETRANGE k {} x", REPLY_BYTES - 1));
    let most_of_a_read = |client: &mut HandServed| {
        client.send("GET k");
        let held = |_| {
            // A thread that lost its core in a run has spent its turn.
            worker.turn.renew();
            client.poll();
            worker.server.tier.budget.client_bytes()
        };
        (0..POLLS_MAX).map(held).max().expect("polls")
    };
    let taken = most_of_a_read(&mut client);
    assert!(taken < REPLY_BYTES as i64, "{taken}");
    assert!(client.take_replies().len() > REPLY_BYTES);
    client.wire.borrow_mut().is_full = true;
    let left = most_of_a_read(&mut client);
    assert!(left >= REPLY_BYTES as i64, "{left}");
}

#[test]
fn a_large_reply_counts_while_its_client_waits_for_its_turn() {
    let worker = worker();
    let mut client = HandServed::connect(&worker);
    // Less than is written early, in a buffer of more than the usual size.
    let bytes = READ_BUFFER_BYTES * 3 / 2;
    client.call(&format!("SETRANGE k {} x", bytes - 1));
    client.wire.borrow_mut().requests.extend(b"PING\r\n".repeat(BATCH_REQUESTS_MAX - 1));
    client.send("GET k");
    client.send("PING");
    let before = calls(&worker);
    while calls(&worker) < before + BATCH_REQUESTS_MAX as u64 {
        client.poll();
    }
    spend_turn(&worker);
    client.poll();
    assert_eq!(calls(&worker), before + BATCH_REQUESTS_MAX as u64);
    assert!(client.take_replies().is_empty());
    let counted = worker.server.tier.budget.client_bytes();
    assert!(counted >= bytes as i64, "{counted}");
}

#[test]
fn connections_are_served_without_a_runtime() {
    let worker = worker();
    let (wire, mut one) = connect(&worker);
    let (other_wire, mut other) = connect(&worker);
    wire.borrow_mut().requests.extend(b"SET k v\r\nGET k\r\n");
    other_wire.borrow_mut().requests.extend(b"APPEND k w\r\n");
    assert!(!serve(&mut one));
    assert_eq!(wire.borrow().replies, b"+OK\r\n$1\r\nv\r\n");
    assert!(!serve(&mut other));
    assert_eq!(other_wire.borrow().replies, b":2\r\n");
    assert_eq!(worker.server.clients.count(), 2);
    wire.borrow_mut().has_ended = true;
    assert!(serve(&mut one));
    assert_eq!(worker.server.clients.count(), 1);
}

/// A client that is served by hand.
struct HandServed {
    wire: Rc<RefCell<Wire>>,
    serving: Serving,
}

impl HandServed {
    fn connect(worker: &Rc<Worker>) -> HandServed {
        let (wire, serving) = connect(worker);
        HandServed { wire, serving }
    }

    fn send(&self, line: &str) {
        self.wire.borrow_mut().requests.extend_from_slice(format!("{line}\r\n").as_bytes());
    }

    fn poll(&mut self) {
        let polled = self.serving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }

    /// The reply to a line.
    fn call(&mut self, line: &str) -> Vec<u8> {
        self.send(line);
        (0..POLLS_MAX).for_each(|_| self.poll());
        self.take_replies()
    }

    fn take_replies(&self) -> Vec<u8> {
        std::mem::take(&mut self.wire.borrow_mut().replies)
    }
}

/// Polls after which everything has been answered.
const POLLS_MAX: usize = 24;

/// A server that reads one key in a window, and four keys in two databases, each of whose values spends a
/// turn: so every window is a poll of its own.
fn worker_of_windows(clock: &Arc<HandClock>) -> Rc<Worker> {
    let environment = Environment { clock: clock.clone(), ..Environment::of_machine(None) };
    let budget = Budget::new(0).expect("resident memory can be read");
    let tier = Tier::new(Arc::default(), None, environment, budget, 1);
    let mut server = Server::new(Config::default(), &REGISTRY, Arc::new(tier));
    server.slices.gathered_keys_max = 1;
    server.slices.own_turn_nanos_max = 0;
    let worker = Worker::new(Arc::new(server), 0).expect("a worker without flash");
    let mut client = HandServed::connect(&worker);
    for db in 0..2 {
        client.call(&format!("SELECT {db}"));
        for key in ["a", "b", "c", "d"] {
            client.call(&format!("SETRANGE {key} {TURN_BYTES_MAX} {db}{key}"));
        }
    }
    worker
}

/// Runs one line of what happens meanwhile: of a client, or of time.
fn disturb((clock, worker): (&HandClock, &Worker), other: &mut HandServed, line: &str) {
    // It must not wait for its turn behind the reader, who is not served meanwhile.
    worker.turn.renew();
    match line {
        "time passes" => _ = clock.0.fetch_add(100, Ordering::Relaxed),
        line => _ = other.call(line),
    }
}

#[test]
fn a_read_in_windows_answers_one_moment_whatever_happens_meanwhile() {
    let disturbances: [&[&str]; 11] = [
        &[],
        &["MSET a 1 d 1"],
        &["DEL a d"],
        &["RENAME a d"],
        &["SWAPDB 0 1"],
        &["SWAPDB 0 1", "SWAPDB 1 0"],
        &["SWAPDB 0 1", "MSET a 1 d 1"],
        &["FLUSHDB"],
        &["APPEND d x", "APPEND a x"],
        &["MOVE d 1", "MOVE a 1"],
        &["PEXPIRE a 50", "time passes", "SET d 1"],
    ];
    let lookups =
        |worker: &Worker| worker.stats.keyspace_hits.get() + worker.stats.keyspace_misses.get();
    for lines in disturbances {
        // What a read answers before the first line, and after each.
        let clock = Arc::new(HandClock(AtomicU64::new(1_000)));
        let worker = worker_of_windows(&clock);
        let mut other = HandServed::connect(&worker);
        let before = lookups(&worker);
        let mut moments = vec![other.call("MGET a b c d")];
        for line in lines {
            disturb((&clock, &worker), &mut other, line);
            moments.push(other.call("MGET a b c d"));
        }
        let own = lookups(&worker) - before - 4 * moments.len() as u64;
        for (at, gap) in (0..POLLS_MAX).flat_map(|at| [(at, 0), (at, 2)]) {
            let clock = Arc::new(HandClock(AtomicU64::new(1_000)));
            let worker = worker_of_windows(&clock);
            let mut other = HandServed::connect(&worker);
            let mut reader = HandServed::connect(&worker);
            let before = lookups(&worker);
            reader.send("MGET a b c d");
            for _ in 0..at {
                // Others have spent the turn.
                spend_turn(&worker);
                reader.poll();
            }
            for line in lines {
                disturb((&clock, &worker), &mut other, line);
                (0..gap).for_each(|_| reader.poll());
            }
            for _ in 0..2 * POLLS_MAX {
                reader.poll();
                // What names two keys is gathered, too, and waits for the reader.
                other.poll();
            }
            let reply = reader.take_replies();
            assert!(moments.contains(&reply), "{lines:?} after {at} polls, {gap} apart");
            assert_eq!(lookups(&worker) - before, own + 4, "{lines:?} after {at} polls");
            let keyspace = &worker.server.tier.keyspace;
            let watchers = (0..SLOT_COUNT as u16).map(|slot| keyspace.lock(slot).watchers());
            assert_eq!(watchers.sum::<usize>(), 0);
        }
    }
}

#[test]
fn a_client_that_is_killed_in_the_midst_of_a_read_in_windows_watches_nothing() {
    let worker = worker_of_windows(&Arc::new(HandClock(AtomicU64::new(1_000))));
    let keyspace = &worker.server.tier.keyspace;
    let watchers =
        || (0..SLOT_COUNT as u16).map(|slot| keyspace.lock(slot).watchers()).sum::<usize>();
    let mut reader = HandServed::connect(&worker);
    reader.send("MGET a b c d");
    let is_under_way = |_| {
        reader.poll();
        watchers() >= 2
    };
    assert!((0..POLLS_MAX).any(is_under_way));
    worker.server.clients.all().iter().for_each(|client| client.kill());
    assert!(serve(&mut reader.serving));
    assert_eq!(watchers(), 0);
    assert!(reader.take_replies().is_empty());
}

#[test]
fn a_run_counts_unless_it_names_more_values_than_before() {
    let mut connection = connection(&worker());
    for named in 1..=20 {
        connection.count_attempt(named);
        assert_eq!(connection.attempts, 1);
    }
    for (named, attempts) in [(20, 2), (3, 3), (0, 4), (21, 4)] {
        connection.count_attempt(named);
        assert_eq!(connection.attempts, attempts, "{named}");
    }
    connection.end_request();
    connection.count_attempt(1);
    assert_eq!(connection.attempts, 1);
}

/// What its reply takes is granted at once, for one key and for several; it may be read in windows then.
#[test]
fn a_large_reply_of_large_collections_is_waited_for_once() {
    let worker = worker();
    let mut connection = connection(&worker);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut run = |line: &str| -> (u32, usize) {
        connection.input.extend_from_slice(line.as_bytes());
        connection.input.extend_from_slice(b"\r\n");
        // Nobody reads what was replied before.
        let (mut waits, before) = (0, connection.unwritten());
        loop {
            match connection.run_requests() {
                Next::Wait(wait) => {
                    waits += u32::from(!matches!(wait, Wait::Windows | Wait::Output));
                    runtime.block_on(connection.wait(wait));
                }
                Next::Turn => {}
                Next::Io => return (waits, connection.unwritten() - before),
            }
        }
    };
    for first in (0..40_000).step_by(500) {
        let numbers = first..first + 500;
        let pairs: String = numbers.clone().map(|number| format!(" {number} {number}")).collect();
        let members: String = numbers.map(|number| format!(" {number}")).collect();
        for line in [format!("ZADD z{pairs}"), format!("SADD s{members}")] {
            assert_eq!(run(&line).0, 0);
        }
    }
    for line in ["ZRANGE z 0 -1 WITHSCORES", "SMEMBERS s", "ZUNION 2 z s WITHSCORES", "SUNION s s"]
    {
        let (waits, bytes) = run(line);
        assert!(waits == 1 && bytes > 400_000, "{line}: {waits} waits, {bytes} bytes");
    }
}

#[test]
fn what_upkeep_gives_to_those_who_wait_is_counted() {
    let worker = worker();
    let (waits, mut waiting) = connect(&worker);
    waits.borrow_mut().requests.extend_from_slice(b"BLPOP list 0\r\n");
    assert!(!serve(&mut waiting));
    let (pushes, mut pushing) = connect(&worker);
    pushes.borrow_mut().requests.extend_from_slice(b"RPUSH other a b\r\n");
    assert!(!serve(&mut pushing));
    // As if another worker had pushed, and come no further than to unlock the slot.
    let tier = &worker.server.tier;
    let (key, other) = (Key::new(b"list"), Key::new(b"other"));
    let mut tally = tier.tally();
    let taken = Db::new(&mut tier.keyspace.lock(other.slot), 0, 1, &mut tally).take(&other);
    let carried = taken.expect("it is there");
    Db::new(&mut tier.keyspace.lock(key.slot), 0, 1, &mut tally).put_carried(&key, carried);
    tier.add_tally(&mut tally);
    worker.server.waiters.mark_ready(0, b"list");
    let hot_bytes = tier.counters.hot_bytes.load(Ordering::Relaxed);
    Upkeep::new(worker.clone()).round();
    assert!(tier.counters.hot_bytes.load(Ordering::Relaxed) < hot_bytes);
    serve(&mut waiting);
    assert_eq!(waits.borrow().replies, b"*2\r\n$4\r\nlist\r\n$1\r\na\r\n");
}

#[test]
fn a_batch_of_long_requests_lets_others_have_their_turn() {
    let worker = worker();
    let (wire, mut connection) = connect(&worker);
    wire.borrow_mut().requests.extend(format!("SETRANGE key {TURN_BYTES_MAX} x\r\n").as_bytes());
    assert!(!serve(&mut connection));
    worker.turn.renew();
    // All of them together take many turns on any machine.
    const REQUESTS: u64 = 10_000;
    wire.borrow_mut().requests.extend(b"BITCOUNT key\r\n".repeat(REQUESTS as usize));
    let before = calls(&worker);
    assert!(!serve(&mut connection));
    let at_first = calls(&worker) - before;
    assert!((1..REQUESTS).contains(&at_first), "{at_first}");
    // It goes on when it has its turn.
    for _ in 0..4 * REQUESTS {
        worker.turn.renew();
        assert!(!serve(&mut connection));
    }
    assert_eq!(calls(&worker) - before, REQUESTS);
}

/// There may be very many that say nothing.
#[test]
fn a_connection_is_kept_once() {
    let worker = worker();
    let client = Arc::new(Client::default());
    let connection = Connection::new(worker, Rc::<RefCell<Wire>>::default(), client);
    let own_bytes = size_of_val(&connection);
    let bytes = size_of_val(&connection.serve());
    println!("{own_bytes} bytes of a connection, {bytes} of its task");
    assert!(bytes < 2 * own_bytes, "{bytes} bytes");
}

/// It neither reads on nor keeps the worker busy.
#[test]
fn a_request_that_has_begun_waits_while_clients_take_too_much() {
    let config = Config::default();
    config
        .load_arguments(&[b"--maxmemory-clients".to_vec(), b"8mb".to_vec()])
        .expect("an option that there is");
    let worker = worker_with(config);
    let (wire, mut connection) = connect(&worker);
    let requests = |bytes: &[u8]| wire.borrow_mut().requests.extend_from_slice(bytes);
    // So many have buffers that it keeps what has arrived in memory of its size.
    worker.note_lent(BUFFERS_LENT_MAX as i32 + 1);
    requests(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$30");
    assert!(!serve(&mut connection));
    // Another takes too much, and none may be closed.
    let large = Arc::new(Client { id: worker.server.clients.next_id(), ..Client::default() });
    large.input_capacity.store(10 << 20, Ordering::Relaxed);
    worker.server.clients.add(large.clone());
    for client in worker.server.clients.all() {
        client.no_evict.store(true, Ordering::Relaxed);
    }
    worker.server.tier.budget.add_buffers(10 << 20);
    worker.server.client_memory.brake();
    requests(b"\r\nv23456789012345678901234567890\r\n");
    for _ in 0..3 {
        worker.upkeep_tick.notify_waiters();
        assert!(!serve(&mut connection));
    }
    assert!(!wire.borrow().requests.is_empty(), "nothing more is read of it");
    large.input_capacity.store(0, Ordering::Relaxed);
    worker.server.tier.budget.add_buffers(-10 << 20);
    worker.upkeep_tick.notify_waiters();
    assert!(!serve(&mut connection));
    assert_eq!(wire.borrow().replies, b"+OK\r\n");
}

/// Records of the journal tell when keys went, and may tell of one whose time has come since.
#[test]
fn while_data_is_loaded_no_look_at_a_key_has_it_expire() {
    let clock = Arc::new(HandClock(AtomicU64::new(1_000)));
    let environment = Environment { clock: clock.clone(), ..Environment::of_machine(None) };
    let config = Config::default();
    let options = [b"--enable-debug-command".to_vec(), b"yes".to_vec()];
    config.load_arguments(&options).expect("options that there are");
    let worker = worker_in(config, environment);
    let mut client = HandServed::connect(&worker);
    let keys = |worker: &Worker| {
        worker.tier.after_batch(&mut worker.tally.borrow_mut());
        worker.server.tier.key_count(0)
    };
    assert_eq!(client.call("SET k v PX 50"), b"+OK\r\n");
    assert_eq!(client.call("WATCH k"), b"+OK\r\n");
    disturb((&clock, &worker), &mut client, "time passes");
    assert!(worker.server.pause.start_loading());
    for line in ["DEBUG OBJECT k", "MULTI", "EXEC", "WATCH k"] {
        let reply = client.call(line);
        assert_ne!(reply[0], b'-', "{line}");
        assert_eq!(keys(&worker), 1, "{line}");
    }
    worker.server.pause.end_loading();
    client.call("GET k");
    assert_eq!(keys(&worker), 0);
}

#[test]
fn info_tells_that_data_is_loaded_as_long_as_clients_are_refused() {
    let worker = worker();
    let mut client = HandServed::connect(&worker);
    assert!(worker.server.pause.start_loading());
    assert!(client.call("GET k").starts_with(b"-LOADING"));
    let loading = |client: &mut HandServed| {
        let info = String::from_utf8(client.call("INFO persistence")).expect("a text");
        info.lines().find_map(|line| line.strip_prefix("loading:").map(str::to_owned))
    };
    assert_eq!(loading(&mut client).as_deref(), Some("1"));
    worker.server.pause.end_loading();
    assert_eq!(client.call("GET k"), b"$-1\r\n");
    assert_eq!(loading(&mut client).as_deref(), Some("0"));
}
