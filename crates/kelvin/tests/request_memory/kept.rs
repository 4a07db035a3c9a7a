//! What the server keeps for a client once its request has run: watched keys, places in queues.

use super::*;

/// Many clients each send the request that `words` makes, and go when they were answered or refused. Returns the
/// replies.
fn call_from_many_sides(
    server: &Server,
    clients: usize,
    words: impl Fn(usize) -> Vec<String> + Sync,
) -> Vec<String> {
    std::thread::scope(|scope| {
        let words = &words;
        let call = |number: usize| {
            let mut client = server.connect();
            let words = words(number);
            show(&client.call(&words.iter().map(String::as_str).collect::<Vec<_>>()))
        };
        let calls: Vec<_> = (0..clients).map(|number| scope.spawn(move || call(number))).collect();
        calls.into_iter().map(|call| call.join().expect("it is answered")).collect()
    })
}

#[test]
fn places_in_the_queues_of_keys_are_asked_for_first() {
    const CLIENTS: usize = 8;
    let server = start("64mb", "512mb");
    fill(&server, 80_000, 1000);
    let words = |keys: usize| {
        move |number: usize| {
            let names = (0..keys).map(|key| format!("list:{number}:{key}"));
            let begin = std::iter::once("BLPOP".to_owned());
            begin.chain(names).chain(std::iter::once("2".to_owned())).collect()
        }
    };
    let replies = call_from_many_sides(&server, CLIENTS, words(5_000));
    let refused = replies.iter().filter(|reply| **reply == refusal(64)).count();
    assert!((1..CLIENTS).contains(&refused), "{refused} refused");
    assert!(replies.iter().all(|reply| *reply == refusal(64) || reply == "_"), "{:?}", replies[0]);
    let mut client = server.connect();
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_peak(&server, 64);
    // What they had is free again.
    let replies = call_from_many_sides(&server, 1, words(10_000));
    assert_eq!(replies, ["_"]);
    assert_peak(&server, 64);
    // None of these fits. What requests take as they arrive, and their names while they run, is some MiB here, and
    // not asked for.
    let replies = call_from_many_sides(&server, 5 * CLIENTS, words(30_000));
    assert!(replies.iter().all(|reply| *reply == refusal(64)), "{:?}", replies[0]);
    assert!(peak(&server) <= 64 * MIB * 11 / 10, "{}", peak(&server));
}

#[test]
fn names_that_clients_give_themselves_count_as_theirs() {
    const CLIENTS: usize = 40;
    let server = start("64mb", "512mb");
    let name = "n".repeat(2 << 20);
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = server.connect();
            client.send(&["CLIENT", "SETNAME", &name]);
            client
        })
        .collect();
    // They may take 16 MiB: eight of them, or fewer.
    let mut client = server.connect();
    wait_for(&mut client, "evicted_clients", |value| value >= CLIENTS as u64 - 8);
    let named = text(&client.line("CLIENT LIST")).matches("name=nnn").count();
    assert!(named <= 8, "{named}");
    assert_peak(&server, 64);
    drop(clients);
}

#[test]
fn watched_keys_count_as_their_clients() {
    let server = start("64mb", "512mb");
    fill(&server, 80_000, 1000);
    let watch = |client: &mut Client, keys: usize| {
        let names = (0..keys).map(|key| format!("key:{key}"));
        let words: Vec<String> = std::iter::once("WATCH".to_owned()).chain(names).collect();
        show(&client.call(&words.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let replies: Vec<String> = clients.iter_mut().map(|client| watch(client, 15_000)).collect();
    let watching = replies.iter().filter(|reply| *reply == "+OK").count();
    assert!((1..4).contains(&watching), "{watching} watch");
    assert!(replies.iter().all(|reply| *reply == refusal(64) || reply == "+OK"), "{replies:?}");
    assert_peak(&server, 64);
    // Whoever is alone may watch more, and has it count once.
    drop(clients);
    let mut client = server.connect();
    wait_for(&mut client, "connected_clients", |value| value == 1);
    for _ in 0..5 {
        assert_eq!(watch(&mut client, 40_000), "+OK");
        for line in ["MULTI", "SET done 1", "EXEC"] {
            assert!(!client.show(line).starts_with('-'));
        }
    }
    assert_peak(&server, 64);
}
