//! The command line of `kelvin bench suite`. Parsing has no effects.

use std::path::PathBuf;

use clap::Parser;

/// Runs the published benchmarks of this field, scaled to this machine, and leaves their figures
/// beside the published ones in a folder.
///
/// It starts a server of its own unless --server names one. The RAM decides all sizes: the key
/// counts follow from it so that the profile of memory is the published one, and so do the lengths
/// of the tests. With 256mb the suite takes about ten minutes, with 1gb about forty.
#[derive(Debug, Clone, Parser)]
#[command(name = "kelvin bench suite", version)]
pub struct Options {
    /// RAM of the server (maxmemory): a number with kb, mb or gb. Defaults to 1gb; that of a
    /// running server is asked for.
    #[arg(long, value_parser = parse_bytes)]
    pub ram: Option<u64>,
    /// Flash for each byte of RAM.
    #[arg(long, default_value_t = 10.0)]
    pub ratio: f64,
    /// Run against this server, `HOST:PORT`. It is not restarted: a test that needs a server
    /// without flash is failed.
    #[arg(long, value_name = "HOST:PORT")]
    pub server: Option<String>,
    /// Let the suite delete all keys of --server; without it, it must be empty.
    #[arg(long, requires = "server")]
    pub flush: bool,
    /// Folder on the drive to measure, for the flash of the server. Defaults to the results'
    /// folder; with --server it only says which drive to watch.
    #[arg(long, value_name = "DIR")]
    pub flash_path: Option<PathBuf>,
    /// Folder for the results. Defaults to kelvin-suite-N with the first free N.
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Go on with the run in this folder: tests that are done stay.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["ram", "smoke"])]
    pub resume: Option<PathBuf>,
    /// Run only this test; may be given several times.
    #[arg(long, value_name = "ID")]
    pub only: Vec<String>,
    /// Measured runs of each test.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Tests of a second with 128mb: shows that all works, and nothing else.
    #[arg(long)]
    pub smoke: bool,
    /// Do not pin the server and the load to cores of their own.
    #[arg(long)]
    pub no_pin: bool,
    /// Show the tests and their command lines, and end.
    #[arg(long)]
    pub list: bool,
}

/// Bytes as Redis writes them: `1gb` is 2^30, `1g` is 10^9.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return Err("not a number with kb, mb or gb".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "not a number with kb, mb or gb".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_redis() {
        let cases =
            [("256mb", 256 << 20), ("1gb", 1 << 30), ("1GB", 1 << 30), ("5", 5), ("2k", 2000)];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "mb", "-1mb", "1.5gb", "1tb", "99999999999gb"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let parse = |line: &str| Options::try_parse_from(line.split(' '));
        assert!(parse("suite --ram 256mb --only fill --only get-max --rounds 3").is_ok());
        for line in
            ["suite --resume d --ram 1gb", "suite --flush", "suite --rounds 0", "suite --nosuch"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
