//! A walk over the elements of one large collection, which a command may be run on window by window
//! ([`crate::Flags::IN_WINDOWS`]), so that no run is long.

use std::cell::Cell;

/// How far a run goes that walks over a collection.
#[derive(Clone, Copy, Debug, Default)]
pub enum Walk<'a> {
    /// Over all that it asks for.
    #[default]
    Whole,
    /// The same, if that has about so many bytes at most. If it has more, the run ends with
    /// [`crate::CommandError::LongWalk`] before it replies anything but a header.
    UpTo(u64),
    /// Over one window.
    Window(&'a Window),
}

/// A part of a walk.
#[derive(Debug)]
pub struct Window {
    /// Elements that stand in front of it, in the order of the walk.
    from: u64,
    /// Leaves that have so many bytes, but for the last of them.
    bytes_max: u64,
    /// Where the next begins. None: this is the last.
    next: Cell<Option<u64>>,
}

impl Window {
    /// A window that begins behind so many elements, where another has ended or at 0, of leaves that have
    /// `bytes_max` bytes.
    pub fn new(from: u64, bytes_max: u64) -> Window {
        Window { from, bytes_max, next: Cell::new(None) }
    }

    /// How many elements stand in front of the next window, once a run has been on this one. None: there is no
    /// next.
    pub fn next(&self) -> Option<u64> {
        self.next.get()
    }

    pub(super) fn from(&self) -> u64 {
        self.from
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(super) fn end_at(&self, elements: Option<u64>) {
        self.next.set(elements);
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::Harness;

    const COUNT: usize = 600;

    /// A server with large collections, which are read in windows of so many bytes.
    fn server(demote: bool, walked_bytes_max: u64) -> Harness {
        let mut server = Harness::new(demote);
        server.walked_bytes_max = walked_bytes_max;
        let joined = |word: &dyn Fn(usize) -> String| (0..COUNT).map(word).collect::<String>();
        // One of them is longer than a window.
        let name =
            |number| format!("{number:04}{}", "x".repeat(if number == 300 { 5_000 } else { 30 }));
        server.run(&format!("HSET h{}", joined(&|number| format!(" {} v{number}", name(number)))));
        server.run(&format!("SADD s{}", joined(&|number| format!(" {}", name(number)))));
        server.run(&format!("RPUSH l{}", joined(&|number| format!(" {}", name(number)))));
        server.run(&format!("ZADD z{}", joined(&|number| format!(" {number} {}", name(number)))));
        server
    }

    #[test]
    fn windows_together_are_the_whole() {
        let lines = [
            "HGETALL h",
            "HKEYS h",
            "HVALS h",
            "SMEMBERS s",
            "LRANGE l 0 -1",
            "LRANGE l 7 500",
            "LRANGE l -450 -3",
            "ZRANGE z 0 -1",
            "ZRANGE z 0 -1 REV WITHSCORES",
            "ZREVRANGE z 5 -7",
            "ZRANGEBYSCORE z (10 590 WITHSCORES",
            "ZREVRANGEBYSCORE z 595 2 LIMIT 3 550",
            "ZRANGEBYLEX z - +",
            "ZREVRANGEBYLEX z + - LIMIT 20 560",
        ];
        for demote in [false, true] {
            let (mut whole, mut cut) = (server(demote, 0), server(demote, 1_500));
            for line in lines {
                assert_eq!(cut.run(line), whole.run(line), "{line}");
                assert!(cut.windows > 3, "{line}: {} windows", cut.windows);
                assert_eq!(whole.windows, 0);
            }
        }
    }

    #[test]
    fn short_walks_and_those_over_fields_that_expire_are_not_cut() {
        let mut server = server(false, 4_000);
        for line in
            ["LRANGE l 0 9", "ZRANGE z 590 -1", "HGET h 0001", "ZRANDMEMBER z 500", "SUNION s"]
        {
            server.run(line);
            assert_eq!(server.windows, 0, "{line}");
        }
        let field = format!("0001{}", "x".repeat(30));
        assert_eq!(server.run(&format!("HPEXPIRE h 100 FIELDS 1 {field}")), "[:1]");
        server.run("HGETALL h");
        assert_eq!(server.windows, 0);
        server.run(&format!("HPERSIST h FIELDS 1 {field}"));
        server.run("HGETALL h");
        assert!(server.windows > 3);
    }
}
