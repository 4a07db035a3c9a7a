//! WATCH, MULTI and EXEC beside what changes or replaces whole databases, compared with Redis.

mod support;

use support::{Server, show};

/// A client watches some keys, another changes something, and the first runs a transaction: whether
/// it runs is what Redis says.
#[test]
fn watches_end_as_with_redis() {
    // Large enough for many leaves here, and a listpack to Redis.
    let members: String =
        (0..100).map(|number| format!(" {number} {number}{}", "x".repeat(60))).collect();
    let fill = format!("ZADD packed{members}");
    let before = [
        "FLUSHALL",
        &fill,
        "SET here 1",
        "RPUSH list a b",
        "SELECT 1",
        "SET there 1",
        "SET both 1",
        "SELECT 0",
    ];
    let (kelvin, redis) = (Server::kelvin(&["--workers", "2"]), Server::redis(&[]));
    let mut differences = Vec::new();
    for watched in ["here", "there", "both", "nowhere", "here nowhere", "list", "packed"] {
        for change in [
            "SWAPDB 0 1",
            "SWAPDB 1 2",
            "SWAPDB 2 3",
            "FLUSHALL",
            "FLUSHDB",
            "SELECT 1;FLUSHDB",
            "SWAPDB 0 1;SWAPDB 0 1",
            "SWAPDB 0 1;SET nowhere 1",
            "SWAPDB 0 2;SELECT 2;SET nowhere 1",
            "SELECT 1;SET here 1",
            "DEL here;SET here 1",
            "PEXPIRE here 100000",
            "PEXPIRE nowhere 1",
            "GET here",
            "LTRIM list 0 -1",
            "LTRIM list 9 9",
            "LSET list 0 a",
            "LMOVE list list LEFT LEFT",
            "LREM list 0 none",
            "LINSERT list BEFORE none x",
            "LPOP list 0",
            "RPOP list 9",
            "SORT_RO packed ALPHA",
            "ZADD packed 1 x",
        ] {
            let results = [&kelvin, &redis].map(|server| {
                let (mut client, mut other) = (server.connect(), server.connect());
                before.iter().for_each(|line| drop(other.line(line)));
                client.line(&format!("WATCH {watched}"));
                change.split(';').for_each(|line| drop(other.line(line)));
                client.line("MULTI");
                client.line("SET done 1");
                show(&client.line("EXEC"))
            });
            if results[0] != results[1] {
                differences.push(format!("WATCH {watched}, {change}: {results:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "kelvin and redis:\n{}", differences.join("\n"));
}
