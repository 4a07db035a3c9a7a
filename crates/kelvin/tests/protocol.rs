//! What a connection answers to bytes as they come, compared with Redis byte by byte.

mod support;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use support::{Server, show};

/// A server that says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// All that a server answers to these bytes before it closes the connection, which the end of the
/// bytes makes it do.
fn answers(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = server.stream();
    stream.set_read_timeout(Some(SILENCE_MAX)).expect("a socket option");
    stream.write_all(bytes).expect("the server takes what is sent");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut answers = Vec::new();
    // A server may close what it has not read to the end.
    let _ = stream.read_to_end(&mut answers);
    answers
}

fn assert_same_answers(options: &[&str], cases: &[&[u8]]) {
    let (kelvin, redis) = (Server::kelvin(options), Server::redis_on_port(options));
    let mut differences = Vec::new();
    for case in cases {
        let (own, expected) = (answers(&kelvin, case), answers(&redis, case));
        if own != expected {
            let [case, own, expected] = [case, &own[..], &expected[..]]
                .map(|bytes| bytes[..bytes.len().min(300)].escape_ascii().to_string());
            differences.push(format!("{case}\n  kelvin {own}\n  redis  {expected}"));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn strangers_are_answered_as_by_redis() {
    assert_same_answers(
        &["--requirepass", "secret"],
        &[
            b"\r\n\r\nPING\r\n",
            b"*0\r\n*0\r\nPING\r\n",
            b"\r\n*-1\r\n\r\n*0\r\nPING\r\n\r\n\r\nPING\r\n",
            b"PING\r\nPING\r\nAUTH secret\r\nPING\r\n",
            b"nosuch a b\r\nGET a\r\nGET\r\nCONFIG nosuch\r\nAUTH secret\r\nnosuch a b\r\n",
            b"POST / HTTP/1.1\r\nPING\r\n",
            b"Host: here\r\nPING\r\n",
            b"*11\r\n",
            b"*2\r\n$4\r\nAUTH\r\n$16385\r\n",
        ],
    );
}

#[test]
fn requests_are_taken_as_redis_takes_them() {
    let many_pairs = 530_000;
    let mut set_many = format!("*{}\r\n$4\r\nMSET\r\n", 2 * many_pairs + 1).into_bytes();
    for pair in 0..many_pairs {
        set_many.extend_from_slice(format!("$7\r\nk{pair:06}\r\n$1\r\nv\r\n").as_bytes());
    }
    set_many.extend_from_slice(b"GET k529999\r\nDBSIZE\r\nFLUSHALL\r\n");
    assert_same_answers(
        &[],
        &[
            &set_many,
            b"*2147483647\r\n",
            b"*2147483648\r\nPING\r\n",
            b"*1048577\r\n$4\r\nPING\r\n",
            b"MULTI\r\nMULTI\r\nSET a 1\r\nEXEC\r\nGET a\r\nDEL a\r\n",
            b"MULTI\r\nWATCH a\r\nSET a 1\r\nEXEC\r\nDEL a\r\n",
            b"MULTI\r\nnosuch\r\nMULTI\r\nEXEC\r\n",
            b"SET s abc\r\nBITCOUNT s 1\r\nBITCOUNT s 1 x foo\r\nBITCOUNT no 1 x foo 7\r\n\
              BITCOUNT no x\r\nBITPOS no 1 x\r\nBITPOS no 0 1 x bits 8\r\nBITPOS s 1 1 x foo\r\n\
              BITPOS no 2 x\r\nBITPOS no x x\r\nDEL s\r\n",
        ],
    );
}

/// Redis compares names up to a zero byte, but only with those of the same bucket of a hash table
/// whose seed is random, so that it finds GET for `get\0` once in some hundred starts.
#[test]
fn names_that_end_with_a_zero_byte_are_unknown() {
    let kelvin = Server::kelvin(&[]);
    let cases: [(&[u8], &str); 4] = [
        (b"*2\r\n$4\r\nget\0\r\n$1\r\na\r\n", "command 'get', with args beginning with: 'a' "),
        (b"*2\r\n$4\r\nge\0t\r\n$1\r\na\r\n", "command 'ge', with args beginning with: 'a' "),
        (
            b"*2\r\n$7\r\nclient\0\r\n$2\r\nid\r\n",
            "command 'client', with args beginning with: 'id' ",
        ),
        (b"*2\r\n$6\r\nclient\r\n$3\r\nid\0\r\n", "subcommand 'id'. Try CLIENT HELP."),
    ];
    for (request, unknown) in cases {
        let answer = answers(&kelvin, request);
        assert_eq!(answer, format!("-ERR unknown {unknown}\r\n").as_bytes());
    }
}

#[test]
fn a_request_behind_an_empty_one_goes_on_where_it_stopped() {
    let kelvin = Server::kelvin(&[]);
    let mut client = kelvin.connect();
    let large = "v".repeat(300_000);
    client.call(&["SET", "large", &large]);
    // A whole batch whose replies are written before more is parsed, then an empty request and the
    // first part of one that is larger than what is read at a time.
    let mut get = b"*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n".repeat(255);
    get.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n");
    let text = "t".repeat(200_000);
    let echo = format!("*0\r\n*2\r\n$4\r\nECHO\r\n${}\r\n{text}\r\n", text.len());
    for _ in 0..5 {
        client.write(&[&get, echo.as_bytes()].concat());
        (0..255).for_each(|_| assert_eq!(show(&client.read()), "_"));
        assert_eq!(show(&client.read()), format!("${large}"));
        assert_eq!(show(&client.read()), format!("${text}"));
    }
}
