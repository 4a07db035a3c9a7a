//! Requests that are arriving: what is there of them, and what is announced.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Connections that the test itself may need besides.
const SPARE_FILES: u64 = 64;
/// After that a client that has not got on is closed before those that have, which is two seconds, also where the
/// server was late to read what it sent.
const STANDS_STILL: Duration = Duration::from_secs(4);

fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("a process may raise its limit up to the hard one");
    limit.maximum.unwrap_or(u64::MAX)
}

#[test]
fn a_large_request_that_stops_does_not_hold_up_others_that_arrive() {
    // Clients may take 32 MiB, of which large requests that arrive share 4, but for one that stands still.
    let server = start("128mb", "512mb");
    let mut stopped = server.connect();
    stopped.write(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$12000000\r\n");
    stopped.write(&vec![b'v'; 10 << 20]);
    let mut client = server.connect();
    assert_eq!(client.call(&["SET", "b", &"v".repeat(1 << 20)]), Frame::Simple(b"OK".to_vec()));
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    stopped.write(&vec![b'v'; 12_000_000 - (10 << 20)]);
    stopped.write(b"\r\n");
    assert_eq!(show(&stopped.read()), "+OK");
}

#[test]
fn large_arguments_from_many_sides_are_taken_in_turn() {
    const CLIENTS: usize = 8;
    let server = start("100mb", "512mb");
    let value = "v".repeat(24 << 20);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (mut client, value) = (server.connect(), &value);
            let key = format!("key-{number}");
            scope.spawn(move || assert_eq!(show(&client.call(&["SET", &key, value])), "+OK"));
        }
    });
    let mut client = server.connect();
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_peak(&server, 100);
}

#[test]
fn a_large_request_that_does_not_go_on_is_closed_for_others() {
    let server = start("100mb", "256mb");
    let mut stuck = server.connect();
    stuck.write(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20000000\r\n");
    stuck.write(&[b'v'; 1 << 20]);
    let mut client = server.connect();
    wait_for(&mut client, "mem_clients_normal", |value| value >= 20_000_000);
    let value = "v".repeat(20_000_000);
    assert_eq!(show(&client.call(&["SET", "key", &value])), "+OK");
    assert_eq!(info(&mut client, "evicted_clients"), 1);
    assert_peak(&server, 100);
}

#[test]
fn an_argument_that_cannot_fit_is_refused_by_its_header() {
    const PIECE: usize = 1 << 20;
    let server = start("100mb", "256mb");
    let mut client = server.connect();
    for (announced, refused) in [(30 * PIECE, refusal(100)), (500 * PIECE, OOM.to_owned())] {
        client.write(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${announced}\r\n").as_bytes());
        assert_eq!(show(&client.read()), refused, "before any of it has come");
        let piece = vec![b'v'; PIECE];
        (0..announced / PIECE).for_each(|_| client.write(&piece));
        client.write(b"\r\n");
        assert_eq!(client.show("GET k"), "_", "the next request");
    }
    assert_peak(&server, 100);
}

#[test]
fn ten_thousand_halves_of_requests_take_about_what_has_arrived() {
    let count = (raise_open_files() - SPARE_FILES).min(10_000);
    assert!(count == 10_000, "{count} connections are not ten thousand");
    let options = ["--workers", "2", "--maxmemory", "100mb", "--maxclients", "10010"];
    let server = Server::kelvin(&options);
    let mut control = server.connect();
    control.call(&["SET", "key", "value"]);
    let mut clients: Vec<TcpStream> = (0..count).map(|_| server.stream()).collect();
    for client in &mut clients {
        client.write_all(b"*2\r\n$3\r\nGET\r\n$3\r\nk").expect("the server reads");
    }
    assert_eq!(control.show("GET key"), "$value");
    for client in &mut clients {
        client.write_all(b"ey\r\n").expect("nobody was closed");
        let mut reply = [0; 11];
        client.read_exact(&mut reply).expect("an answer");
        assert_eq!(&reply, b"$5\r\nvalue\r\n");
    }
    assert_eq!(info(&mut control, "evicted_clients"), 0);
    assert_peak(&server, 100);
}

/// Small buffers of very many count, and so do the connections by themselves.
#[test]
fn what_ten_thousand_connections_hold_stays_within_maxmemory() {
    let count = (raise_open_files() - SPARE_FILES).min(10_000);
    let options = ["--workers", "2", "--maxmemory", "64mb", "--maxclients", "10010"];
    let server = Server::kelvin_with_flash("512mb", &options);
    let mut control = server.connect();
    let mut clients: Vec<TcpStream> = (0..count).map(|_| server.stream()).collect();
    wait_for(&mut control, "connected_clients", |value| value > count);
    assert_eq!(info(&mut control, "evicted_clients"), 0, "nobody is closed for being there");
    assert!(info(&mut control, "mem_clients_normal") >= count * 2_000);
    assert_peak(&server, 64);
    let begun = [&b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$100000\r\n"[..], &[b'x'; 2_000]].concat();
    for (number, client) in clients.iter_mut().enumerate() {
        // One that was closed cannot send any more: that is what should happen.
        let _closed = client.write_all(&begun);
        if number % 20 == 0 {
            // Ten thousand in half a second.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    for number in 0..100 {
        assert_eq!(control.show(&format!("SET key-{number} value")), "+OK");
        std::thread::sleep(RETRY_EVERY);
    }
    let (closed, left) =
        (info(&mut control, "evicted_clients"), info(&mut control, "connected_clients"));
    println!("{closed} closed, {left} left");
    assert!(count < 10_000 || closed > 0 && left > 2_000);
    assert_peak(&server, 64);
}

/// Requests of very many that come at once, each small, do not each hold read buffers while they wait.
#[test]
fn small_requests_of_ten_thousand_at_once_stay_within_maxmemory() {
    const KEYS: u64 = 20_000;
    const SETS: usize = 20;
    let count = (raise_open_files() - SPARE_FILES).min(9_500);
    assert!(count == 9_500, "{count} connections are not ten thousand");
    let server = start("64mb", "512mb");
    fill(&server, KEYS, 1_000);
    let mut control = server.connect();
    control.line("TIER DEMOTE ALL");
    let mut clients: Vec<TcpStream> = (0..count).map(|_| server.stream()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let get = format!("GET memtier-{}\r\n", 1 + number as u64 % KEYS);
        client.write_all(get.as_bytes()).expect("the server reads");
    }
    for client in &mut clients {
        let mut reply = [0; 1_000 + "$1000\r\n\r\n".len()];
        client.read_exact(&mut reply).expect("nobody is closed");
        assert!(reply.starts_with(b"$1000\r\n"));
    }
    assert_peak(&server, 64);
    let set = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\n"[..], &[b'x'; 1_000], b"\r\n"].concat();
    for client in &mut clients {
        // These are more than clients may take: some are closed.
        let _closed = client.write_all(&set.repeat(SETS));
    }
    let answered = |client: &mut TcpStream| {
        let mut replies = [0; SETS * "+OK\r\n".len()];
        let is_open = client.read_exact(&mut replies).is_ok();
        assert!(!is_open || replies == *b"+OK\r\n".repeat(SETS), "one that stays is served");
        is_open
    };
    let answered = clients.iter_mut().filter_map(|client| answered(client).then_some(())).count();
    assert!(answered > count as usize / 2, "{answered} of {count} answered");
    assert_peak(&server, 64);
}

/// Those that are served together each have a reply to write, which is small: none is closed for a buffer.
#[test]
fn elements_for_a_thousand_that_wait_reach_all_of_them() {
    const CLIENTS: usize = 1_000;
    let server = start("64mb", "512mb");
    raise_open_files();
    let mut control = server.connect();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.write(b"BLPOP list 0\r\n"));
    wait_for(&mut control, "blocked_clients", |value| value >= CLIENTS as u64);
    let elements: String = (0..CLIENTS).map(|number| format!(" {number}")).collect();
    assert_eq!(control.show(&format!("RPUSH list{elements}")), format!(":{CLIENTS}"));
    let element = |client: &mut Client| {
        let Frame::Array(reply) = client.read() else { panic!("a key and an element") };
        show(&reply[1])[1..].parse().expect("a number")
    };
    let served: BTreeSet<usize> = clients.iter_mut().map(element).collect();
    assert_eq!(served.len(), CLIENTS, "each another");
    assert_eq!(info(&mut control, "evicted_clients"), 0);
    assert_peak(&server, 64);
}

#[test]
fn strangers_have_a_little_memory_of_their_own_and_go_first() {
    const STRANGERS: usize = 700;
    let options = ["--workers", "1", "--maxmemory", "100mb", "--requirepass", "secret"];
    let server = Server::kelvin(&options);
    let mut client = server.connect();
    assert_eq!(client.show("AUTH secret"), "+OK");
    let before = server.resident_bytes();
    let value = "v".repeat(200_000);
    let request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$200000\r\n{value}\r\n");
    let (first, last) = request.split_at(request.len() / 2);
    client.write(first.as_bytes());
    let mut strangers: Vec<TcpStream> = (0..STRANGERS).map(|_| server.stream()).collect();
    for stranger in &mut strangers {
        // One that was closed cannot send any more: that is what should happen.
        let _closed = stranger.write_all(&[b'x'; 60_000]);
    }
    let mut control = server.connect();
    control.line("AUTH secret");
    wait_for(&mut control, "evicted_clients", |value| value >= STRANGERS as u64 / 2);
    client.write(last.as_bytes());
    assert_eq!(show(&client.read()), "+OK", "the one that has authenticated stays");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB, "{} KiB", grown >> 10);
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("maxmemory-clients")).count();
    assert!(lines < 60, "{lines} lines of the log");
}

/// Clients that stop in the midst of a request, and others that send a byte of theirs now and then, do not keep those
/// waiting that go on, one after another.
#[test]
fn requests_that_stand_still_hold_nobody_up_for_long() {
    const STALLED: usize = 24;
    let server = start("64mb", "512mb");
    let begin = |number: usize| {
        let mut client = server.connect();
        client
            .write(format!("*3\r\n$3\r\nSET\r\n$7\r\nhalf:{number:02}\r\n$1000000\r\n").as_bytes());
        client.write(&vec![b'x'; 800_000]);
        client
    };
    let mut stalled: Vec<Client> = (0..STALLED).map(begin).collect();
    let is_answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let trickle = || {
            while !is_answered.load(Ordering::Relaxed) {
                // Those that were closed no longer take it.
                for client in stalled.iter_mut().step_by(2) {
                    let _ = client.try_write(b"x");
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        };
        scope.spawn(trickle);
        let set = || show(&server.connect().call(&["SET", "whole", &"v".repeat(500_000)]));
        let reply = scope.spawn(set).join();
        is_answered.store(true, Ordering::Relaxed);
        assert_eq!(reply.expect("it is answered"), "+OK");
    });
    assert_peak(&server, 64);
}

/// Nor do very many that stop with a little each, of which none is the largest client.
#[test]
fn small_requests_that_stand_still_do_not_keep_large_ones_out() {
    const STALLED: usize = 1_500;
    let server = start("64mb", "512mb");
    raise_open_files();
    let mut client = server.connect();
    push_elements(&mut client, "list", 40_000);
    let begin = |number: usize| {
        let mut client = server.connect();
        client.write(format!("*3\r\n$3\r\nSET\r\n$9\r\nhalf:{number:04}\r\n$60000\r\n").as_bytes());
        let _ = client.try_write(&[b'x'; 30_000]);
        client
    };
    let stalled: Vec<Client> = (0..STALLED).map(begin).collect();
    // Until then they may be about to get on, and the largest of all clients go.
    std::thread::sleep(STANDS_STILL);
    for _ in 0..3 {
        let reply = server.connect().call(&["SET", "whole", &"v".repeat(500_000)]);
        assert_eq!(show(&reply), "+OK");
        let Frame::Array(elements) = client.line("LRANGE list 0 -1") else { panic!("an array") };
        assert_eq!(elements.len(), 40_000);
    }
    assert_peak(&server, 64);
    drop(stalled);
}

/// So many clients each send a request of 600 KB in small arguments to a server of 64 MB that is full. How many were
/// answered; others were closed for what they held.
fn send_crowd(server: &Server, clients: usize) -> usize {
    const ARGS: usize = 2_000;
    let element = "e".repeat(300);
    let element = &element;
    std::thread::scope(|scope| {
        let crowd: Vec<_> = (0..clients)
            .map(|number| {
                scope.spawn(move || {
                    let key = format!("list{number}");
                    let words = ["RPUSH", &key].into_iter();
                    let words = words.chain(std::iter::repeat_n(element.as_str(), ARGS));
                    let words = words.map(|word| format!("${}\r\n{word}\r\n", word.len()));
                    let request = format!("*{}\r\n{}", ARGS + 2, words.collect::<String>());
                    let mut client = server.connect();
                    client.try_write(request.as_bytes()) && client.try_read().is_some()
                })
            })
            .collect();
        let ends = crowd.into_iter().map(|client| client.join().expect("answered or closed"));
        ends.filter(|is_answered| *is_answered).count()
    })
}

fn start_full(workers: &str) -> Server {
    let options = ["--workers", workers, "--maxmemory", "64mb"];
    let server = Server::kelvin_with_flash("512mb", &options);
    fill(&server, 64_000, 1_000);
    server
}

/// What they hold of requests that have not arrived whole takes all that clients may take: none of them got on, but one
/// every ten seconds, and nobody else's request of more than a read buffer either.
#[test]
fn a_crowd_that_holds_all_memory_of_clients_gets_on() {
    let server = start_full("2");
    let answered = send_crowd(&server, 400);
    assert!(answered > 40, "{answered}");
    let mut client = server.connect();
    let value = "v".repeat(100_000);
    assert_eq!(show(&client.call(&["SET", "after", &value])), "+OK");
}

/// Buffers of clients are no faster than values leave RAM for them.
#[test]
fn a_crowd_that_arrives_at_once_keeps_to_maxmemory() {
    let server = start_full("2");
    let answered = send_crowd(&server, 100);
    assert!(answered > 90, "{answered}");
    assert_peak(&server, 64);
}
