//! Words as a configuration file has them, so that they read back the same.

/// `word` in double quotes, with escapes for what is not printable.
pub(crate) fn quote(word: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in word {
        match byte {
            b'"' | b'\\' => quoted.extend_from_slice(&[b'\\', *byte]),
            b'\n' => quoted.extend_from_slice(b"\\n"),
            b'\r' => quoted.extend_from_slice(b"\\r"),
            b'\t' => quoted.extend_from_slice(b"\\t"),
            0x07 => quoted.extend_from_slice(b"\\a"),
            0x08 => quoted.extend_from_slice(b"\\b"),
            b' '..=b'~' => quoted.push(*byte),
            _ => quoted.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}

/// `word` as it is if nothing in it needs quotes.
pub(super) fn quote_if_needed(word: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    if !word.is_empty() && word[0] != b'#' && word.iter().all(plain) {
        word.to_vec()
    } else {
        quote(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        for word in [&b""[..], b"plain", b"two words", b"\"'\\", b"#1", &all] {
            for mut line in [quote(word), quote_if_needed(word)] {
                let mut ranges = Vec::new();
                resp::split_words(&mut line, &mut ranges).unwrap();
                let read: Vec<_> = resp::Args::new(&line, &ranges).iter().collect();
                assert_eq!(read, [word]);
            }
        }
    }

    #[test]
    fn plain_words_stay_plain() {
        assert_eq!(quote_if_needed(b"/mnt/nvme0"), b"/mnt/nvme0");
        assert_eq!(quote_if_needed(b"a b"), b"\"a b\"");
    }
}
