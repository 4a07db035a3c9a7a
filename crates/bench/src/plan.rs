//! The options, resolved: every default filled in and every contradiction refused, so that the
//! threads only read it.

use crate::LoadError;
use crate::arguments::{Pattern, Range, Ratio, Requests};
use crate::cluster::SlotMap;
use crate::command::{Command, Shape, words_of};
use crate::keys::{KeyRange, KeyShape};
use crate::options::Options;
use crate::target::Target;
use crate::values::{Sizes, VALUE_BYTES_MAX};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stdx::Random;

/// Most connections of one load, not counting those to further nodes of a cluster.
pub const CONNECTIONS_MAX: usize = 65_536;
/// Most requests in flight on a connection.
pub const PIPELINE_MAX: usize = 65_536;
/// Most versions of a value that are told apart when older ones are right too.
pub const VERSIONS_MAX: u32 = 64;
/// Longest prefix of a key in bytes.
pub const PREFIX_BYTES_MAX: usize = 1024;
/// Most kinds of request.
pub const COMMANDS_MAX: usize = 1024;
/// Most keys of a request.
pub const KEYS_MAX: u32 = 65_536;
/// Requests of a connection when nothing says when to stop.
const REQUESTS_DEFAULT: u64 = 10_000;

/// When a connection has sent enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Until {
    /// After so many requests on each connection.
    Requests(u64),
    /// After as many requests as there are keys in its part of the range.
    PartOfKeys,
    /// After so long.
    Time(Duration),
}

/// How hard replies are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checking {
    /// Only whether they are errors.
    Nothing,
    /// Length and content of values, down to this version of them.
    Values {
        /// The oldest version that is right.
        version_min: u32,
        /// Whether a missing key is a failure.
        misses_fail: bool,
    },
}

/// What every thread of a load does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The server, or one of the nodes.
    pub target: Target,
    /// The nodes and their slots, when the server turned out to be a cluster.
    pub cluster: Option<SlotMap>,
    /// Threads.
    pub threads: usize,
    /// Clients a thread: each has a connection, or one to each node.
    pub clients: usize,
    /// Requests in flight on a connection, at most.
    pub pipeline: usize,
    /// Whether a pipeline is sent again only when it has drained.
    pub batch: bool,
    /// How long to load before counting.
    pub warm_up: Duration,
    /// The end.
    pub until: Until,
    /// Kinds of request, in the order they are sent.
    pub commands: Vec<Command>,
    /// Labels of the rows of the result.
    pub labels: Vec<String>,
    /// The command that waits for replicas, and how often it comes for how many SETs.
    pub wait: Option<(usize, Ratio)>,
    /// Sizes of values in bytes.
    pub sizes: Sizes,
    /// Share of a value that compresses away.
    pub compressible: f64,
    /// Text before the number in a key.
    pub key_prefix: String,
    /// Numbers of keys.
    pub keys: KeyRange,
    /// Parameters of the distributions.
    pub shape: KeyShape,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether each connection draws its own keys.
    pub distinct_seeds: bool,
    /// Version of the values that are written.
    pub value_version: u32,
    /// How hard replies are looked at.
    pub checking: Checking,
    /// Requests a second in all, if on schedule.
    pub rate: Option<f64>,
    /// Most requests a second of a client.
    pub rate_limit: Option<f64>,
    /// Requests after which a connection is made anew.
    pub reconnect_interval: u64,
}

impl Plan {
    /// Checks `options` and fills in what they leave open; whether there is a cluster is not known
    /// yet.
    ///
    /// Errors: [`LoadError::Options`] with the option at fault; [`LoadError::File`] for a
    /// certificate that cannot be read.
    pub fn new(options: &Options) -> Result<Self, LoadError> {
        check_alone(options)?;
        let keys = KeyRange::new(options.key_minimum, options.key_maximum)
            .ok_or_else(|| refuse("--key-maximum is below --key-minimum, or the range too wide"))?;
        let sizes = plan_sizes(options);
        let (commands, labels) = plan_commands(options, &sizes)?;
        let plan = Self {
            target: Target::new(options)?,
            cluster: None,
            threads: options.threads,
            clients: options.clients,
            pipeline: options.pipeline,
            batch: options.batch,
            warm_up: seconds(options.warm_up.unwrap_or(0.0), "--warm-up is not a time")?,
            until: plan_until(options, &commands, keys)?,
            wait: options.wait_ratio.filter(|ratio| ratio.others > 0).map(|ratio| (2, ratio)),
            commands,
            labels,
            sizes,
            compressible: options.data_compressibility,
            key_prefix: options.key_prefix.clone(),
            keys,
            shape: KeyShape {
                median: options.key_median.unwrap_or_else(|| keys.middle()),
                stddev: options.key_stddev.unwrap_or(keys.count() as f64 / 6.0),
                zipf_exponent: options.key_zipf_exp,
                scatter: options.key_scatter,
            },
            seed: if options.randomize { seed_from_time() } else { options.seed },
            distinct_seeds: options.distinct_client_seed,
            value_version: options.value_version,
            checking: plan_checking(options),
            rate: options.rate,
            rate_limit: options.rate_limiting,
            reconnect_interval: options.reconnect_interval.unwrap_or(u64::MAX),
        };
        plan.check()?;
        Ok(plan)
    }

    /// Clients of all threads.
    pub fn connections(&self) -> usize {
        self.threads * self.clients
    }

    /// Requests of client `index`, when they are counted.
    pub fn requests(&self, index: u64) -> Option<u64> {
        match self.until {
            Until::Time(_) => None,
            Until::Requests(count) => Some(count),
            Until::PartOfKeys => Some(self.keys.part(index, self.connections() as u64).count()),
        }
    }

    /// The seed of client `index` for one of its uses. What is drawn by it has nothing to do with what another gives: a
    /// multiple of the generator's own step would begin the same numbers, one later for each seed.
    pub fn seed_of(&self, index: u64, usage: u64) -> u64 {
        let client = if self.distinct_seeds { index + 1 } else { 0 };
        let seed = Random::new(self.seed).next_u64() ^ (client << 16 | usage);
        Random::new(seed).next_u64()
    }

    /// Checks what needs more than one option.
    fn check(&self) -> Result<(), LoadError> {
        let limits = [
            (
                self.threads.saturating_mul(self.clients) > CONNECTIONS_MAX,
                "too many connections: -t times -c is at most 65536",
            ),
            (self.sizes.max() > VALUE_BYTES_MAX, "values are at most 512 MB"),
            (
                self.versions() > VERSIONS_MAX,
                "--accept-older tells 64 versions apart: --value-version is at most 63",
            ),
            (
                !(self.shape.stddev.is_finite() && self.shape.stddev > 0.0),
                "--key-stddev must be above 0",
            ),
            (
                !self.keys.holds(self.shape.median),
                "--key-median must be between --key-minimum and --key-maximum",
            ),
            (
                self.keys.count() < self.connections() as u64
                    && self
                        .commands
                        .iter()
                        .any(|command| command.ratio > 0 && command.pattern == Pattern::Parallel),
                "pattern P needs at least one key a connection",
            ),
            (
                self.commands.iter().map(|command| u64::from(command.ratio)).sum::<u64>() == 0,
                "the ratios leave nothing to send",
            ),
        ];
        first_broken(&limits)
    }

    /// How many versions of a value are right.
    fn versions(&self) -> u32 {
        match self.checking {
            Checking::Nothing => 1,
            Checking::Values { version_min, .. } => {
                (self.value_version - version_min).saturating_add(1)
            }
        }
    }
}

/// Checks options that do not depend on what others leave open.
fn check_alone(options: &Options) -> Result<(), LoadError> {
    let positive = |number: Option<f64>| number.is_none_or(|n| n.is_finite() && n > 0.0);
    let own = !options.commands.is_empty();
    let many = options.multi_key_get.unwrap_or(0) > 1;
    let limits = [
        (options.threads == 0 || options.clients == 0, "-t and -c must be at least 1"),
        (options.run_count == 0, "--run-count must be at least 1"),
        (
            options.pipeline == 0 || options.pipeline > PIPELINE_MAX,
            "--pipeline must be from 1 to 65536",
        ),
        (!positive(options.test_time), "--test-time must be above 0"),
        (!positive(options.rate), "--rate must be above 0"),
        (!positive(options.rate_limiting), "--rate-limiting must be above 0"),
        (options.rate.is_some() && options.batch, "--rate and --batch exclude each other"),
        (options.reconnect_interval == Some(0), "--reconnect-interval must be at least 1"),
        (options.key_prefix.len() > PREFIX_BYTES_MAX, "--key-prefix is at most 1024 bytes"),
        (options.expiry == Some(0), "--expiry must be at least 1"),
        (
            options.expiry_range.is_some_and(|range| range.min == 0),
            "--expiry-range must begin at 1 or above",
        ),
        (
            !(0.0..=1.0).contains(&options.data_compressibility),
            "--data-compressibility must be from 0 to 1",
        ),
        (
            !(options.key_zipf_exp > 0.0 && options.key_zipf_exp <= 5.0),
            "--key-zipf-exp must be above 0 and at most 5",
        ),
        (options.commands.len() > COMMANDS_MAX, "--command may be given 1024 times"),
        (options.multi_key_get > Some(KEYS_MAX), "--multi-key-get is at most 65536"),
        (own && many, "--command and --multi-key-get exclude each other"),
        (own && options.wait_ratio.is_some(), "--command and --wait-ratio exclude each other"),
        (own && options.verify, "--verify checks GETs only, not --command"),
        (many && options.verify, "--verify checks GETs only, not --multi-key-get"),
        (
            options.wait_ratio.is_some_and(|ratio| ratio.sets == 0),
            "--wait-ratio needs at least one SET",
        ),
        (
            options.tls && options.unix_socket.is_some(),
            "--tls and --unix-socket exclude each other",
        ),
        (
            options.cluster_mode && options.unix_socket.is_some(),
            "--cluster-mode and --unix-socket exclude each other",
        ),
        (options.cluster_mode && many, "--cluster-mode and --multi-key-get exclude each other"),
        (
            options.cluster_mode && options.select_db.unwrap_or(0) > 0,
            "--cluster-mode has database 0 only",
        ),
    ];
    first_broken(&limits)
}

fn first_broken(limits: &[(bool, &str)]) -> Result<(), LoadError> {
    match limits.iter().find(|(broken, _)| *broken) {
        Some((_, text)) => Err(refuse(text)),
        None => Ok(()),
    }
}

fn plan_sizes(options: &Options) -> Sizes {
    match (&options.data_size_list, options.data_size_range) {
        (Some(list), _) => Sizes::List(list.clone()),
        (None, Some(range)) => Sizes::Range(range),
        (None, None) => Sizes::Range(Range::only(options.data_size)),
    }
}

/// The commands, and the labels of the rows that they are counted in.
fn plan_commands(
    options: &Options,
    sizes: &Sizes,
) -> Result<(Vec<Command>, Vec<String>), LoadError> {
    let shape = Shape { key_prefix: &options.key_prefix, sizes };
    if options.commands.is_empty() {
        let expiry = options.expiry_range.or(options.expiry.map(Range::only));
        let get = match options.multi_key_get {
            Some(keys_max @ 1..) => Command::multi_get(shape, keys_max),
            _ => Command::get(shape),
        };
        let commands = vec![
            Command::set(shape, expiry).taking_turns(options.ratio.sets, options.key_pattern.set),
            get.taking_turns(options.ratio.others, options.key_pattern.get),
            // How often this one comes is told by the ratio of WAITs.
            Command::wait(options.num_slaves, options.wait_timeout)
                .taking_turns(0, Pattern::Random),
        ];
        return Ok((commands, ["Sets", "Gets", "Waits"].map(str::to_owned).to_vec()));
    }
    let (mut commands, mut labels) = (Vec::new(), Vec::<String>::new());
    for option in &options.commands {
        let label = label_of(&words_of(&option.text)?[0]);
        let row = labels.iter().position(|known| *known == label).unwrap_or(labels.len());
        if row == labels.len() {
            labels.push(label);
        }
        let command = Command::other(shape, option, row)?;
        if options.cluster_mode && command.key_count() > 1 {
            return Err(refuse("with --cluster-mode a --command has one __key__ at most"));
        }
        commands.push(command);
    }
    Ok((commands, labels))
}

/// The label of a command's row: `Hsets` for HSET.
fn label_of(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first
        .into_iter()
        .chain(letters.map(|letter| letter.to_ascii_lowercase()))
        .chain(['s'])
        .collect()
}

/// The end; all keys are divided among the connections when each walks its part of them.
fn plan_until(options: &Options, commands: &[Command], keys: KeyRange) -> Result<Until, LoadError> {
    let divided = commands
        .iter()
        .filter(|command| command.ratio > 0)
        .all(|command| command.pattern == Pattern::Parallel);
    match (options.requests, options.test_time) {
        (Some(Requests::AllKeys), _) if divided => Ok(Until::PartOfKeys),
        (Some(Requests::AllKeys), _) => Ok(Until::Requests(keys.count())),
        (Some(Requests::Count(count)), _) => Ok(Until::Requests(count)),
        (None, Some(time)) => seconds(time, "--test-time is not a time").map(Until::Time),
        (None, None) => Ok(Until::Requests(REQUESTS_DEFAULT)),
    }
}

fn plan_checking(options: &Options) -> Checking {
    if !options.verify {
        return Checking::Nothing;
    }
    Checking::Values {
        version_min: if options.accept_older { 0 } else { options.value_version },
        misses_fail: !options.allow_misses,
    }
}

fn seconds(seconds: f64, complaint: &str) -> Result<Duration, LoadError> {
    Duration::try_from_secs_f64(seconds).map_err(|_| refuse(complaint))
}

fn seed_from_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

fn refuse(text: &str) -> LoadError {
    LoadError::Options(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        let options = Options::parse(words).map_err(|error| error.to_string())?;
        Plan::new(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn memtier_defaults_are_filled_in() {
        let plan = plan("--key-minimum 100 --key-maximum 699").expect("a plan");
        assert_eq!(plan.shape.stddev, 100.0);
        assert_eq!(plan.shape.median, 399.5);
        assert_eq!(plan.checking, Checking::Nothing);
        assert_eq!(plan.connections(), 200);
        assert_eq!(plan.requests(0), Some(10_000));
    }

    #[test]
    fn all_keys_are_divided_only_when_each_connection_has_its_part() {
        let range = "-n allkeys -c 2 -t 2 --key-minimum 1 --key-maximum 1000";
        let cases = [
            ("--key-pattern P:P", 250),
            ("--key-pattern P:R --ratio 1:0", 250),
            ("--key-pattern P:R", 1000),
            ("--key-pattern G:G", 1000),
            ("--key-pattern S:S", 1000),
        ];
        for (line, requests) in cases {
            let plan = plan(&format!("{range} {line}")).expect("a plan");
            assert_eq!(plan.requests(3), Some(requests), "{line}");
        }
    }

    #[test]
    fn seeds_differ_between_clients_only_on_demand() {
        let same = plan("").expect("a plan");
        assert_eq!(same.seed_of(1, 2), same.seed_of(9, 2));
        assert_ne!(same.seed_of(1, 2), same.seed_of(1, 3));
        let distinct = plan("--distinct-client-seed").expect("a plan");
        assert_ne!(distinct.seed_of(1, 2), distinct.seed_of(9, 2));
        let random = plan("--randomize").expect("a plan");
        assert_ne!(random.seed, same.seed);
    }

    #[test]
    fn seeds_next_to_each_other_draw_other_numbers() {
        let drawn = |seed: u64| {
            let plan = plan(&format!("--seed {seed} --distinct-client-seed")).expect("a plan");
            let numbers = |client| {
                let mut random = Random::new(plan.seed_of(client, 2));
                (0..1000).map(move |_| random.next_u64())
            };
            (0..4).flat_map(numbers).collect::<std::collections::HashSet<u64>>()
        };
        let (one, next) = (drawn(7), drawn(8));
        assert_eq!(one.len(), 4000);
        assert_eq!(one.intersection(&next).count(), 0);
    }

    #[test]
    fn rows_of_commands_are_named_after_them() {
        let words = ["load", "--command", "hset a b 1", "--command=PING", "--command=HSET a c 1"];
        let plan = Plan::new(&Options::parse(words).expect("options")).expect("a plan");
        assert_eq!(plan.labels, ["Hsets", "Pings"]);
        let rows: Vec<usize> = plan.commands.iter().map(|command| command.row).collect();
        assert_eq!(rows, [0, 1, 0]);
    }

    #[test]
    fn what_contradicts_is_refused() {
        let lines = [
            "-n 1 --test-time 1",
            "--key-minimum 5 --key-maximum 4",
            "-t 0",
            "-c 0",
            "-t 1000 -c 1000",
            "-x 0",
            "--pipeline 0",
            "--pipeline 65537",
            "--rate 0",
            "--rate 10 --batch",
            "--rate 10 --rate-limiting 5",
            "--rate-limiting 0",
            "--reconnect-interval 0",
            "--key-zipf-exp 0",
            "--key-stddev 0",
            "--key-pattern P:P --key-maximum 10",
            "-d 10 --data-size-range 1-2",
            "--data-size-list 1:1 --data-size-range 1-2",
            "-d 600000000",
            "--data-compressibility 1.5",
            "--data-compressibility NaN",
            "--key-median 5 --key-minimum 6",
            "--accept-older",
            "--test-time -1",
            "--test-time 0",
            "--test-time x",
            "--warm-up -1",
            "--expiry 0",
            "--expiry-range 0-5",
            "--expiry 1 --expiry-range 1-5",
            "--command PING --verify",
            "--command PING --wait-ratio 1:1",
            "--command PING --multi-key-get 2",
            "--command PING --command-ratio 0",
            "--command PING --command-key-pattern X",
            "--command-ratio 1",
            "--command __key____key__",
            "--verify --multi-key-get 2",
            "--wait-ratio 0:1",
            "--cluster-mode --unix-socket a",
            "--cluster-mode --select-db 1",
            "--cluster-mode --multi-key-get 3",
            "--tls --unix-socket a",
            "--cert a",
            "--tls --cert a",
            "--tls --cacert /nonexistent",
            "--protocol memcache_text",
            "--randomize --seed 5",
            "--print-percentiles 0",
            "--no-such-flag",
            "word",
        ];
        for line in lines {
            let error = plan(line).expect_err(line);
            assert!(!error.trim().is_empty(), "{line}");
        }
    }
}
