//! Which arguments of a request are secrets, which SLOWLOG and MONITOR must not show.

use resp::Args;

use crate::config::{Flags, OptionRow};

/// What stands where a secret was.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// The indices of the arguments that are secrets.
pub(crate) fn secret_args(args: Args<'_>) -> Vec<usize> {
    let name = args[0].to_ascii_uppercase();
    match name.as_slice() {
        b"AUTH" => (1..args.len()).collect(),
        b"CONFIG" => (3..args.len()).filter(|at| is_sensitive(&args[at - 1])).collect(),
        b"HELLO" => {
            let auth = args.iter().position(|arg| arg.eq_ignore_ascii_case(b"AUTH"));
            let auth = auth.unwrap_or(args.len());
            (auth + 1..args.len().min(auth + 3)).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether the value of an option must not appear anywhere.
fn is_sensitive(name: &[u8]) -> bool {
    OptionRow::find(name).is_some_and(|row| row.flags.contains(Flags::SENSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_wherever_they_may_stand() {
        let cases: [(&str, &[usize]); 8] = [
            ("GET AUTH", &[]),
            ("auth pw", &[1]),
            ("AUTH user pw", &[1, 2]),
            ("CONFIG SET maxmemory 1gb requirepass pw", &[5]),
            ("config set RequirePass pw", &[3]),
            ("HELLO 3 SETNAME me", &[]),
            ("HELLO 3 auth user pw SETNAME me", &[3, 4]),
            ("HELLO 3 AUTH user", &[3]),
        ];
        for (line, expected) in cases {
            let mut buffer = line.as_bytes().to_vec();
            let mut ranges = Vec::new();
            resp::split_words(&mut buffer, &mut ranges).expect("balanced quotes");
            assert_eq!(secret_args(Args::new(&buffer, &ranges)), expected, "{line}");
        }
    }
}
