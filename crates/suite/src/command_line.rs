//! A published command line of the load, and the same one scaled to this machine.
//!
//! What a line says stays unless it is of a size: numbers of keys shrink with the data set, threads
//! become connections of the threads that this machine has for the load, and the length is the
//! suite's. Repetitions (`-x`) are the suite's too: the first is its warm-up, more are its rounds.

use std::fmt;

/// Options that name keys, or distances between keys.
const KEY_OPTIONS: [&str; 4] = ["--key-maximum", "--key-minimum", "--key-stddev", "--key-median"];
/// Options whose meaning the suite has taken over.
const DROPPED: [&str; 6] = ["-x", "--run-count", "--out-file", "--cluster-mode", "-s", "-p"];
const LENGTH_OPTIONS: [&str; 3] = ["-n", "--requests", "--test-time"];

/// How long a load runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// Until each key was visited once.
    AllKeys,
    /// So many times the usual seconds of a test.
    Times(f64),
}

/// The machine's and the data set's side of scaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scaling {
    /// Keys of the data set where it is published.
    pub published_keys: u64,
    /// Keys of the data set here.
    pub keys: u64,
    /// Usual length of a test in seconds.
    pub seconds: f64,
    /// Threads that the load may use, at least 1.
    pub threads: usize,
    /// Connections here for each published one.
    pub connections_factor: usize,
}

/// Options and their values, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandLine {
    options: Vec<(String, Option<String>)>,
}

impl CommandLine {
    /// Takes a line apart; an option's value may follow `=` or a space.
    pub fn parse(line: &str) -> CommandLine {
        let mut options: Vec<(String, Option<String>)> = Vec::new();
        for word in line.split_whitespace() {
            match (word.split_once('='), options.last_mut()) {
                (Some((name, value)), _) if word.starts_with("--") => {
                    options.push((name.to_owned(), Some(value.to_owned())));
                }
                (_, Some((_, value @ None))) if !word.starts_with('-') => {
                    *value = Some(word.to_owned());
                }
                _ => options.push((word.to_owned(), None)),
            }
        }
        CommandLine { options }
    }

    /// The line at the scale of this machine.
    pub fn scaled(&self, scaling: &Scaling, length: Length) -> CommandLine {
        let mut line = self.clone();
        line.options.retain(|(name, _)| !DROPPED.contains(&name.as_str()));
        line.scale_keys(scaling);
        line.scale_connections(scaling);
        line.options.retain(|(name, _)| !LENGTH_OPTIONS.contains(&name.as_str()));
        match length {
            Length::AllKeys => line.set("-n", "allkeys"),
            Length::Times(times) => {
                let seconds = (times * scaling.seconds).ceil().max(1.0);
                line.set("--test-time", &format!("{seconds}"));
            }
        }
        if line.value("--hide-histogram").is_none() {
            line.options.push(("--hide-histogram".to_owned(), None));
        }
        line
    }

    /// The line with another seed, for keys other than those of its first run: else a warm-up would
    /// ask for the very keys that are measured next. A line that takes its seed from the time keeps
    /// it.
    pub fn seeded(mut self, seed: u64) -> CommandLine {
        if self.value("--randomize").is_none() {
            self.set("--seed", &seed.to_string());
        }
        self
    }

    fn scale_keys(&mut self, scaling: &Scaling) {
        let factor = scaling.keys as f64 / scaling.published_keys as f64;
        for (name, value) in &mut self.options {
            let number = value.as_ref().and_then(|value| value.parse::<f64>().ok());
            if let (true, Some(number)) = (KEY_OPTIONS.contains(&name.as_str()), number) {
                *value = Some(format!("{}", (number * factor).round().max(1.0)));
            }
        }
    }

    /// As many connections in all, on as many threads as there are for them.
    fn scale_connections(&mut self, scaling: &Scaling) {
        let count = |name| self.value(name).flatten().and_then(|value| value.parse().ok());
        let clients: usize = count("-c").unwrap_or(CLIENTS_DEFAULT);
        let published = clients * count("-t").unwrap_or(THREADS_DEFAULT);
        let connections = published * scaling.connections_factor;
        let mut threads = (1..=scaling.threads.max(1)).rev();
        let threads = threads.find(|threads| connections.is_multiple_of(*threads)).unwrap_or(1);
        self.set("-c", &(connections / threads).to_string());
        self.set("-t", &threads.to_string());
    }

    /// The option's value, if it is there and has one.
    pub fn value(&self, name: &str) -> Option<Option<&str>> {
        let found = self.options.iter().find(|(option, _)| option == name);
        found.map(|(_, value)| value.as_deref())
    }

    fn set(&mut self, name: &str, value: &str) {
        match self.options.iter_mut().find(|(option, _)| option == name) {
            Some((_, old)) => *old = Some(value.to_owned()),
            None => self.options.push((name.to_owned(), Some(value.to_owned()))),
        }
    }

    /// As arguments of a process.
    pub fn words(&self) -> Vec<String> {
        let words = self.options.iter().flat_map(|(name, value)| match value {
            Some(value) if name.starts_with("--") => vec![format!("{name}={value}")],
            Some(value) => vec![name.clone(), value.clone()],
            None => vec![name.clone()],
        });
        words.collect()
    }
}

/// memtier's defaults.
const CLIENTS_DEFAULT: usize = 50;
const THREADS_DEFAULT: usize = 4;

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALING: Scaling = Scaling {
        published_keys: 6_000_000_000,
        keys: 3_000_000,
        seconds: 15.0,
        threads: 1,
        connections_factor: 1,
    };

    fn scaled(line: &str, scaling: &Scaling, length: Length) -> String {
        CommandLine::parse(line).scaled(scaling, length).to_string()
    }

    #[test]
    fn published_lines_shrink_to_the_machine() {
        let all = Length::AllKeys;
        let cases = [
            (
                "--pipeline=8 -c 1 -t 64 --key-maximum=6000000000 -n allkeys --ratio=1:0",
                all,
                "--pipeline=8 -c 64 -t 1 --key-maximum=3000000 --ratio=1:0 -n allkeys \
                 --hide-histogram",
            ),
            (
                "-c 1 -t 64 --key-maximum=150000000 -n allkeys --ratio=3:7 -x 4",
                Length::Times(1.0),
                "-c 64 -t 1 --key-maximum=75000 --ratio=3:7 --test-time=15 --hide-histogram",
            ),
            (
                "-c 1 -t 8 --key-stddev=60000000 --distinct-client-seed --test-time=300 -x 5",
                Length::Times(0.5),
                "-c 8 -t 1 --key-stddev=30000 --distinct-client-seed --test-time=8 \
                 --hide-histogram",
            ),
            ("-d 500 --hide-histogram", all, "-d 500 --hide-histogram -c 200 -t 1 -n allkeys"),
        ];
        for (line, length, expected) in cases {
            assert_eq!(scaled(line, &SCALING, length), expected, "{line}");
        }
    }

    #[test]
    fn connections_share_the_threads_evenly() {
        for (threads, expected) in [(1, "-c 30 -t 1"), (4, "-c 10 -t 3"), (64, "-c 1 -t 30")] {
            let scaling = Scaling { threads, ..SCALING };
            let line = scaled("-c 5 -t 6", &scaling, Length::AllKeys);
            assert!(line.starts_with(expected), "{line}");
        }
    }

    #[test]
    fn another_seed_is_given_where_the_seed_is_fixed() {
        let seeded = |line| CommandLine::parse(line).seeded(7).to_string();
        assert_eq!(seeded("-c 1 --distinct-client-seed"), "-c 1 --distinct-client-seed --seed=7");
        assert_eq!(seeded("-c 1 --randomize"), "-c 1 --randomize");
    }

    #[test]
    fn a_line_keeps_its_order_and_values() {
        let line = CommandLine::parse("-p 1 --ratio 0:1 --randomize -d 5 --a=b=c");
        assert_eq!(line.to_string(), "-p 1 --ratio=0:1 --randomize -d 5 --a=b=c");
        assert_eq!(line.value("--ratio"), Some(Some("0:1")));
        assert_eq!(line.value("--randomize"), Some(None));
        assert_eq!(line.value("--none"), None);
    }
}
