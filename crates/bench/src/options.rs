//! The command line, as a person writes it. Names and meanings are memtier_benchmark's where it has
//! them, so that published command lines can be replayed; what is ours stands under its own heading.
//!
//! Parsing has no effects. Checks that need more than one option are in [`crate::plan`].

use crate::arguments::{Pattern, Patterns, Percentiles, Range, Ratio, Requests, SizeList};
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// What stands at the end of `--help`.
const AFTER_HELP: &str = "\
Closed and open loop: without --rate each connection waits for replies before it sends again (a
closed loop). A server that stalls then stops the load as well, so that a stall of half a second
delays one request a connection and no percentile shows it. With --rate requests fall due on
schedule whether or not replies come, and latency counts from when a request was due (an open loop):
a stall delays all that fell due meanwhile, and the percentiles show it.

Exit codes: 0 all went well; 1 error replies, wrong or missing values (--verify), lost connections,
or a load that was cut short (what was measured is printed and marked); 2 bad usage, a server that
cannot be reached, or a file that cannot be written.";

/// Loads a Redis-compatible server; takes memtier_benchmark's command lines.
#[derive(Debug, Parser)]
#[command(
    name = "kelvin bench run",
    version,
    args_override_self = true,
    disable_help_flag = true,
    after_help = AFTER_HELP
)]
struct Line {
    #[command(flatten)]
    options: Options,
    /// Print this help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// What to do to which server.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Host of the server.
    #[arg(short = 's', long, short_alias = 'h', alias = "host", default_value = "127.0.0.1")]
    pub server: String,
    /// Port of the server.
    #[arg(short = 'p', long, default_value_t = 6379)]
    pub port: u16,
    /// Unix socket to use in place of host and port.
    #[arg(short = 'S', long)]
    pub unix_socket: Option<PathBuf>,
    /// Version of the protocol; `redis` leaves it to the server, resp2 and resp3 say HELLO.
    #[arg(short = 'P', long, default_value = "redis")]
    pub protocol: Protocol,
    /// PASSWORD or USER:PASSWORD.
    #[arg(short = 'a', long)]
    pub authenticate: Option<String>,
    /// Select this database.
    #[arg(long)]
    pub select_db: Option<u32>,
    /// Speak TLS.
    #[arg(long)]
    pub tls: bool,
    /// With --tls: certificate of the client (PEM).
    #[arg(long, requires = "tls", requires = "key")]
    pub cert: Option<PathBuf>,
    /// With --tls: private key of the client (PEM).
    #[arg(long, requires = "tls", requires = "cert")]
    pub key: Option<PathBuf>,
    /// With --tls: authorities to trust (PEM); by default those that the machine trusts.
    #[arg(long, requires = "tls")]
    pub cacert: Option<PathBuf>,
    /// With --tls: do not check the server's certificate.
    #[arg(long, requires = "tls")]
    pub tls_skip_verify: bool,
    /// With --tls: name of the server to ask for, when it is not the host.
    #[arg(long, requires = "tls")]
    pub sni: Option<String>,
    /// Follow the slots of a cluster: one connection a node and client, MOVED and ASK are obeyed.
    #[arg(long)]
    pub cluster_mode: bool,

    /// Connections a thread.
    #[arg(short = 'c', long, default_value_t = 50, help_heading = "Load")]
    pub clients: usize,
    /// Threads.
    #[arg(short = 't', long, default_value_t = 4, help_heading = "Load")]
    pub threads: usize,
    /// Requests in flight on a connection.
    #[arg(long, default_value_t = 1, help_heading = "Load")]
    pub pipeline: usize,
    /// Requests a connection, or `allkeys` for as many as there are keys (with pattern P: in the
    /// connection's part). 10000 when --test-time is not given either.
    #[arg(short = 'n', long, help_heading = "Load")]
    pub requests: Option<Requests>,
    /// Run for so many seconds.
    #[arg(long, value_name = "SECONDS", conflicts_with = "requests", help_heading = "Load")]
    pub test_time: Option<f64>,
    /// Repeat the whole load so many times, with new connections.
    #[arg(short = 'x', long, default_value_t = 1, help_heading = "Load")]
    pub run_count: u32,
    /// SETs to GETs.
    #[arg(long, value_name = "SETS:GETS", default_value = "1:10", help_heading = "Load")]
    pub ratio: Ratio,
    /// Most requests a second of one connection; latency counts from when a request was sent.
    #[arg(long, value_name = "PER_SECOND", help_heading = "Load")]
    pub rate_limiting: Option<f64>,
    /// Connect anew after so many requests.
    #[arg(long, value_name = "REQUESTS", help_heading = "Load")]
    pub reconnect_interval: Option<u64>,
    /// Read up to so many keys at once, by MGET.
    #[arg(long, value_name = "KEYS", help_heading = "Load")]
    pub multi_key_get: Option<u32>,
    /// SETs to WAITs.
    #[arg(long, value_name = "SETS:WAITS", help_heading = "Load")]
    pub wait_ratio: Option<Ratio>,
    /// Replicas that a WAIT asks for, MIN-MAX.
    #[arg(long, value_name = "MIN-MAX", default_value = "1-1", help_heading = "Load")]
    pub num_slaves: Range,
    /// Milliseconds that a WAIT waits, MIN-MAX.
    #[arg(long, value_name = "MIN-MAX", default_value = "0-0", help_heading = "Load")]
    pub wait_timeout: Range,
    /// Send this command in place of SETs and GETs; `__key__` and `__data__` stand for a key and a
    /// value. May be given several times.
    #[arg(long, help_heading = "Load")]
    command: Vec<String>,
    /// How often the --command before it is sent in a row.
    #[arg(long, value_name = "COUNT", requires = "command", help_heading = "Load")]
    command_ratio: Vec<u32>,
    /// Pattern of the keys of the --command before it.
    #[arg(long, value_name = "PATTERN", requires = "command", help_heading = "Load")]
    command_key_pattern: Vec<Pattern>,
    /// The last three options, put together.
    #[arg(skip)]
    pub commands: Vec<CommandOption>,

    /// Size of a value in bytes.
    #[arg(short = 'd', long, default_value_t = 32, help_heading = "Values")]
    pub data_size: usize,
    /// Sizes of values, MIN-MAX, uniform; a key always has the same size.
    #[arg(long, value_name = "MIN-MAX", conflicts_with_all = ["data_size", "data_size_list"], help_heading = "Values")]
    pub data_size_range: Option<Range>,
    /// Sizes of values with weights; a key always has the same size.
    #[arg(
        long,
        value_name = "SIZE:WEIGHT,...",
        conflicts_with = "data_size",
        help_heading = "Values"
    )]
    pub data_size_list: Option<SizeList>,
    /// Values are random: they always are, each follows from its key.
    #[arg(short = 'R', long, help_heading = "Values")]
    pub random_data: bool,
    /// Give each key that is set a time to live, MIN-MAX seconds.
    #[arg(long, value_name = "MIN-MAX", help_heading = "Values")]
    pub expiry_range: Option<Range>,

    /// What stands before the number in a key.
    #[arg(long, default_value = "memtier-", help_heading = "Keys")]
    pub key_prefix: String,
    /// Smallest number in a key.
    #[arg(long, default_value_t = 0, help_heading = "Keys")]
    pub key_minimum: u64,
    /// Largest number in a key.
    #[arg(long, default_value_t = 10_000_000, help_heading = "Keys")]
    pub key_maximum: u64,
    /// How SETs and GETs choose keys: R random, S sequential, P sequential with the range divided
    /// among the connections, G Gaussian, Z Zipf.
    #[arg(long, value_name = "SET:GET", default_value = "R:R", help_heading = "Keys")]
    pub key_pattern: Patterns,
    /// Standard deviation of pattern G; by default a sixth of the range.
    #[arg(long, help_heading = "Keys")]
    pub key_stddev: Option<f64>,
    /// Centre of pattern G; by default the middle of the range.
    #[arg(long, help_heading = "Keys")]
    pub key_median: Option<f64>,
    /// Exponent of pattern Z.
    #[arg(long, default_value_t = 1.0, help_heading = "Keys")]
    pub key_zipf_exp: f64,
    /// A sequence of random keys of its own for each connection; without it all draw the same.
    #[arg(long, help_heading = "Keys")]
    pub distinct_client_seed: bool,
    /// Take the seed from the time.
    #[arg(long, conflicts_with = "seed", help_heading = "Keys")]
    pub randomize: bool,

    /// Write the result to this file in place of the standard output.
    #[arg(short = 'o', long, help_heading = "Results")]
    pub out_file: Option<PathBuf>,
    /// Write the result as JSON to this file.
    #[arg(long, help_heading = "Results")]
    pub json_out_file: Option<PathBuf>,
    /// Write the latencies as HDR histograms to files whose names begin so.
    #[arg(long, value_name = "PREFIX", help_heading = "Results")]
    pub hdr_file_prefix: Option<String>,
    /// Percentiles of latency to show.
    #[arg(long, value_name = "LIST", default_value = "50,99,99.9", help_heading = "Results")]
    pub print_percentiles: Percentiles,
    /// Leave out the distribution of latencies.
    #[arg(long, help_heading = "Results")]
    pub hide_histogram: bool,
    /// With --run-count: the result of each run too.
    #[arg(long, help_heading = "Results")]
    pub print_all_runs: bool,

    /// Send so many requests a second in all, on schedule whether or not replies come; latency
    /// counts from the scheduled time, so that stalls show (see below).
    #[arg(
        long,
        value_name = "PER_SECOND",
        conflicts_with = "rate_limiting",
        help_heading = "Beyond memtier"
    )]
    pub rate: Option<f64>,
    /// Load for so many seconds before anything is counted.
    #[arg(long, value_name = "SECONDS", help_heading = "Beyond memtier")]
    pub warm_up: Option<f64>,
    /// Check length and content of every value that is read; a missing key is then an error too.
    #[arg(long, help_heading = "Beyond memtier")]
    pub verify: bool,
    /// With --verify: values of older versions are right as well.
    #[arg(long, requires = "verify", help_heading = "Beyond memtier")]
    pub accept_older: bool,
    /// With --verify: keys may be missing.
    #[arg(long, requires = "verify", help_heading = "Beyond memtier")]
    pub allow_misses: bool,
    /// Which of the values of a key to write and to expect: two runs that differ here overwrite
    /// each other's values with different ones.
    #[arg(long, default_value_t = 0, help_heading = "Beyond memtier")]
    pub value_version: u32,
    /// Share of each value, from 0 to 1, that compresses away.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, help_heading = "Beyond memtier")]
    pub data_compressibility: f64,
    /// Give each key that is set so many seconds to live.
    #[arg(
        long,
        value_name = "SECONDS",
        conflicts_with = "expiry_range",
        help_heading = "Beyond memtier"
    )]
    pub expiry: Option<usize>,
    /// Spread the keys that patterns R, G and Z choose over the range by a fixed permutation, so
    /// that popular keys are not neighbours.
    #[arg(long, help_heading = "Beyond memtier")]
    pub key_scatter: bool,
    /// Send again only when all replies of a pipeline are in (as redis-benchmark does), rather than
    /// after each read (as memtier does).
    #[arg(long, help_heading = "Beyond memtier")]
    pub batch: bool,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1, help_heading = "Beyond memtier")]
    pub seed: u64,
}

/// Version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// What the server speaks to a client that says nothing.
    Redis,
    /// Version 2.
    Resp2,
    /// Version 3.
    Resp3,
}

/// A `--command` with what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOption {
    /// As it was given, with `__key__` and `__data__`.
    pub text: String,
    /// How often it is sent in a row.
    pub ratio: u32,
    /// How its keys are chosen.
    pub pattern: Pattern,
}

impl Options {
    /// Reads a command line; the first word is the name of the program.
    ///
    /// Errors: clap's, which also carries the text of `--help` and `--version`.
    pub fn parse<T>(words: impl IntoIterator<Item = T>) -> Result<Self, clap::Error>
    where
        T: Into<OsString> + Clone,
    {
        let matches = Line::command().try_get_matches_from(words)?;
        let mut options = Line::from_arg_matches(&matches)?.options;
        options.commands = parse_commands(&matches);
        Ok(options)
    }
}

/// Gives each ratio and pattern to the command that stands before it on the line.
fn parse_commands(matches: &ArgMatches) -> Vec<CommandOption> {
    fn placed<'a, T: Clone + Send + Sync + 'static>(
        matches: &'a ArgMatches,
        name: &str,
    ) -> Vec<(usize, &'a T)> {
        let places = matches.indices_of(name).into_iter().flatten();
        places.zip(matches.get_many::<T>(name).into_iter().flatten()).collect()
    }
    let texts = placed::<String>(matches, "command");
    let mut commands: Vec<CommandOption> = texts
        .iter()
        .map(|(_, text)| CommandOption {
            text: (*text).clone(),
            ratio: 1,
            pattern: Pattern::Random,
        })
        .collect();
    // The last command before a place; a ratio before all commands means the first.
    let owner = |place| texts.partition_point(|(text, _)| *text < place).saturating_sub(1);
    for (place, ratio) in placed::<u32>(matches, "command_ratio") {
        commands[owner(place)].ratio = *ratio;
    }
    for (place, pattern) in placed::<Pattern>(matches, "command_key_pattern") {
        commands[owner(place)].pattern = *pattern;
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Line::command().debug_assert();
    }

    #[test]
    fn ratios_and_patterns_belong_to_the_command_before_them() {
        let words = [
            "load",
            "--command",
            "SET __key__ 1",
            "--command=GET __key__",
            "--command-ratio=3",
            "--command-key-pattern",
            "G",
            "--command",
            "PING",
            "--command-ratio",
            "2",
        ];
        let commands = Options::parse(words).expect("options").commands;
        let command =
            |text: &str, ratio, pattern| CommandOption { text: text.to_owned(), ratio, pattern };
        let expected = [
            command("SET __key__ 1", 1, Pattern::Random),
            command("GET __key__", 3, Pattern::Gaussian),
            command("PING", 2, Pattern::Random),
        ];
        assert_eq!(commands, expected);
    }

    #[test]
    fn the_last_of_repeated_options_counts() {
        let options =
            Options::parse(["load", "-c", "3", "-h", "a", "--clients=7"]).expect("options");
        assert_eq!((options.clients, options.server.as_str()), (7, "a"));
    }
}
