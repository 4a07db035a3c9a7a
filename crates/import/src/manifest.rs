//! The manifest of an append-only log of several files, as Redis 7.0 writes it.
//!
//! ```text
//! file appendonly.aof.1.base.rdb seq 1 type b
//! file appendonly.aof.1.incr.aof seq 1 type i
//! ```
//!
//! A line a file, of names and values; `type` is b for the base, h for what a newer base has made worthless, i for what
//! was added since. Values may stand in quotes; lines that begin with `#` say nothing.

/// Files of the log in the order in which they are loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) files: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Base,
    History,
    Added,
}

impl Manifest {
    /// Errors: what is wrong in which line.
    pub(crate) fn parse(text: &[u8]) -> Result<Manifest, String> {
        let (mut base, mut added): (Option<String>, Vec<String>) = (None, Vec::new());
        let mut last_number = 0;
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let wrong = |what: &str| format!("line {number}: {what}");
            let (name, sequence, sort) = parse_line(line).map_err(|what| wrong(&what))?;
            match sort {
                Sort::History => {}
                Sort::Base if base.is_some() => return Err(wrong("there are two bases")),
                Sort::Base => base = Some(name),
                Sort::Added if sequence <= last_number => {
                    return Err(wrong("the numbers of its files do not ascend"));
                }
                Sort::Added => {
                    last_number = sequence;
                    added.push(name);
                }
            }
        }
        let files: Vec<String> = base.into_iter().chain(added).collect();
        if files.is_empty() { Err("it names no file".to_owned()) } else { Ok(Manifest { files }) }
    }
}

fn parse_line(line: &[u8]) -> Result<(String, u64, Sort), String> {
    let (mut line, mut ranges) = (line.to_vec(), Vec::new());
    resp::split_words(&mut line, &mut ranges).map_err(|_| "a quote is not closed".to_owned())?;
    let words = resp::Args::new(&line, &ranges);
    let (mut name, mut sequence, mut sort) = (None, None, None);
    for at in (0..words.len()).step_by(2) {
        let value = words.get(at + 1).ok_or("a value is missing")?;
        match &words[at] {
            word if word.eq_ignore_ascii_case(b"file") => {
                let text = std::str::from_utf8(value).map_err(|_| "a name is no text")?;
                if text.is_empty() || text.contains(|c: char| c == '/' || c.is_control()) {
                    let text = text.escape_debug();
                    return Err(format!("'{text}' is no name of a file beside it"));
                }
                name = Some(text.to_owned());
            }
            word if word.eq_ignore_ascii_case(b"seq") => {
                let number = value::number::parse_u64(value).ok_or("a number is none")?;
                sequence = Some(number);
            }
            word if word.eq_ignore_ascii_case(b"type") => {
                sort = Some(match value {
                    b"b" => Sort::Base,
                    b"h" => Sort::History,
                    b"i" => Sort::Added,
                    other => return Err(format!("type '{}' is not known", other.escape_ascii())),
                });
            }
            // Later versions may say more.
            _ => {}
        }
    }
    let what = "file, seq or type is missing";
    Ok((name.ok_or(what)?, sequence.ok_or(what)?, sort.ok_or(what)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_in_the_order_in_which_they_are_loaded() {
        let text = b"file a.2.base.rdb seq 2 type b\nfile a.1.base.rdb seq 1 type h\n\
            # remark\nfile \"a b.incr.aof\" seq 3 type i\ntype i seq 4 file c startoffset 7\n";
        let files = ["a.2.base.rdb", "a b.incr.aof", "c"].map(str::to_owned).to_vec();
        assert_eq!(Manifest::parse(text), Ok(Manifest { files }));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let cases = [
            ("", "it names no file"),
            ("file a seq 1 type h\n", "it names no file"),
            ("file a seq 1\n", "line 1: file, seq or type is missing"),
            ("file a seq 1 type b\nfile b seq 2 type b\n", "line 2: there are two bases"),
            ("file a seq 2 type i\nfile b seq 2 type i\n", "line 2: the numbers of its files"),
            ("file ../a seq 1 type b\n", "'../a' is no name"),
            ("file \"a\\nb\" seq 1 type b\n", "'a\\nb' is no name"),
            ("file a seq x type b\n", "a number is none"),
            ("file a seq 1 type z\n", "type 'z' is not known"),
            ("file a seq\n", "a value is missing"),
            ("file \"a seq 1 type b\n", "a quote is not closed"),
        ];
        for (text, reason) in cases {
            let error = Manifest::parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
