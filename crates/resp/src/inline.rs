//! Words of a line, with the quotes and escapes that Redis gives inline commands and its
//! configuration file.
//!
//! A word's unescaped form is never longer than what was written, so words are unescaped in
//! place: the line itself is the storage, and ranges of it are the result.
//!
//! Rules: words are separated by white space. `"..."` knows `\n \r \t \b \a \xHH`, and `\`
//! before any other byte is that byte. `'...'` knows `\'` only. A closing quote must be followed
//! by white space or the end of the line. An opening quote may stand inside a word.

use crate::ArgRange;

/// A quote was left open, or did not close where a word ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbalancedQuotes;

/// Splits `line` into words, unescaping them in place, and appends their ranges to `words`.
///
/// Errors: [`UnbalancedQuotes`]; `line` and `words` then hold nothing of use.
/// Bounds: `line` is shorter than 4 GiB.
/// Cost: one pass over the line.
pub fn split_words(line: &mut [u8], words: &mut Vec<ArgRange>) -> Result<(), UnbalancedQuotes> {
    assert!(u32::try_from(line.len()).is_ok());
    let mut read = 0;
    loop {
        while read < line.len() && is_space(line[read]) {
            read += 1;
        }
        if read == line.len() {
            return Ok(());
        }
        let start = read;
        let (end, next) = take_word(line, start)?;
        words.push(ArgRange { start: start as u32, len: (end - start) as u32 });
        read = next;
    }
}

/// Unescapes the word at `start` in place. Returns where its bytes end and where to read on.
fn take_word(line: &mut [u8], start: usize) -> Result<(usize, usize), UnbalancedQuotes> {
    let (mut read, mut write) = (start, start);
    while read < line.len() {
        match line[read] {
            // Vertical tab and form feed separate words but do not end one: so does Redis.
            b' ' | b'\n' | b'\r' | b'\t' => break,
            b'"' => {
                (write, read) = take_double_quoted(line, write, read + 1)?;
                break;
            }
            b'\'' => {
                (write, read) = take_single_quoted(line, write, read + 1)?;
                break;
            }
            byte => {
                line[write] = byte;
                read += 1;
                write += 1;
            }
        }
    }
    Ok((write, read))
}

fn take_double_quoted(
    line: &mut [u8],
    mut write: usize,
    mut read: usize,
) -> Result<(usize, usize), UnbalancedQuotes> {
    loop {
        let byte = *line.get(read).ok_or(UnbalancedQuotes)?;
        let (unescaped, width) = match byte {
            b'"' => return close_quote(line, write, read),
            b'\\' if read + 1 < line.len() => unescape(&line[read + 1..]),
            _ => (byte, 0),
        };
        line[write] = unescaped;
        write += 1;
        read += 1 + width;
    }
}

fn take_single_quoted(
    line: &mut [u8],
    mut write: usize,
    mut read: usize,
) -> Result<(usize, usize), UnbalancedQuotes> {
    loop {
        let byte = *line.get(read).ok_or(UnbalancedQuotes)?;
        match byte {
            b'\'' => return close_quote(line, write, read),
            b'\\' if line.get(read + 1) == Some(&b'\'') => {
                line[write] = b'\'';
                read += 2;
            }
            _ => {
                line[write] = byte;
                read += 1;
            }
        }
        write += 1;
    }
}

fn close_quote(
    line: &[u8],
    write: usize,
    quote: usize,
) -> Result<(usize, usize), UnbalancedQuotes> {
    match line.get(quote + 1) {
        Some(&byte) if !is_space(byte) => Err(UnbalancedQuotes),
        _ => Ok((write, quote + 1)),
    }
}

/// The byte that an escape stands for, and how many bytes follow its backslash.
fn unescape(after_backslash: &[u8]) -> (u8, usize) {
    match *after_backslash {
        [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (hex_value(high) << 4 | hex_value(low), 3)
        }
        [b'n', ..] => (b'\n', 1),
        [b'r', ..] => (b'\r', 1),
        [b't', ..] => (b'\t', 1),
        [b'b', ..] => (0x08, 1),
        [b'a', ..] => (0x07, 1),
        [byte, ..] => (byte, 1),
        [] => (b'\\', 0),
    }
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// White space as C's `isspace` has it, which knows the vertical tab that Rust's does not.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
        let mut bytes = line.as_bytes().to_vec();
        let mut ranges = Vec::new();
        split_words(&mut bytes, &mut ranges)?;
        Ok(crate::Args::new(&bytes, &ranges).iter().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn splits_as_redis_does() {
        let cases: &[(&str, &[&[u8]])] = &[
            ("", &[]),
            (" \t\r\x0b\x0c ", &[]),
            ("PING", &[b"PING"]),
            ("  SET  a\tb  ", &[b"SET", b"a", b"b"]),
            (r#"ECHO "a\x41\n\"b""#, &[b"ECHO", b"aA\n\"b"]),
            (r"ECHO 'a\'b\n'", &[b"ECHO", b"a'b\\n"]),
            (r#"ECHO ab"c d""#, &[b"ECHO", b"abc d"]),
            (r#"ECHO """#, &[b"ECHO", b""]),
            (r#"ECHO "\xzz\q\xf""#, &[b"ECHO", b"xzzqxf"]),
            (r#"ECHO "\xFf\r\t\b\a\\""#, &[b"ECHO", b"\xff\r\t\x08\x07\\"]),
            ("ECHO a\x0bb", &[b"ECHO", b"a\x0bb"]),
            (r"a\nb", &[br"a\nb"]),
            ("a\0b", &[b"a\0b"]),
            ("\"a\"\x0bb", &[b"a", b"b"]),
        ];
        for (line, expected) in cases {
            assert_eq!(
                words(line).as_deref(),
                Ok(&expected.iter().map(|w| w.to_vec()).collect::<Vec<_>>()[..]),
                "{line:?}"
            );
        }
    }

    #[test]
    fn refuses_unbalanced_quotes() {
        for line in [
            r#"""#,
            r#"ECHO "abc"#,
            r#"ECHO "abc"d"#,
            r#"ECHO "\"#,
            r"ECHO 'a\\'b",
            "'",
            "'a'\"b\"",
        ] {
            assert_eq!(words(line), Err(UnbalancedQuotes), "{line:?}");
        }
    }
}
