//! Commands that wait for lists, sorted sets and streams, on a real server with several workers.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use resp::Frame;
use support::{Client, Server, show, text};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A field of INFO, as a number.
fn info(client: &mut Client, field: &str) -> u64 {
    let text = text(&client.line("INFO"));
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.expect("the field").trim().parse().expect("a number")
}

/// Waits until so many clients wait for keys.
fn wait_for_blocked(client: &mut Client, count: u64) {
    let start = Instant::now();
    while info(client, "blocked_clients") != count {
        assert!(start.elapsed() < PATIENCE, "{count} clients should wait");
        thread::sleep(Duration::from_millis(1));
    }
}

fn read(client: &mut Client) -> String {
    show(&client.read_within(PATIENCE).expect("a reply"))
}

/// Clients that wait, in their order, each with what it sends, separated by `;`; and lines.
type Case = (&'static [&'static str], &'static [&'static str]);

/// What the clients have been answered, and who sends the lines, is what Redis answers.
fn check_with_redis(cases: &[Case]) {
    let (kelvin, redis) = (Server::kelvin(&["--workers", "2"]), Server::redis(&[]));
    for (waiting, lines) in cases {
        let results = [&kelvin, &redis].map(|server| served(server, waiting, lines));
        assert_eq!(results[0], results[1], "{waiting:?} {lines:?}: kelvin and redis");
    }
}

#[test]
fn who_waits_for_lists_is_served_as_with_redis() {
    check_with_redis(&[
        (&["BLPOP a 0"], &["RPUSH a 1 2"]),
        (&["BLPOP a b 0", "BRPOP b a 0"], &["RPUSH b 1 2 3"]),
        (&["BLPOP a 0", "BLPOP a 0", "BLPOP a 0"], &["RPUSH a 1", "RPUSH a 2", "RPUSH a 3"]),
        (&["BLPOP a a 0"], &["RPUSH a 1 2"]),
        (&["BLMPOP 0 2 a b LEFT COUNT 2", "BLPOP a 0"], &["RPUSH a 1 2 3"]),
        (&["BLPOP a b 0"], &["MULTI", "RPUSH b 1", "RPUSH a 2", "EXEC", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["MULTI", "RPUSH a 1", "DEL a", "EXEC", "RPUSH a 2"]),
        (&["BLPOP a 0"], &["MULTI", "RPUSH a 1", "DEL a", "SET a x", "EXEC", "DEL a", "RPUSH a 2"]),
        (&["BLPOP a 0"], &["RPUSH o 1 2", "RENAME o a", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["SET a x", "RPUSH o 1", "RENAME o a", "EXISTS a"]),
        (&["BLPOP a 0"], &["RPUSH o 1 2", "COPY o a", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["SELECT 3", "RPUSH a 1 2", "MOVE a 0", "SELECT 0", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["SELECT 3", "RPUSH o 1 2", "COPY o a DB 0", "SELECT 0", "LLEN a"]),
        (&["BLPOP a 0"], &["SELECT 3", "RPUSH a 1 2", "SWAPDB 0 3", "SELECT 0", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["SELECT 3", "RPUSH a 1", "SELECT 0", "RPUSH a 2"]),
        (&["SELECT 3;BLPOP a 0"], &["RPUSH a 1", "SELECT 3", "RPUSH a 2", "SELECT 0", "LLEN a"]),
        (&["BLMOVE a b LEFT RIGHT 0", "BLPOP b 0"], &["RPUSH a 1 2", "LRANGE a 0 -1", "EXISTS b"]),
        (&["BLPOP b 0", "BLMOVE a b LEFT RIGHT 0"], &["RPUSH a 1 2", "LRANGE a 0 -1", "EXISTS b"]),
        (&["BRPOPLPUSH a b 0", "BRPOPLPUSH b a 0"], &["RPUSH a 1", "LRANGE a 0 -1", "EXISTS b"]),
        (&["BRPOPLPUSH a a 0"], &["RPUSH a 1 2", "LRANGE a 0 -1"]),
        (
            &["BRPOPLPUSH l1 l3 0", "BLPOP l2 0", "BLMPOP 0 2 l2 l3 LEFT COUNT 1"],
            &["MULTI", "LPUSH l1 1", "LPUSH l2 2", "EXEC", "EXISTS l1 l2 l3"],
        ),
        (&["BLMOVE a b LEFT LEFT 0", "BLPOP a 0"], &["SET b x", "RPUSH a 1 2", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["SADD a x", "DEL a", "RPUSH a 1"]),
        (&["BLPOP a 0;SET after 1"], &["GET after", "RPUSH a 1"]),
        (&["BLPOP a 0"], &["RPUSH o 1", "LMOVE o a LEFT LEFT", "EXISTS o a"]),
        (&["HELLO 3;BLPOP a 0", "BLPOP a 0"], &["RPUSH a 1 2"]),
        (&["HELLO 3;BLPOP a 0.001", "BLMOVE a b LEFT LEFT 0.001"], &["PING"]),
        (&["MULTI;BLPOP a 0;BLMOVE a b LEFT LEFT 0;BLMPOP 0 1 a LEFT;EXEC"], &["PING"]),
        (&["CLIENT REPLY SKIP;BLPOP a 0;PING"], &["RPUSH a 1"]),
        (&["WATCH a;BLPOP a 0;MULTI;PING;EXEC"], &["RPUSH a 1"]),
    ]);
}

#[test]
fn who_waits_for_sorted_sets_is_served_as_with_redis() {
    check_with_redis(&[
        (&["BZPOPMIN a 0"], &["ZADD a 1 m 2 n", "ZRANGE a 0 -1"]),
        (&["BZPOPMAX a b 0", "BZPOPMIN b a 0"], &["ZADD b 1 x 2 y 3 z", "ZRANGE b 0 -1"]),
        (
            &["BZPOPMIN a 0", "BZPOPMAX a 0", "BZPOPMIN a 0"],
            &["ZADD a 1 x", "ZADD a INCR 2 y", "ZINCRBY a 3 z", "EXISTS a"],
        ),
        (&["BZPOPMIN a b b a 0"], &["ZADD b 1 x 2 y"]),
        (&["BZMPOP 0 2 a b MIN COUNT 2", "BZPOPMIN a 0"], &["ZADD a 1 x 2 y 3 z"]),
        (
            &["HELLO 3;BZPOPMIN a 0", "HELLO 3;BZMPOP 0 1 a MAX COUNT 2", "BZMPOP 0 1 a MIN"],
            &["ZADD a 1 x 2.5 y -inf z 1e300 v"],
        ),
        (&["BZPOPMIN a b 0"], &["MULTI", "ZADD b 1 x", "ZADD a 2 y", "EXEC", "ZCARD a"]),
        (&["BZPOPMIN a 0"], &["MULTI", "ZADD a 1 x", "DEL a", "EXEC", "ZADD a 2 y"]),
        (
            &["BZPOPMIN a 0"],
            &["MULTI", "ZADD a 1 x", "DEL a", "SET a x", "EXEC", "DEL a", "ZADD a 2 y"],
        ),
        (&["BZPOPMIN a 0"], &["ZADD o 1 x 2 y", "ZUNIONSTORE a 2 o p", "ZCARD a"]),
        (&["BZPOPMIN a 0"], &["ZADD o 1 x 2 y", "ZINTERSTORE a 1 o", "ZCARD a"]),
        (&["BZPOPMIN a 0"], &["ZADD o 1 x 2 y", "ZDIFFSTORE a 1 o", "ZCARD a"]),
        (&["BZPOPMAX a 0"], &["ZADD o 1 x 2 y", "ZRANGESTORE a o 0 0", "EXISTS a"]),
        (&["BZPOPMIN a 0"], &["GEOADD a 13.361389 38.115556 x", "EXISTS a"]),
        (
            &["BZPOPMIN a 0"],
            &["GEOADD o 13.4 38.1 x 15 37 y", "GEOSEARCHSTORE a o FROMMEMBER x BYRADIUS 1 km"],
        ),
        (&["BZPOPMIN a 0"], &["ZADD o 1 x 2 y", "RENAME o a", "ZCARD a"]),
        (&["BZPOPMIN a 0"], &["SET a x", "ZADD o 1 x", "RENAME o a", "EXISTS a"]),
        (&["BZPOPMIN a 0"], &["ZADD o 1 x 2 y", "COPY o a", "ZCARD a"]),
        (&["BZPOPMIN a 0"], &["SELECT 3", "ZADD a 1 x", "MOVE a 0", "SELECT 0", "EXISTS a"]),
        (&["BZPOPMIN a 0"], &["SELECT 3", "ZADD a 1 x", "SWAPDB 0 3", "SELECT 0", "EXISTS a"]),
        // As Redis has it, who waits is not told of a sorted set in the place of another value.
        (
            &["BZPOPMIN a 0"],
            &["SET a x", "ZADD o 1 x", "ZUNIONSTORE a 1 o", "ZCARD a", "DEL a", "ZADD a 2 y"],
        ),
        (
            &["BZPOPMIN a 0"],
            &["SET a x", "ZADD o 1 x", "ZRANGESTORE a o 0 -1", "DEL a", "ZADD a 2 y"],
        ),
        // Whoever waits for another type waits on.
        (&["BZPOPMIN a 0", "BLPOP a 0"], &["RPUSH a 1", "ZADD a 1 x", "EXISTS a"]),
        (&["BLPOP a 0", "BZPOPMIN a 0"], &["ZADD a 1 x", "RPUSH a 1", "EXISTS a"]),
        (&["BZPOPMIN a 0"], &["SADD a x", "DEL a", "ZADD a 1 x"]),
        (&["BZPOPMIN a 0"], &["XADD a 1-0 f v", "DEL a", "ZADD a 1 x"]),
        (&["HELLO 3;BZPOPMIN a 0.001", "BZMPOP 0.001 1 a MIN", "BZPOPMAX a b 0.001"], &["PING"]),
        (
            &["MULTI;BZPOPMIN a 0;BZPOPMAX a b 0;BZMPOP 0 1 a MIN;ZADD a 1 x;BZPOPMIN a 0;EXEC"],
            &["PING"],
        ),
        (&["HELLO 3;MULTI;BZPOPMIN a 0;BZMPOP 0 1 a MIN;EXEC"], &["PING"]),
        (&["SET s 1;BZPOPMIN a s 0;BZMPOP 0 2 a s MIN;BZPOPMAX a x;BZPOPMAX a -1"], &["PING"]),
    ]);
}

#[test]
fn who_waits_for_streams_is_served_as_with_redis() {
    check_with_redis(&[
        (&["XREAD BLOCK 0 STREAMS s $"], &["XADD s 1-1 a 1", "XADD s 2-0 b 2"]),
        (
            &["XADD s 5-0 a 1", "XREAD BLOCK 0 STREAMS s $", "XREAD BLOCK 0 STREAMS s 7"],
            &["XADD s 6-0 b 2", "XADD s 7-0 c 3", "XADD s 7-1 d 4"],
        ),
        (&["XREAD BLOCK 0 STREAMS s t $ 3-0"], &["XADD t 2-0 a 1", "XADD t 4-0 a 1"]),
        (&["XREAD BLOCK 0 STREAMS s s 5-0 1-0"], &["XADD s 2-0 a 1", "XADD s 6-0 b 2"]),
        (
            &["HELLO 3;XREAD BLOCK 0 STREAMS s $", "XREAD COUNT 2 BLOCK 0 STREAMS t s $ $"],
            &["MULTI", "XADD s 1-0 a 1", "XADD s 2-0 b 2", "XADD s 3-0 c 3", "EXEC"],
        ),
        (
            &["SELECT 3;XREAD BLOCK 0 STREAMS s $"],
            &["XADD s 1-0 a 1", "SELECT 3", "XADD s 2-0 b 2"],
        ),
        // The last ID counts, also where the entry is gone.
        (&["XREAD BLOCK 0 STREAMS s $"], &["MULTI", "XADD s 1-0 a 1", "XDEL s 1-0", "EXEC"]),
        (&["XREAD BLOCK 0 STREAMS s $"], &["XADD s MAXLEN 0 1-0 a 1"]),
        (&["XREAD BLOCK 0 STREAMS s $"], &["XGROUP CREATE s g $ MKSTREAM", "XADD s 1-0 a 1"]),
        (&["XADD s 1-0 a 1", "XREAD BLOCK 0 STREAMS s $"], &["XSETID s 5-0", "XADD s 6-0 b 2"]),
        (
            &["XADD s 1-0 a 1;XGROUP CREATE s g $", "XREAD BLOCK 0 STREAMS s $"],
            &["XSETID s 5-0", "XGROUP DESTROY s g"],
        ),
        (
            &["XADD s 1-0 a 1;XADD s 2-0 b 2", "XREAD BLOCK 0 STREAMS s $"],
            &["XTRIM s MAXLEN 1", "XDEL s 2-0", "XADD s 3-0 c 3"],
        ),
        // Streams that come as a whole.
        (&["XREAD BLOCK 0 STREAMS s 1"], &["XADD t 1-0 a 1", "XADD t 2-0 b 2", "RENAME t s"]),
        (&["XREAD BLOCK 0 STREAMS s $"], &["XADD t 1-0 a 1", "COPY t s"]),
        (&["XREAD BLOCK 0 STREAMS s $"], &["SELECT 3", "XADD s 1-0 a 1", "MOVE s 0"]),
        (&["XREAD BLOCK 0 STREAMS s $"], &["SELECT 3", "XADD s 1-0 a 1", "SWAPDB 3 0"]),
        // Whoever reads alone waits on when the stream goes.
        (&["XADD s 1-0 a 1", "XREAD BLOCK 0 STREAMS s $"], &["DEL s", "XADD s 1-1 a 1"]),
        (
            &["XADD s 5-0 a 1", "XREAD BLOCK 0 STREAMS s $"],
            &["DEL s", "XADD s 1-0 a 1", "XADD s 6-0 b 2"],
        ),
        (
            &["XREAD BLOCK 0 STREAMS s $"],
            &["MULTI", "XADD s 1-0 a 1", "DEL s", "EXEC", "XADD s 2-0 b 2"],
        ),
        (
            &["XREAD BLOCK 0 STREAMS s $"],
            &["MULTI", "XADD s 1-0 a 1", "DEL s", "LPUSH s 1", "EXEC", "DEL s", "XADD s 2-0 b 2"],
        ),
        (&["XREAD BLOCK 0 STREAMS s $"], &["SET s 1", "DEL s", "XADD s 1-0 a 1"]),
        (
            &["BLPOP s 0", "XREAD BLOCK 0 STREAMS s $", "BZPOPMIN s 0"],
            &["XADD s 1-0 a 1", "DEL s", "RPUSH s 1", "ZADD s 1 m"],
        ),
        (&["HELLO 3;XREAD BLOCK 1 STREAMS s $", "XREAD BLOCK 1 STREAMS s t $ 0"], &["PING"]),
        (&["XREAD BLOCK 1 STREAMS s 18446744073709551615-18446744073709551615"], &["PING"]),
        (
            &["MULTI;XREAD BLOCK 0 STREAMS s $;XADD s 1-0 a 1;XREAD BLOCK 0 STREAMS s 0;EXEC"],
            &["PING"],
        ),
        (&["HELLO 3;MULTI;XREAD BLOCK 0 STREAMS s $;EXEC"], &["PING"]),
        (
            &["XREAD BLOCK -1 STREAMS s $;XREAD BLOCK x STREAMS s $;XREAD BLOCK 1.5 STREAMS s $"],
            &["PING"],
        ),
        (&["XREAD BLOCK 0 STREAMS s >;SET s 1;XREAD BLOCK 0 STREAMS t s $ $"], &["PING"]),
    ]);
}

#[test]
fn who_waits_as_one_of_a_group_is_served_as_with_redis() {
    const GROUP: &str = "XGROUP CREATE s g $ MKSTREAM";
    const WAIT: &str = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";
    check_with_redis(&[
        (
            &[
                GROUP,
                WAIT,
                "XREAD BLOCK 0 STREAMS s $",
                "XREADGROUP GROUP g d COUNT 1 BLOCK 0 STREAMS s >",
            ],
            &[
                "XADD s 1-0 a 1",
                "XADD s 2-0 b 2",
                "XADD s 3-0 c 3",
                "XPENDING s g",
                "XINFO GROUPS s",
            ],
        ),
        (
            &[GROUP, WAIT, "XREADGROUP GROUP g d BLOCK 0 STREAMS s >"],
            &[
                "MULTI",
                "XADD s 1-0 a 1",
                "XADD s 2-0 b 2",
                "EXEC",
                "XADD s 3-0 c 3",
                "XPENDING s g",
            ],
        ),
        (
            &[GROUP, "HELLO 3;XREADGROUP GROUP g c NOACK BLOCK 0 STREAMS s >"],
            &["XADD s 1-0 a 1", "XPENDING s g", "XINFO GROUPS s"],
        ),
        (&[GROUP, WAIT], &["MULTI", "XADD s 1-0 a 1", "XDEL s 1-0", "EXEC", "XINFO GROUPS s"]),
        (
            &[
                "XGROUP CREATE s g $ MKSTREAM;XGROUP CREATE t g $ MKSTREAM",
                "XREADGROUP GROUP g c BLOCK 0 STREAMS s t > >",
            ],
            &["XADD t 1-0 a 1", "XPENDING t g", "XPENDING s g"],
        ),
        (&[GROUP, "XREADGROUP GROUP g c BLOCK 0 STREAMS s s > 0"], &["PING"]),
        (&[GROUP, WAIT], &["XGROUP SETID s g 0", "XADD s 1-0 a 1"]),
        // The stream goes.
        (&[GROUP, WAIT], &["DEL s"]),
        (&[GROUP, "HELLO 3;XREADGROUP GROUP g c BLOCK 0 STREAMS s >"], &["UNLINK s"]),
        (&[GROUP, WAIT], &["SET s 1"]),
        (&[GROUP, WAIT], &["MSET t 1 s 2"]),
        (&[GROUP, WAIT], &["SETEX s 100 1"]),
        (&[GROUP, WAIT], &["SET t x", "BITOP NOT s t"]),
        (&[GROUP, WAIT], &["SADD t x", "SUNIONSTORE s t"]),
        (&[GROUP, WAIT], &["SINTERSTORE s t"]),
        (&[GROUP, WAIT], &["ZADD t 1 x", "ZUNIONSTORE s 1 t", "ZCARD s"]),
        (&[GROUP, WAIT], &["RPUSH t 1", "SORT t STORE s", "LLEN s"]),
        (&[GROUP, WAIT], &["EXPIRE s -1"]),
        (&[GROUP, WAIT], &["PEXPIRE s 5"]),
        (&[GROUP, WAIT], &["RENAME s t", "XINFO GROUPS t"]),
        (&[GROUP, WAIT], &["SET t 1", "RENAME t s"]),
        (&[GROUP, WAIT], &["XADD t 1-0 a 1", "RENAME t s"]),
        (&[GROUP, WAIT], &["XADD t 1-0 a 1", "XGROUP CREATE t g 0", "RENAME t s", "XPENDING s g"]),
        (&[GROUP, WAIT], &["SET t 1", "COPY t s REPLACE"]),
        (&[GROUP, WAIT], &["XADD t 1-0 a 1", "COPY t s REPLACE"]),
        (&[GROUP, WAIT], &["MOVE s 3"]),
        (&[GROUP, WAIT], &["FLUSHDB"]),
        (&[GROUP, WAIT], &["SELECT 3", "FLUSHDB", "SELECT 0", "XADD s 1-0 a 1"]),
        (&[GROUP, WAIT], &["SELECT 3", "FLUSHALL"]),
        (&[GROUP, WAIT], &["SWAPDB 0 3"]),
        (&[GROUP, WAIT], &["SELECT 3", "LPUSH s 1", "SWAPDB 0 3"]),
        (&[GROUP, WAIT], &["SELECT 3", "XADD s 1-0 a 1", "SWAPDB 0 3"]),
        (&[GROUP, WAIT], &["SELECT 3", "XADD s 1-0 a 1", "XGROUP CREATE s g 0", "SWAPDB 0 3"]),
        (&[GROUP, WAIT], &["MULTI", "DEL s", "SADD s x", "EXEC"]),
        (&[GROUP, WAIT], &["MULTI", "DEL s", "XADD s 1-0 a 1", "EXEC"]),
        (
            &[GROUP, WAIT],
            &["MULTI", "DEL s", "XADD s 1-0 a 1", "XGROUP CREATE s g 0", "EXEC", "XPENDING s g"],
        ),
        (&[GROUP, WAIT], &["MULTI", "RENAME s t", "RENAME t s", "EXEC", "XADD s 1-0 a 1"]),
        (
            &[
                "XGROUP CREATE s g $ MKSTREAM;XGROUP CREATE t g $ MKSTREAM",
                "XREADGROUP GROUP g c BLOCK 0 STREAMS s t > >",
            ],
            &["DEL t", "XADD s 1-0 a 1", "XPENDING s g"],
        ),
        (&[GROUP, WAIT, "BLPOP s 0"], &["MULTI", "DEL s", "RPUSH s 1 2", "EXEC", "LRANGE s 0 -1"]),
        (
            &[GROUP, "BLPOP s 0", WAIT, "BLPOP s 0"],
            &["MULTI", "DEL s", "RPUSH s 1", "EXEC", "RPUSH s 2"],
        ),
        (&[GROUP, WAIT, "XREAD BLOCK 0 STREAMS s $"], &["DEL s", "XADD s 1-0 a 1"]),
        // The group goes.
        (&[GROUP, WAIT], &["XGROUP DESTROY s g", "XADD s 1-0 a 1"]),
        (
            &[
                "XGROUP CREATE s g $ MKSTREAM;XGROUP CREATE s h $",
                WAIT,
                "XREADGROUP GROUP h c BLOCK 0 STREAMS s >",
            ],
            &["XGROUP DESTROY s g", "XADD s 1-0 a 1"],
        ),
        (
            &[GROUP, WAIT],
            &["MULTI", "XGROUP DESTROY s g", "XGROUP CREATE s g $", "EXEC", "XADD s 1-0 a 1"],
        ),
        (&[GROUP, WAIT], &["XGROUP DELCONSUMER s g c", "XADD s 1-0 a 1", "XPENDING s g"]),
        (
            &[
                GROUP,
                "XREADGROUP GROUP g c BLOCK 1 STREAMS s >",
                "HELLO 3;XREADGROUP GROUP g c BLOCK 1 STREAMS s >",
            ],
            &["PING"],
        ),
        (
            &["XGROUP CREATE s g $ MKSTREAM;MULTI;XREADGROUP GROUP g c BLOCK 0 STREAMS s >;EXEC"],
            &["PING"],
        ),
        (
            &["XREADGROUP GROUP g c BLOCK 0 STREAMS s >;XREADGROUP GROUP g c BLOCK -1 STREAMS s >"],
            &["PING"],
        ),
    ]);
}

/// What has not come to an end is told in the counters of Redis, too.
#[test]
fn who_hears_that_a_stream_is_gone_counts_as_an_error() {
    let server = Server::kelvin(&["--workers", "2"]);
    let (mut client, mut waiter) = (server.connect(), server.connect());
    client.line("XGROUP CREATE s g $ MKSTREAM");
    for (wait, line, answer) in [
        (
            "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
            "DEL s",
            "-UNBLOCKED the stream key no longer exists",
        ),
        (
            "XREADGROUP GROUP g c BLOCK 0 STREAMS t s > >",
            "XGROUP DESTROY t g",
            "-NOGROUP the consumer group this client was blocked on no longer exists",
        ),
    ] {
        client.line("XGROUP CREATE s g $ MKSTREAM");
        client.line("XGROUP CREATE t g $ MKSTREAM");
        client.line("CONFIG RESETSTAT");
        waiter.write(format!("{wait}\r\n").as_bytes());
        wait_for_blocked(&mut client, 1);
        client.line(line);
        assert_eq!(read(&mut waiter), answer);
        let stats = text(&client.line("INFO everything"));
        let code = answer[1..].split(' ').next().expect("a code");
        assert!(stats.contains(&format!("errorstat_{code}:count=1")), "{stats}");
        assert!(stats.contains("total_error_replies:1\r"), "{stats}");
        let own = stats.lines().find(|line| line.starts_with("cmdstat_xreadgroup:calls=1,"));
        assert!(own.is_some_and(|own| own.contains("failed_calls=1")), "{own:?}");
    }
}

/// A stream whose time comes, or that memory has no room for, is gone as if it had been deleted.
#[test]
fn streams_that_go_by_themselves_are_told_of() {
    let server = Server::kelvin(&["--workers", "2"]);
    let (mut client, mut waiter) = (server.connect(), server.connect());
    client.line("XGROUP CREATE s g $ MKSTREAM");
    waiter.write(b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
    wait_for_blocked(&mut client, 1);
    client.line("PEXPIRE s 20");
    assert_eq!(read(&mut waiter), "-UNBLOCKED the stream key no longer exists");
    client.line("XGROUP CREATE s g $ MKSTREAM");
    waiter.write(b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
    wait_for_blocked(&mut client, 1);
    client.line("CONFIG SET maxmemory-policy allkeys-random");
    let start = Instant::now();
    let value = "x".repeat(10_000);
    client.line("CONFIG SET maxmemory 64mb");
    for number in 0.. {
        client.line(&format!("SET key:{number} {value}"));
        if number % 100 == 0 && client.show("EXISTS s") == ":0" {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "the stream should have been evicted");
    }
    assert_eq!(read(&mut waiter), "-UNBLOCKED the stream key no longer exists");
}

/// What clients that wait and one that runs lines are answered.
fn served(server: &Server, waiting: &[&str], lines: &[&str]) -> Vec<Vec<String>> {
    let mut client = server.connect();
    client.line("FLUSHALL");
    let mut clients = Vec::new();
    for requests in waiting {
        let mut waiter = server.connect();
        let before = info(&mut client, "blocked_clients");
        requests.split(';').for_each(|line| waiter.write(format!("{line}\r\n").as_bytes()));
        // Whoever waits does so before the next one comes; some are answered at once.
        let start = Instant::now();
        while info(&mut client, "blocked_clients") == before
            && start.elapsed() < Duration::from_millis(100)
        {
            thread::yield_now();
        }
        clients.push((waiter, requests));
    }
    let answers = lines.iter().map(|line| client.show(line)).collect();
    let mut results = vec![answers];
    for (waiter, requests) in &mut clients {
        let mut replies = Vec::new();
        let mut requests = requests.split(';');
        while let Some(request) = requests.next() {
            if request == "CLIENT REPLY SKIP" {
                requests.next();
                continue;
            }
            let reply = waiter.read_within(PATIENCE).expect("a reply");
            // The kind of a null counts, and what HELLO says does not.
            if !request.starts_with("HELLO") {
                replies.push(format!("{} {reply:?}", show(&reply)));
            }
        }
        results.push(replies);
    }
    results
}

#[test]
fn clients_give_up_in_time_or_are_told_to() {
    let server = Server::kelvin(&["--workers", "2"]);
    let mut client = server.connect();
    let mut waiter = server.connect();
    for (line, ms) in [
        ("BLPOP a 0.05", 50),
        ("BLMPOP 0.02 1 a LEFT", 20),
        ("BLMOVE a b LEFT LEFT 0.001", 1),
        ("BRPOP a 0.3", 300),
        ("BZPOPMIN a 0.05", 50),
        ("BZMPOP 0.02 1 a MAX", 20),
        ("XREAD BLOCK 30 STREAMS a $", 30),
    ] {
        let start = Instant::now();
        assert_eq!(waiter.show(line), "_", "{line}");
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(ms), "{line} took {took:?}");
        assert!(took < Duration::from_millis(ms + 2000), "{line} took {took:?}");
    }
    let Frame::Integer(id) = waiter.line("CLIENT ID") else { panic!("a number") };
    assert_eq!(client.show(&format!("CLIENT UNBLOCK {id}")), ":0");
    for (line, how, answer) in [
        ("BLPOP a 0", "", "_"),
        ("BLPOP a 100", "TIMEOUT", "_"),
        ("BLMOVE a b LEFT LEFT 0", "ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        ("BZPOPMAX a 100", "TIMEOUT", "_"),
        ("XREAD BLOCK 0 STREAMS a $", "ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        waiter.write(format!("{line}\r\n").as_bytes());
        wait_for_blocked(&mut client, 1);
        let with_deadline = u64::from(line.contains("100"));
        assert_eq!(info(&mut client, "clients_in_timeout_table"), with_deadline);
        let list = text(&client.line("CLIENT LIST"));
        let own = list.lines().find(|line| line.starts_with(&format!("id={id} ")));
        let own = own.expect("its line");
        assert!(own.contains("flags=b"), "{own}");
        let command = line.split(' ').next().expect("a name").to_ascii_lowercase();
        assert!(own.contains(&format!("cmd={command} ")), "{own}");
        assert_eq!(client.show(&format!("CLIENT UNBLOCK {id} {how}")), ":1");
        assert_eq!(read(&mut waiter), answer, "{line} {how}");
    }
    // What comes then goes to nobody.
    assert_eq!(client.show("RPUSH a 1"), ":1");
    assert_eq!(client.show("LRANGE a 0 -1"), "[$1]");
    assert_eq!(info(&mut client, "blocked_clients"), 0);
    assert_eq!(info(&mut client, "clients_in_timeout_table"), 0);
}

/// Whoever ends the wait of another finds the call counted at once, whatever worker the other is on, and nobody counts it
/// again.
#[test]
fn a_wait_that_is_over_is_counted_once() {
    let server = Server::kelvin(&["--workers", "2"]);
    let mut waiters = [server.connect(), server.connect()];
    let ids = waiters.each_mut().map(|waiter| waiter.show("CLIENT ID")[1..].to_string());
    let mut client = server.connect();
    for round in 0..200 {
        let (waiter, id) = (&mut waiters[round % 2], &ids[round % 2]);
        let (line, failed) = match round % 3 {
            0 => (format!("CLIENT UNBLOCK {id}"), 0),
            1 => (format!("CLIENT UNBLOCK {id} ERROR"), 1),
            _ => ("RPUSH a 1".to_string(), 0),
        };
        waiter.write(b"BLPOP a 0\r\n");
        wait_for_blocked(&mut client, 1);
        client.line("CONFIG RESETSTAT");
        // In one batch, so that a connection of the same worker has no time.
        client.write(format!("{line}\r\nINFO everything\r\n").as_bytes());
        assert_eq!(read(&mut client), ":1");
        let at_once = text(&client.read_within(PATIENCE).expect("a reply"));
        read(waiter);
        wait_for_blocked(&mut client, 0);
        let later = text(&client.line("INFO everything"));
        for stats in [at_once, later] {
            assert_counted_once(&stats, failed);
        }
    }
    client.line("CONFIG RESETSTAT");
    assert_eq!(waiters[0].show("BLPOP a 0.01"), "_");
    assert_counted_once(&text(&client.line("INFO everything")), 0);
}

/// One BLPOP was called, which failed so often since it was unblocked with an error.
fn assert_counted_once(stats: &str, failed: u64) {
    let has = |line: &str| stats.lines().any(|one| one.trim_end() == line);
    let own = stats.lines().find(|line| line.starts_with("cmdstat_blpop:calls=1,"));
    let rest = format!("rejected_calls=0,failed_calls={failed}");
    assert!(own.is_some_and(|own| own.trim_end().ends_with(&rest)), "{stats}");
    assert!(has(&format!("total_error_replies:{failed}")), "{stats}");
    assert_eq!(has("errorstat_UNBLOCKED:count=1"), failed == 1, "{stats}");
}

#[test]
fn a_client_that_was_killed_takes_nothing() {
    for workers in ["1", "2"] {
        let server = Server::kelvin(&["--workers", workers]);
        let mut client = server.connect();
        for round in 1..=50 {
            let mut waiter = server.connect();
            let Frame::Integer(id) = waiter.line("CLIENT ID") else { panic!("a number") };
            let key = format!("list-{round}");
            waiter.write(format!("BLPOP {key} 0\r\n").as_bytes());
            wait_for_blocked(&mut client, 1);
            // In one batch, so that its connection has no time to end its wait.
            let batch = format!(
                "CLIENT KILL ID {id}\r\nCLIENT UNBLOCK {id}\r\nRPUSH {key} v\r\nLLEN {key}\r\n"
            );
            client.write(batch.as_bytes());
            for answer in [":1", ":0", ":1", ":1"] {
                assert_eq!(read(&mut client), answer, "{workers} workers");
            }
            wait_for_blocked(&mut client, 0);
        }
    }
}

#[test]
fn a_client_may_wait_for_very_many_keys() {
    const KEYS: usize = 200_000;
    let server = Server::kelvin(&["--workers", "2"]);
    let (mut client, mut waiter) = (server.connect(), server.connect());
    let keys: String = (0..KEYS).map(|number| format!("$7\r\nk{number:06}\r\n")).collect();
    waiter.write(format!("*{}\r\n$5\r\nBLPOP\r\n{keys}$1\r\n0\r\n", KEYS + 2).as_bytes());
    wait_for_blocked(&mut client, 1);
    assert_eq!(client.show("RPUSH k199999 v"), ":1");
    assert_eq!(read(&mut waiter), "[$k199999 $v]");
    assert_eq!(info(&mut client, "blocked_clients"), 0);
}

#[test]
fn a_wait_begins_when_its_request_runs() {
    let server = Server::kelvin(&["--workers", "1", "--enable-debug-command", "yes"]);
    let mut client = server.connect();
    // The batch has begun half a second before.
    client.write(b"DEBUG SLEEP 0.5\r\nBLPOP a 0.4\r\n");
    assert_eq!(read(&mut client), "+OK");
    let start = Instant::now();
    assert_eq!(read(&mut client), "_");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
}

#[test]
fn a_client_that_goes_takes_nothing() {
    let server = Server::kelvin(&["--workers", "2"]);
    let mut client = server.connect();
    for is_killed in [false, true] {
        let mut waiter = server.connect();
        let Frame::Integer(id) = waiter.line("CLIENT ID") else { panic!("a number") };
        // What it sends behind its request does not hide that it is gone.
        waiter.write(b"BLPOP a b 0\r\nSET behind 1\r\n");
        wait_for_blocked(&mut client, 1);
        match is_killed {
            true => assert_eq!(client.show(&format!("CLIENT KILL ID {id}")), ":1"),
            false => drop(waiter),
        }
        wait_for_blocked(&mut client, 0);
        assert_eq!(client.show("RPUSH a 1"), ":1");
        assert_eq!(client.show("RPUSH b 1"), ":1");
        assert_eq!(client.show("DEL a b"), ":2");
        assert_eq!(client.show("EXISTS behind"), ":0");
    }
}

#[test]
fn values_on_flash_are_fetched_for_who_waits() {
    let server =
        Server::kelvin_with_flash("64mb", &["--workers", "2", "--flash-segment-size", "1mb"]);
    let mut client = server.connect();
    let element = "x".repeat(500);
    client.line("SELECT 3");
    client.line(&format!("RPUSH a {element} {element}"));
    client.line("XGROUP CREATE c g 0 MKSTREAM");
    for number in 1..=30 {
        client.line(&format!("ZADD b {number} {number}{element}"));
        client.line(&format!("XADD c {number}-0 f {number}{element}"));
    }
    client.line("SELECT 0");
    client.line("XGROUP CREATE c g $ MKSTREAM");
    let waiters = [
        "BLPOP a 0",
        "BZPOPMAX b 0",
        "XREAD COUNT 1 BLOCK 0 STREAMS c $",
        "XREADGROUP GROUP g one COUNT 1 BLOCK 0 STREAMS c >",
    ];
    let waiters = waiters.map(|line| {
        let mut waiter = server.connect();
        waiter.write(format!("{line}\r\n").as_bytes());
        waiter
    });
    wait_for_blocked(&mut client, 4);
    assert!(!client.show("TIER DEMOTE ALL").starts_with('-'));
    assert_eq!(client.show("SWAPDB 0 3"), "+OK");
    let entry = format!("[[$c [[$1-0 [$f $1{element}]]]]]");
    let answers =
        [format!("[$a ${element}]"), format!("[$b $30{element} $30]"), entry.clone(), entry];
    for (mut waiter, answer) in waiters.into_iter().zip(answers) {
        assert_eq!(read(&mut waiter), answer);
    }
    assert_eq!(client.show("LLEN a"), ":1");
    assert_eq!(client.show("ZCARD b"), ":29");
    assert_eq!(client.show("XPENDING c g"), "[:1 $1-0 $1-0 [[$one $1]]]");
}

/// Many clients on several keys: each element goes to the client that has waited longest for its key.
#[test]
fn a_thousand_clients_are_served_in_the_order_of_their_arrival() {
    const KEYS: usize = 10;
    const CLIENTS: usize = 1000;
    for workers in ["2", "4"] {
        let server = Server::kelvin(&["--workers", workers, "--maxclients", "2000"]);
        let mut client = server.connect();
        let mut waiters = Vec::new();
        for round in 0..CLIENTS / KEYS {
            // One at each key at a time, so that the order of all at a key is known.
            for key in 0..KEYS {
                let mut waiter = server.connect();
                let other = (key + 1) % KEYS;
                let line = match round % 3 {
                    0 => format!("BLPOP k{key} 0\r\n"),
                    1 => format!("BLMOVE k{key} done{other} LEFT RIGHT 0\r\n"),
                    _ => format!("BLPOP k{key} none{other} 0\r\n"),
                };
                waiter.write(line.as_bytes());
                waiters.push((key, waiter));
            }
            wait_for_blocked(&mut client, ((round + 1) * KEYS) as u64);
        }
        // Elements are numbered in the order in which they are pushed to a key.
        thread::scope(|scope| {
            for key in 0..KEYS {
                let server = &server;
                scope.spawn(move || {
                    let mut pusher = server.connect();
                    for element in 0..CLIENTS / KEYS {
                        pusher.write(format!("RPUSH k{key} {element}\r\n").as_bytes());
                    }
                    for _ in 0..CLIENTS / KEYS {
                        assert_eq!(show(&pusher.read()), ":1", "somebody has taken the last one");
                    }
                });
            }
        });
        let mut next = BTreeMap::<usize, usize>::new();
        for (key, waiter) in &mut waiters {
            let number = next.entry(*key).or_default();
            let got = read(waiter);
            let is_it = got == format!("${number}") || got.ends_with(&format!(" ${number}]"));
            assert!(is_it, "{got} and not {number} of key {key}");
            *number += 1;
        }
        assert_eq!(info(&mut client, "blocked_clients"), 0);
        let moved =
            (0..KEYS).map(|key| client.show(&format!("LLEN done{key}"))).collect::<Vec<_>>();
        assert_eq!(moved, vec![":33"; KEYS]);
    }
}

/// Producers push numbers, clients that wait move them on, and nothing is lost, doubled or out of order.
#[test]
fn elements_that_move_on_stay_in_their_order() {
    const PRODUCERS: usize = 4;
    const MOVERS: usize = 12;
    const ELEMENTS: usize = 3000;
    for workers in ["2", "4"] {
        let server = Server::kelvin(&["--workers", workers]);
        let is_over = &AtomicBool::new(false);
        thread::scope(|scope| {
            let mut movers = Vec::new();
            for mover in 0..MOVERS {
                let mut client = server.connect();
                movers.push(scope.spawn(move || {
                    // From the first list to the second, and from there to the last.
                    let (from, to) = [("one", "two"), ("two", "three")][mover % 2];
                    let mut moved = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let line = format!("BLMOVE {from} {to} LEFT RIGHT 0.1");
                        moved += usize::from(client.show(&line) != "_");
                    }
                    moved
                }));
            }
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|producer| {
                    let mut client = server.connect();
                    scope.spawn(move || {
                        for element in 0..ELEMENTS {
                            client.line(&format!("RPUSH one {producer}:{element}"));
                        }
                    })
                })
                .collect();
            producers.into_iter().for_each(|thread| thread.join().expect("it pushes"));
            let mut client = server.connect();
            let start = Instant::now();
            while client.show("LLEN three") != format!(":{}", PRODUCERS * ELEMENTS) {
                assert!(start.elapsed() < PATIENCE, "everything should have moved on");
                thread::sleep(Duration::from_millis(5));
            }
            is_over.store(true, Ordering::Relaxed);
            let moved: usize =
                movers.into_iter().map(|thread| thread.join().expect("it moves")).sum();
            assert_eq!(moved, 2 * PRODUCERS * ELEMENTS);
        });
        let Frame::Array(elements) = server.connect().line("LRANGE three 0 -1") else {
            panic!("a list")
        };
        let mut next = [0; PRODUCERS];
        for element in &elements {
            let element = text(element);
            let (producer, number) = element.split_once(':').expect("both numbers");
            let producer: usize = producer.parse().expect("a number");
            assert_eq!(number.parse(), Ok(next[producer]), "of producer {producer}");
            next[producer] += 1;
        }
        assert_eq!(next, [ELEMENTS; PRODUCERS]);
    }
}

/// Whoever reads a stream alone is told of every entry, and of those who read as a group each entry is told to one.
#[test]
fn entries_reach_every_reader_and_one_of_a_group() {
    const PRODUCERS: usize = 3;
    const READERS: usize = 4;
    const CONSUMERS: usize = 4;
    const ENTRIES: usize = 1500;
    for workers in ["2", "4"] {
        let server = Server::kelvin(&["--workers", workers]);
        server.connect().line("XGROUP CREATE s g $ MKSTREAM");
        let read = &AtomicUsize::new(0);
        let (alone, grouped) = thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|_| {
                    let mut client = server.connect();
                    scope.spawn(move || {
                        let mut ids = vec!["0".to_owned()];
                        while ids.len() <= PRODUCERS * ENTRIES {
                            let last = ids.last().expect("one");
                            let line = format!("XREAD BLOCK 60000 STREAMS s {last}");
                            ids.extend(entry_ids(&client.line(&line)));
                        }
                        ids.split_off(1)
                    })
                })
                .collect();
            let consumers: Vec<_> = (0..CONSUMERS)
                .map(|consumer| {
                    let mut client = server.connect();
                    scope.spawn(move || {
                        let mut ids = Vec::new();
                        while read.load(Ordering::Relaxed) < PRODUCERS * ENTRIES {
                            let line =
                                format!("XREADGROUP GROUP g c{consumer} BLOCK 50 STREAMS s >");
                            let found = entry_ids(&client.line(&line));
                            read.fetch_add(found.len(), Ordering::Relaxed);
                            ids.extend(found);
                        }
                        ids
                    })
                })
                .collect();
            for producer in 0..PRODUCERS {
                let mut client = server.connect();
                scope.spawn(move || {
                    for entry in 0..ENTRIES {
                        client.line(&format!("XADD s * {producer} {entry}"));
                    }
                });
            }
            let alone: Vec<_> =
                readers.into_iter().map(|thread| thread.join().expect("it reads")).collect();
            let grouped: Vec<_> =
                consumers.into_iter().map(|thread| thread.join().expect("it reads")).collect();
            (alone, grouped)
        });
        let Frame::Array(all) = server.connect().line("XRANGE s - +") else { panic!("entries") };
        let all: Vec<String> = all.iter().map(entry_id).collect();
        assert_eq!(all.len(), PRODUCERS * ENTRIES);
        assert!(alone.iter().all(|ids| *ids == all), "each reader has read all, in their order");
        for ids in &grouped {
            let places: Vec<_> =
                ids.iter().map(|id| all.iter().position(|other| other == id)).collect();
            assert!(places.is_sorted(), "each consumer has read in the order of entries");
        }
        let mut of_group: Vec<_> = grouped.into_iter().flatten().collect();
        assert_eq!(of_group.len(), all.len());
        of_group.sort();
        of_group.dedup();
        assert_eq!(of_group.len(), all.len(), "no entry is read twice");
        assert_eq!(info(&mut server.connect(), "blocked_clients"), 0);
    }
}

/// The IDs in the answer of XREAD for one stream: none for a null.
fn entry_ids(answer: &Frame) -> Vec<String> {
    let Frame::Array(streams) = answer else { return Vec::new() };
    let [Frame::Array(stream)] = &streams[..] else { panic!("one stream: {answer:?}") };
    let [_, Frame::Array(entries)] = &stream[..] else { panic!("its entries: {answer:?}") };
    entries.iter().map(entry_id).collect()
}

fn entry_id(entry: &Frame) -> String {
    let Frame::Array(entry) = entry else { panic!("an entry: {entry:?}") };
    text(&entry[0])
}
