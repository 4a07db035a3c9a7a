//! What the fuzz target `config` runs: whatever a file, a command line or CONFIG SET says, it is refused or taken, and
//! what was taken comes back from the file that CONFIG REWRITE writes. Compiled with the feature `fuzzing` only.

use super::file::split_line;
use super::options::Config;
use super::{ProtectedOptions, WaitForChange, parse_memory};

/// One input of the fuzzer: lines of a file, the first byte of each says by which way it comes.
pub fn config(input: &[u8]) {
    let (config, mut text) = (Config::default(), Vec::new());
    for line in input.split(|&byte| byte == b'\n') {
        let Some((&way, line)) = line.split_first() else { continue };
        let Some(words) = split_line(line) else {
            assert!(config.load_text(line, 0).is_err() || line.trim_ascii().starts_with(b"#"));
            continue;
        };
        // Other files are none of the fuzzer's business.
        if words.iter().any(|word| word.to_ascii_lowercase().ends_with(b"include")) {
            continue;
        }
        match way % 3 {
            0 => {
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                let _ =
                    config.set(&words, ProtectedOptions::Allowed, WaitForChange::Yes, &mut |_| {
                        Ok(())
                    });
            }
            1 => {
                let argument = [b"--", line].concat();
                let _ = config.load_arguments(&[argument, b"--save".to_vec()]);
            }
            _ => {
                if config.load_text(line, 0).is_ok() {
                    text.extend_from_slice(line);
                    text.push(b'\n');
                }
            }
        }
        for word in &words {
            sizes(word);
        }
    }
    comes_back(&config, &text);
}

/// What is in force is what a file says that was brought up to date.
fn comes_back(config: &Config, text: &[u8]) {
    let rewritten = config.rewrite_text(text);
    let second = Config::default();
    if let Err(error) = second.load_text(&rewritten, 0) {
        panic!("{error} in {}", rewritten.escape_ascii());
    }
    for (one, two) in config.get(&[b"*"]).iter().zip(&second.get(&[b"*"])) {
        assert_eq!(one, two, "in {}", rewritten.escape_ascii());
    }
    let again = second.rewrite_text(&rewritten);
    assert!(again == rewritten, "{} {}", rewritten.escape_ascii(), again.escape_ascii());
}

/// A number of bytes is what wide arithmetic makes of it.
fn sizes(text: &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let Some(bytes) = parse_memory(text) else { return };
    let number = number.iter().fold(0u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let (base, powers): (u128, _) = match unit.to_ascii_lowercase().as_slice() {
        [] | [b'b'] => (1, 1),
        [letter] => (1_000, 1 + b"kmg".iter().position(|other| other == letter).expect("a unit")),
        [letter, _] => {
            (1_024, 1 + b"kmg".iter().position(|other| other == letter).expect("a unit"))
        }
        _ => panic!("no unit"),
    };
    assert_eq!(u128::from(bytes), number * base.pow(powers as u32));
}
