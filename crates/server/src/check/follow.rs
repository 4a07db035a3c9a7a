//! Keys that are lost, followed through the records behind the checkpoint: what is written anew is there again, and what was
//! made of something lost is lost as well.

use command::{KeyAt, KeyFlags, LoggedCommand, find_keys};
use keyspace::DB_COUNT;
use resp::Args;
use smallvec::SmallVec;

use super::lost::Lost;
use crate::family::REGISTRY;

/// Options of SET with which it writes over whatever is there; each has a number behind it.
const EXPIRIES: [&[u8]; 4] = [b"EX", b"PX", b"EXAT", b"PXAT"];

pub(super) struct Followed {
    /// Of each database, as SWAPDB leaves them.
    pub(super) tables: [u8; DB_COUNT],
    /// Keys that are lost at this moment.
    pub(super) lost: Lost,
    /// Those of them of which commands have made something since, or would have.
    pub(super) made: Lost,
}

impl Followed {
    pub(super) fn new(tables: [u8; DB_COUNT], lost: Lost) -> Followed {
        Followed { tables, lost, made: Lost::default() }
    }

    /// The database of a table.
    pub(super) fn db(&self, table: u8) -> u8 {
        database_of(&self.tables, table)
    }

    /// Follows a command.
    pub(super) fn run(&mut self, command: LoggedCommand<'_>) {
        if self.lost.len() == 0 {
            // Nothing is made of something lost any more.
            return;
        }
        let (db, args) = (usize::from(command.db), command.args);
        let is = |name: &str| args[0].eq_ignore_ascii_case(name.as_bytes());
        if is("SWAPDB") {
            if let (Some(one), Some(other)) = (number(args, 1), number(args, 2)) {
                self.tables.swap(one, other);
            }
        } else if is("FLUSHDB") {
            self.forget_table(self.tables[db]);
        } else if is("FLUSHALL") {
            self.tables.into_iter().for_each(|table| self.forget_table(table));
        } else {
            self.run_on_keys(db, args);
        }
    }

    fn forget_table(&mut self, table: u8) {
        self.lost.remove_all(table);
        self.made.remove_all(table);
    }

    fn run_on_keys(&mut self, db: usize, args: Args<'_>) {
        let Some(entry) = REGISTRY.find(args) else { return };
        let mut found: SmallVec<[KeyAt; 4]> = SmallVec::new();
        find_keys(entry.spec.keys, args, &mut found);
        let here = self.tables[db];
        let is = |name: &str| args[0].eq_ignore_ascii_case(name.as_bytes());
        let is_overwritten =
            |flags: KeyFlags| flags.has(KeyFlags::OW) || is("SET") && is_plain_set(args);
        let is_read = |at: &KeyAt| !is_overwritten(at.flags) && !at.flags.has(KeyFlags::RM);
        let key = |at: &KeyAt| args.get(at.index);
        let is_from_lost = found
            .iter()
            .filter(|at| is_read(at))
            .filter_map(key)
            .any(|key| self.lost.has(here, key));
        for at in &found {
            let Some(key) = key(at) else { continue };
            let table = match at.flags.has(KeyFlags::OW) && is("COPY") {
                true => self.tables[database_of_copy(args).unwrap_or(db)],
                false => here,
            };
            match at.flags {
                flags if flags.has(KeyFlags::RO) => {}
                flags if flags.has(KeyFlags::RM) => self.note(table, key, false),
                flags if is_overwritten(flags) => self.note(table, key, is_from_lost),
                _ if is_from_lost => self.note(table, key, true),
                _ => {}
            }
        }
        if let (true, Some(key), Some(target)) = (is("MOVE"), args.get(1), number(args, 2)) {
            self.note(self.tables[target], key, is_from_lost);
        }
        // Where it comes from it is no more.
        if let (true, Some(key)) = (is("MOVE") || is("RENAME") || is("RENAMENX"), args.get(1)) {
            self.note(here, key, false);
        }
    }

    fn note(&mut self, table: u8, key: &[u8], is_lost: bool) {
        match is_lost {
            true => {
                self.lost.add(table, key);
                self.made.add(table, key);
            }
            false => {
                self.lost.remove(table, key);
                self.made.remove(table, key);
            }
        }
    }
}

/// The database that has a table.
pub(super) fn database_of(tables: &[u8; DB_COUNT], table: u8) -> u8 {
    tables.iter().position(|&other| other == table).unwrap_or_default() as u8
}

/// A database among the arguments.
fn number(args: Args<'_>, at: usize) -> Option<usize> {
    let number = usize::try_from(value::parse_i64(args.get(at)?)?).ok()?;
    (number < DB_COUNT).then_some(number)
}

fn database_of_copy(args: Args<'_>) -> Option<usize> {
    let at = (3..args.len()).find(|&at| args[at].eq_ignore_ascii_case(b"DB"))?;
    number(args, at + 1)
}

/// Whether SET writes over what is there, without a look at it.
fn is_plain_set(args: Args<'_>) -> bool {
    let is_expiry = |word: &[u8]| EXPIRIES.iter().any(|name| word.eq_ignore_ascii_case(name));
    (3..args.len()).step_by(2).all(|at| is_expiry(&args[at]))
}

#[cfg(test)]
mod tests {
    use command::{Commands, Record};

    use super::*;

    /// Follows commands, `DB:COMMAND`, with the key `a` of database 0 lost, and says which keys are in the end: `DB:KEY`, and
    /// those of which something was made with a star.
    fn follow(lines: &[&str]) -> String {
        let mut lost = Lost::default();
        let tables = std::array::from_fn(|db| db as u8 + 20);
        lost.add(tables[0], b"a");
        let mut followed = Followed::new(tables, lost);
        for line in lines {
            let (db, words) = line.split_once(':').expect("a database");
            let mut record = Record::new(Vec::new(), 1);
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            record.add(db.parse().expect("a number"), words.into_iter());
            let payload = record.pieces().concat();
            let mut commands = Commands::read(&payload).expect("a record");
            followed.run(commands.read_next().expect("a command").expect("one"));
        }
        let shown = |(table, key): (u8, &[u8])| {
            let star = if followed.made.has(table, key) { "*" } else { "" };
            format!("{}:{}{star}", followed.db(table), key.escape_ascii())
        };
        followed.lost.iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_made_of_something_lost_is_lost_and_what_is_written_anew_is_not() {
        let cases: &[(&[&str], &str)] = &[
            (&[], "0:a"),
            (&["0:SET b 1", "1:APPEND a x", "0:EXISTS a"], "0:a"),
            (&["0:APPEND a x"], "0:a*"),
            (&["0:LSET a 0 x", "0:SET a 1"], ""),
            (&["0:SET a 1 PX 100"], ""),
            (&["0:SET a 1 KEEPTTL"], "0:a*"),
            (&["0:set a 1 xx"], "0:a*"),
            (&["0:MSET b 1 a 2"], ""),
            (&["0:UNLINK b a"], ""),
            (&["0:RENAME a b"], "0:b*"),
            (&["0:RENAME b a"], ""),
            (&["0:COPY a b DB 2"], "0:a 2:b*"),
            (&["0:COPY b a REPLACE"], ""),
            (&["0:MOVE a 2", "2:DEL a"], ""),
            (&["0:SUNIONSTORE b c a", "0:SADD d x"], "0:a 0:b*"),
            (&["0:SUNIONSTORE b a c", "0:SUNIONSTORE b c d"], "0:a"),
            (&["0:LMOVE a b LEFT LEFT", "0:LMOVE b c LEFT LEFT"], "0:a* 0:b* 0:c*"),
            (&["0:SWAPDB 0 3"], "3:a"),
            (&["0:SWAPDB 0 3", "0:FLUSHDB", "3:APPEND a x"], "3:a*"),
            (&["0:SWAPDB 0 3", "3:FLUSHDB"], ""),
            (&["0:APPEND a x", "5:FLUSHALL"], ""),
        ];
        for (lines, expected) in cases {
            assert_eq!(follow(lines), *expected, "{lines:?}");
        }
    }
}
