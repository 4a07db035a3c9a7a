//! Values of every type and size, to be compared between servers.

use resp::Frame;

use super::{Client, show};

/// Numbers of elements.
const SIZES: [usize; 8] = [1, 2, 100, 129, 513, 1_000, 4_000, 10_000];
/// Elements that are sent at once.
const AT_ONCE: usize = 500;

/// A text of some kind, different for each number.
pub fn word(number: usize) -> Vec<u8> {
    match number % 8 {
        0 | 1 => number.to_string().into_bytes(),
        2 => format!("-{number}000000000").into_bytes(),
        3 => [&[0, 0xff, b'\r', b'\n'][..], &number.to_le_bytes()].concat(),
        4 if number % 64 == 4 => format!("{number}:{}", "long ".repeat(200)).into_bytes(),
        _ => format!("element:{number}").into_bytes(),
    }
}

fn score(number: usize) -> Vec<u8> {
    match number % 6 {
        0 => b"inf".to_vec(),
        1 => b"-inf".to_vec(),
        2 => b"-0".to_vec(),
        3 => format!("{number}.25e-7").into_bytes(),
        4 => format!("-{number}000000000000000000").into_bytes(),
        _ => number.to_string().into_bytes(),
    }
}

/// Sends a request and returns what it answers, which is no error.
pub fn call(client: &mut Client, words: &[&[u8]]) -> Frame {
    client.send_bytes(words);
    let reply = client.read();
    assert!(!matches!(reply, Frame::Error(_)), "{}: {}", words[0].escape_ascii(), show(&reply));
    reply
}

/// Makes a key of so many elements with one command, each of some words.
fn fill(
    client: &mut Client,
    command: &str,
    key: &str,
    len: usize,
    words: impl Fn(usize) -> Vec<Vec<u8>>,
) {
    for start in (0..len).step_by(AT_ONCE) {
        let elements = (start..len.min(start + AT_ONCE)).flat_map(&words);
        let elements: Vec<Vec<u8>> = elements.collect();
        let mut request = vec![command.as_bytes(), key.as_bytes()];
        request.extend(elements.iter().map(Vec::as_slice));
        call(client, &request);
    }
}

/// Fills a server with values of every type and size. Returns their keys.
pub fn fill_all(client: &mut Client) -> Vec<String> {
    let mut keys = Vec::new();
    let strings: [&[u8]; 9] =
        [b"", b"0", b"-1", b"127", b"-32769", b"4294967296", b"text", b"\0\xff", b"3.5"];
    for (at, value) in strings.iter().enumerate() {
        let key = format!("string{at}");
        call(client, &[b"SET", key.as_bytes(), value]);
        keys.push(key);
    }
    for len in [100, 20_000, 3_000_000] {
        let key = format!("string:{len}");
        call(client, &[b"SET", key.as_bytes(), &word(12_345).repeat(len / 13)]);
        keys.push(key);
    }
    for len in SIZES {
        let name = |sort: &str| format!("{sort}{len}");
        fill(client, "RPUSH", &name("list"), len, |number| vec![word(number)]);
        fill(client, "SADD", &name("set"), len, |number| vec![word(number)]);
        fill(client, "SADD", &name("integers"), len, |number| {
            vec![format!("-{}", number * number * 97).into_bytes()]
        });
        fill(client, "HSET", &name("hash"), len, |number| vec![word(number), word(number / 2)]);
        fill(client, "HSET", &name("short"), len, |number| {
            vec![number.to_string().into_bytes(), b"v".to_vec()]
        });
        fill(client, "ZADD", &name("zset"), len, |number| vec![score(number), word(number)]);
        keys.extend(["list", "set", "integers", "hash", "short", "zset"].map(name));
        fill_stream(client, &name("stream"), len);
        keys.push(name("stream"));
    }
    call(client, &[b"XADD", b"emptied", b"MAXLEN", b"0", b"7-7", b"f", b"v"]);
    keys.push("emptied".into());
    keys
}

fn fill_stream(client: &mut Client, key: &str, len: usize) {
    for number in 0..len {
        let id = format!("{}-{}", number / 5 + 1, number % 5);
        let field: &[u8] = if number % 9 == 5 { b"other" } else { b"field" };
        let value = word(number);
        client.send_bytes(&[b"XADD", key.as_bytes(), id.as_bytes(), field, &value, b"n", b"1"]);
    }
    (0..len).for_each(|_| assert!(matches!(client.read(), Frame::Bulk(_))));
    for line in [
        format!("XDEL {key} 1-2 3-0 17-4"),
        format!("XGROUP CREATE {key} early 0"),
        format!("XGROUP CREATE {key} late $ ENTRIESREAD 7"),
        format!("XGROUP CREATECONSUMER {key} late idle"),
        format!("XREADGROUP GROUP early alice COUNT {} STREAMS {key} >", len / 2 + 1),
        format!("XREADGROUP GROUP early bob COUNT {} STREAMS {key} >", len / 4 + 1),
        format!("XACK {key} early 1-1 4-3 6-0"),
        format!("XDEL {key} 2-2"),
    ] {
        let reply = client.line(&line);
        assert!(!matches!(reply, Frame::Error(_)), "{line}: {}", show(&reply));
    }
}

/// What is told of a key: its digest, its encoding, and of a stream all that there is.
pub fn told(client: &mut Client, key: &str) -> Vec<String> {
    let mut told = vec![
        show(&client.call(&["DEBUG", "DIGEST-VALUE", key])),
        show(&client.call(&["OBJECT", "ENCODING", key])),
    ];
    if key.contains("stream") || key.contains("emptied") {
        let full = show(&client.call(&["XINFO", "STREAM", key, "FULL", "COUNT", "0"]));
        // Nodes are Redis's own affair.
        let words: Vec<&str> = full.split(' ').collect();
        let is_of_nodes = |at: usize| at > 0 && words[at - 1].contains("radix-tree");
        let kept = (0..words.len()).filter(|&at| !is_of_nodes(at)).map(|at| words[at]);
        told.push(kept.collect::<Vec<&str>>().join(" "));
    }
    told
}
