//! Replies and messages that a client leaves unread for a while.

use super::*;

/// Its buffer may have been shrunk meanwhile, and each small reply would have one of its own.
#[test]
fn a_buffer_of_few_replies_is_not_put_by() {
    let worker = worker();
    let mut connection = connection(&worker);
    connection.backlog.push(vec![b'x'; 2 * WRITE_EARLY_BYTES], 0);
    connection.input.extend_from_slice(b"ECHO x\r\n");
    assert!(!matches!(connection.start_batch(), Start::Nothing));
    connection.reply.bulk(b"x");
    assert!(!connection.must_add_output());
    connection.reply.bulk(&[b'x'; 2 * WRITE_EARLY_BYTES]);
    assert!(connection.must_add_output());
}

/// For a client that asks for more before it has read all, be it of one large reply.
#[test]
fn replies_that_were_written_do_not_pile_up_before_those_that_were_not() {
    const A_ROUND: usize = 40;
    const ROUNDS: usize = 500;
    const SMALL_BYTES: usize = 1_000;
    const LARGE_BYTES: usize = 3 * OUTPUT_BUFFER_BYTES;
    let worker = worker();
    let mut client = HandServed::connect(&worker);
    client.call(&format!("SETRANGE large {} y", LARGE_BYTES - 1));
    let large = [vec![0; LARGE_BYTES - 1], b"y".to_vec()].concat();
    let mut expected = Vec::new();
    let mut ask = |client: &HandServed, request: &str, text: &[u8]| {
        client.send(request);
        expected.extend([format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat());
    };
    let small = |number: usize| format!("{number:0SMALL_BYTES$}");
    client.wire.borrow_mut().room = Some(0);
    let mut taken = Vec::new();
    for round in 0..ROUNDS {
        worker.turn.renew();
        let mut room = A_ROUND * (SMALL_BYTES + "$1000\r\n\r\n".len());
        let mut bound = OUTPUT_BUFFER_BYTES;
        if round == 0 {
            room = 0;
        } else if round == ROUNDS / 2 {
            ask(&client, "GET large", &large);
            (room, bound) = (room + LARGE_BYTES + "$3145728\r\n\r\n".len(), 4 * LARGE_BYTES);
        }
        for number in round * A_ROUND..(round + 1) * A_ROUND {
            ask(&client, &format!("ECHO {}", small(number)), small(number).as_bytes());
        }
        client.wire.borrow_mut().room = Some(room);
        (0..POLLS_MAX).for_each(|_| client.poll());
        taken.extend(client.take_replies());
        let bytes = worker.server.tier.budget.client_bytes();
        assert!(bytes < bound as i64, "{bytes} in round {round}");
    }
    assert!(expected.len() - taken.len() >= A_ROUND * SMALL_BYTES, "it was never done");
    client.wire.borrow_mut().room = None;
    (0..POLLS_MAX).for_each(|_| client.poll());
    taken.extend(client.take_replies());
    assert!(taken == expected);
}

/// Messages to a client that waits for a key go out in front of its reply.
#[test]
fn messages_that_were_written_do_not_pile_up_while_a_request_waits() {
    const MESSAGE_BYTES: usize = 1_000;
    const A_ROUND: usize = 20;
    let worker = worker();
    let (mut client, mut other) = (HandServed::connect(&worker), HandServed::connect(&worker));
    client.call("HELLO 3");
    client.call("SUBSCRIBE c");
    client.call("BLPOP k 0");
    client.wire.borrow_mut().room = Some(0);
    let publish = |other: &mut HandServed, count: usize| {
        worker.turn.renew();
        (0..count).for_each(|_| other.send(&format!("PUBLISH c {}", "m".repeat(MESSAGE_BYTES))));
        (0..POLLS_MAX).for_each(|_| other.poll());
        assert_eq!(other.take_replies().len(), count * ":1\r\n".len());
    };
    publish(&mut other, 100);
    let mut taken = 0;
    for round in 0..500 {
        publish(&mut other, A_ROUND);
        client.wire.borrow_mut().room = Some(A_ROUND * MESSAGE_BYTES);
        (0..POLLS_MAX).for_each(|_| client.poll());
        taken += client.take_replies().len();
        let bytes = worker.server.tier.budget.client_bytes();
        assert!(bytes < OUTPUT_BUFFER_BYTES as i64, "{bytes} in round {round}");
    }
    assert_eq!(taken, 500 * A_ROUND * MESSAGE_BYTES, "some always waited");
}
