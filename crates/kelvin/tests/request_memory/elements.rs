//! Elements of some megabytes.

use super::*;

/// What puts an element, of which the first six bytes are its own, into a collection.
const PUTS: [&[&str]; 6] = [
    &["HSET", "h", "field"],
    &["RPUSH", "l"],
    &["SADD", "s"],
    &["ZADD", "z", "1"],
    &["XADD", "x", "*", "field"],
    &["LPUSH", "other"],
];

/// An element, by its number.
fn element(number: usize, bytes: usize) -> String {
    format!("{number:06}{}", "e".repeat(bytes - 6))
}

/// Twelve collections to which 60 elements are added; most of them are on flash in the end.
fn put_all(client: &mut Client, put: &[&str], bytes: usize) {
    let collections = (0..12).map(|number| format!("{}{number}", put[1])).collect::<Vec<_>>();
    for number in 0..60 {
        let element = element(number, bytes);
        let mut words = put.to_vec();
        words[1] = &collections[number % collections.len()];
        let field = format!("field{number}");
        if put[0] == "HSET" {
            words[2] = &field;
        }
        words.push(&element);
        let reply = show(&client.call(&words));
        assert!(!reply.starts_with('-'), "{} of {bytes} bytes: {reply}", put[0]);
    }
}

/// Each was there eight times while it was added to a collection of others.
#[test]
fn elements_of_megabytes_are_added() {
    for bytes in [1_000_000, 3_000_000, 6_000_000] {
        for put in PUTS {
            let server = start("64mb", "1gb");
            let mut client = server.connect();
            put_all(&mut client, put, bytes);
            print!("{} {bytes}: ", put[0]);
            assert_peak(&server, 64);
        }
    }
}

/// A leaf that was read was copied into RAM beside what is replied of it.
#[test]
fn elements_of_megabytes_are_read_and_removed() {
    const BYTES: usize = 3_000_000;
    let takes: [(&[&str], &[&str]); 5] = [
        (PUTS[0], &["HGET", "h0", "field0"]),
        (PUTS[1], &["LRANGE", "l0", "0", "1"]),
        (PUTS[1], &["DUMP", "l0"]),
        (PUTS[1], &["LPOP", "l0"]),
        (PUTS[2], &["SPOP", "s0"]),
    ];
    for (put, take) in takes {
        let server = start("64mb", "1gb");
        let mut client = server.connect();
        put_all(&mut client, put, if take[0] == "DUMP" { BYTES / 3 } else { BYTES });
        let collections = (0..12).map(|number| format!("{}{number}", put[1])).collect::<Vec<_>>();
        for round in 0..3 {
            for (number, collection) in collections.iter().enumerate() {
                let field = format!("field{}", number + 12 * round);
                let mut words = take.to_vec();
                words[1] = collection;
                if take[0] == "HGET" {
                    words[2] = &field;
                }
                let reply = client.call(&words);
                let bytes = match &reply {
                    Frame::Array(elements) => elements.iter().map(|it| text(it).len()).sum(),
                    Frame::Bulk(bytes) => bytes.len(),
                    other => panic!("{}: {}", take[0], show(other)),
                };
                assert!(bytes >= BYTES, "{}: {bytes} bytes", take[0]);
            }
        }
        print!("{}: ", take[0]);
        assert_peak(&server, 64);
    }
}
