//! Cases of the whole: names, values, texts of errors, files and command lines.

use std::path::{Path, PathBuf};

use command::Classes;

use super::*;

const NOTHING_TO_APPLY: fn(&[&'static OptionRow]) -> Result<(), ApplyError> = |_| Ok(());

fn set(config: &Config, words: &[&str]) -> Result<(), String> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    config
        .set(&words, ProtectedOptions::Refused, WaitForChange::Yes, &mut { NOTHING_TO_APPLY })
        .map_err(|error| error.to_string())
}

fn get(config: &Config, pattern: &str) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let found = config.get(&[pattern.as_bytes()]);
    found.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect()
}

fn value_of(config: &Config, name: &str) -> String {
    let found = get(config, name);
    assert_eq!(found.len(), 1, "{name}");
    found[0].1.clone()
}

/// A directory of its own for a test, gone when the test ends.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("kelvin-config-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn names_are_unique_and_documented() {
    let mut names: Vec<&str> = rows().flat_map(OptionRow::names).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for row in rows() {
        assert!(glob::is_literal(row.name.as_bytes()));
        assert!(row.doc.trim().ends_with('.'), "{}", row.name);
    }
}

#[test]
fn every_option_can_be_set_to_its_own_value() {
    let config = Config::default();
    for (name, value) in get(&config, "*") {
        let row = OptionRow::find(name.as_bytes()).unwrap();
        if row.flags == Flags::RUNTIME || row.flags == Flags::SENSITIVE {
            assert_eq!(set(&config, &[&name, &value]), Ok(()), "{name}");
            assert_eq!(value_of(&config, &name), value, "{name}");
        }
    }
}

#[test]
fn sets_values_and_shows_them() {
    for (name, text, shown) in [
        ("maxmemory", "1KB", "1024"),
        ("MAXMEMORY", "1k", "1000"),
        ("maxmemory", "2gb", "2147483648"),
        ("maxmemory", "007b", "7"),
        ("maxmemory-clients", "5%", "5%"),
        ("maxmemory-clients", "0%", "0"),
        ("maxmemory-clients", "10mb", "10485760"),
        ("maxmemory-policy", "AllKeys-LRU", "allkeys-lru"),
        ("hz", "1000", "500"),
        ("hz", "0", "1"),
        ("protected-mode", "NO", "no"),
        ("slowlog-log-slower-than", "-1", "-1"),
        ("bind", "127.0.0.1 -::1", "127.0.0.1 -::1"),
        ("bind", "", ""),
        ("save", "", ""),
        ("save", "3600 1 300 100", "3600 1 300 100"),
        ("requirepass", "a b", "a b"),
        ("notify-keyspace-events", "KEx", "xKE"),
        ("notify-keyspace-events", "KEA", "AKE"),
        ("notify-keyspace-events", "AKEmn", "AKEm"),
        ("notify-keyspace-events", "Kn", "nK"),
        ("notify-keyspace-events", "", ""),
        ("latency-tracking-info-percentiles", "50 99.999", "50 99.999"),
        ("latency-tracking-info-percentiles", "", ""),
        ("lua-time-limit", "7", "7"),
        (
            "client-output-buffer-limit",
            "",
            "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        ),
        (
            "client-output-buffer-limit",
            "Normal 1mb 2mb 60 replica 1 2 3",
            "normal 1048576 2097152 60 slave 1 2 3 pubsub 33554432 8388608 60",
        ),
        ("flash-path", "/mnt/a /mnt/b", "/mnt/a /mnt/b"),
        ("flash-path", "'/mnt/a b' /mnt/c", "\"/mnt/a b\" /mnt/c"),
        ("flash-path", "", ""),
        ("tier-promotion", "access", "access"),
        ("tier-promote-neighbours", "NEVER", "never"),
    ] {
        let config = Config::default();
        assert_eq!(set(&config, &[name, text]), Ok(()), "{name} {text}");
        assert_eq!(value_of(&config, name), shown, "{name} {text}");
    }
}

#[test]
fn refuses_values_with_a_reason() {
    const POLICIES: &str = "argument(s) must be one of the following: volatile-lru, volatile-lfu, \
        volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction";
    let many_addresses = "::1 ".repeat(17);
    for (name, text, reason) in [
        ("maxmemory", "x", "argument must be a memory value"),
        ("maxmemory", "1.5gb", "argument must be a memory value"),
        ("maxmemory", "1gbb", "argument must be a memory value"),
        ("maxmemory", "-1", "argument must be a memory value"),
        ("maxmemory", "5%", "argument must be a memory value"),
        ("maxmemory", "99999999999999gb", "argument must be a memory value"),
        ("maxmemory-clients", "101%", "percentage argument must be less or equal to 100"),
        ("maxmemory-clients", "%", "argument must be a memory or percent value"),
        ("maxmemory-policy", "foo", POLICIES),
        ("latency-tracking", "maybe", "argument must be 'yes' or 'no'"),
        ("appendonly", "maybe", "argument must be 'yes' or 'no'"),
        ("hz", "x", "argument couldn't be parsed into an integer"),
        ("timeout", "0 ", "argument couldn't be parsed into an integer"),
        ("timeout", "-1", "argument must be between 0 and 2147483647 inclusive"),
        ("port", "99999", "argument must be between 0 and 65535 inclusive"),
        ("maxclients", "0", "argument must be between 1 and 4294967295 inclusive"),
        (
            "proto-max-bulk-len",
            "1",
            "argument must be between 1048576 and 9223372036854775807 inclusive",
        ),
        ("save", "1", "Invalid save parameters"),
        ("save", "a b", "Invalid save parameters"),
        ("save", "0 1", "Invalid save parameters"),
        (
            "client-output-buffer-limit",
            "normal 0",
            "Wrong number of arguments in buffer limit configuration.",
        ),
        (
            "client-output-buffer-limit",
            "foo 0 0 0",
            "Invalid client class specified in buffer limit configuration.",
        ),
        (
            "client-output-buffer-limit",
            "normal 0 0 -1",
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        ),
        ("notify-keyspace-events", "Q", "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."),
        (
            "latency-tracking-info-percentiles",
            "a",
            "Invalid latency-tracking-info-percentiles parameters",
        ),
        (
            "latency-tracking-info-percentiles",
            "101",
            "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
        ),
        ("bind", &many_addresses, "Too many bind addresses specified."),
        ("databases", "5", "can't set immutable config"),
        ("daemonize", "x", "can't set immutable config"),
        ("dir", "/tmp", "can't set protected config"),
    ] {
        let config = Config::default();
        let before = value_of(&config, name);
        let expected =
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
        assert_eq!(set(&config, &[name, text]), Err(expected), "{name} {text}");
        assert_eq!(value_of(&config, name), before, "{name} {text}");
    }
}

#[test]
fn protected_options_need_permission() {
    let config = Config::default();
    let set_protected = |name: &str, value: &str| {
        let words = [name.as_bytes(), value.as_bytes()];
        config
            .set(&words, ProtectedOptions::Allowed, WaitForChange::Yes, &mut { NOTHING_TO_APPLY })
            .map_err(|error| error.to_string())
    };
    let failed = |name: &str, reason: &str| {
        Err(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"))
    };
    assert_eq!(set_protected("dir", "/"), Ok(()));
    assert_eq!(set_protected("dir", "/nonexistent"), failed("dir", "No such file or directory"));
    assert_eq!(set_protected("dir", "/etc/passwd"), failed("dir", "Not a directory"));
    assert_eq!(
        set_protected("dbfilename", "a/b"),
        failed("dbfilename", "dbfilename can't be a path, just a filename")
    );
    assert_eq!(value_of(&config, "dir"), "/");
}

#[test]
fn a_change_is_all_or_nothing() {
    let config = Config::default();
    let cases: &[(&[&str], &str)] = &[
        (
            &["maxmemory", "1", "foo", "2"],
            "ERR Unknown option or number of arguments for CONFIG SET - 'foo'",
        ),
        (
            &["hz", "20", "maxmemory", "x"],
            "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value",
        ),
        (
            &["hz", "20", "hz", "30"],
            "ERR CONFIG SET failed (possibly related to argument 'hz') - duplicate parameter",
        ),
        (&["hz", "20", "timeout"], "ERR syntax error"),
    ];
    let before = get(&config, "*");
    for (words, error) in cases {
        assert_eq!(set(&config, words), Err((*error).to_owned()));
        assert_eq!(get(&config, "*"), before);
    }
    assert_eq!(
        set(
            &config,
            &["hz", "20", "maxmemory", "5", "lua-time-limit", "1", "busy-reply-threshold", "2"]
        ),
        Ok(())
    );
    assert_eq!((config.hz.load(), config.maxmemory.load()), (20, 5));
    assert_eq!(config.inert.busy_reply_threshold.load(), 2);
}

/// The change that is under way may need slots that the transaction holds.
#[test]
fn a_transaction_does_not_wait_for_a_change_that_is_under_way() {
    let config = Config::default();
    let set = |wait, apply: &mut dyn FnMut() -> Result<(), ConfigError>| {
        let mut inner = Ok(());
        let words: [&[u8]; 2] = [b"port", b"1"];
        let result = config.set(&words, ProtectedOptions::Refused, wait, &mut |_| {
            inner = apply();
            Ok(())
        });
        (result, inner)
    };
    let nested = &mut || set(WaitForChange::No, &mut || Ok(())).0;
    assert_eq!(set(WaitForChange::Yes, nested), (Ok(()), Err(ConfigError::Busy)));
    assert_eq!(set(WaitForChange::No, &mut || Ok(())), (Ok(()), Ok(())));
}

#[test]
fn what_the_server_cannot_act_on_goes_back() {
    let config = Config::default();
    let mut applied = Vec::new();
    let result = config.set(
        &[b"port", b"1", b"requirepass", b"secret"],
        ProtectedOptions::Refused,
        WaitForChange::Yes,
        &mut |rows| {
            applied.push((rows.len(), config.port.load()));
            match config.port.load() {
                1 => Err(ApplyError {
                    name: "port",
                    reason: "Unable to listen on this port.".into(),
                }),
                _ => Ok(()),
            }
        },
    );
    assert_eq!(
        result.unwrap_err().to_string(),
        "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port."
    );
    assert_eq!(applied, [(2, 1), (2, 6379)]);
    assert_eq!(*config.requirepass.load(), b"");
}

#[test]
fn gets_options_by_pattern() {
    let config = Config::default();
    let names = |patterns: &[&str]| {
        let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
        config.get(&patterns).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(&["nothing"]), [""; 0]);
    assert_eq!(names(&["MaxMemory"]), ["maxmemory"]);
    assert_eq!(
        names(&["hash-max-*-entries"]),
        ["hash-max-listpack-entries", "hash-max-ziplist-entries"]
    );
    assert_eq!(names(&["lua*"]), ["lua-time-limit"]);
    assert_eq!(names(&["maxmemory", "maxmemory", "maxm?mory"]), ["maxmemory"]);
    assert_eq!(names(&["port", "bind"]), ["bind", "port"]);
}

#[test]
fn loads_files() {
    let directory = Directory::new("loads");
    let included = directory.write("10-more.conf", "hz 33\ntimeout 5\n");
    directory.write("20-more.conf", "hz 34\n");
    directory.write("more.txt", "hz 35\n");
    let path = directory.write(
        "kelvin.conf",
        &format!(
            "# comment\n\r\n  MAXMEMORY   10mb  \r\nmaxmemory 20mb\nloglevel \"verbose\"\n\
             requirepass 'a # b'\nbind 127.0.0.1 \"::1\"\n\
             client-output-buffer-limit normal 1 2 3\nclient-output-buffer-limit pubsub 4 5 6\n\
             save \"\"\ninclude {}\ninclude {}/*.conf.none\nflash-path \"/mnt/a b\" /mnt/c\n",
            included.display(),
            directory.0.display(),
        ),
    );
    let config = Config::default();
    config.load_file(&path).unwrap();
    assert_eq!(config.maxmemory.load(), 20 << 20);
    assert_eq!(config.loglevel.load(), LogLevel::Verbose);
    assert_eq!(*config.requirepass.load(), b"a # b");
    assert_eq!(value_of(&config, "bind"), "127.0.0.1 ::1");
    assert_eq!(
        value_of(&config, "client-output-buffer-limit"),
        "normal 1 2 3 slave 268435456 67108864 60 pubsub 4 5 6"
    );
    assert_eq!((config.hz.load(), config.timeout.load()), (33, 5));
    assert_eq!(*config.flash_path.load(), [b"/mnt/a b".to_vec(), b"/mnt/c".to_vec()]);
    config.load_text(b"flash-path \"/mnt/a b\"", 0).unwrap();
    assert_eq!(*config.flash_path.load(), [b"/mnt/a b".to_vec()], "one path alone");

    let pattern = directory
        .write("patterns.conf", &format!("include {}/*more.conf\n", directory.0.display()));
    config.load_file(&pattern).unwrap();
    assert_eq!(config.hz.load(), 34);
}

#[test]
fn says_which_line_is_wrong() {
    let directory = Directory::new("wrong");
    let this = directory.0.join("kelvin.conf");
    let includes_itself = format!("include {}", this.display());
    for (line, reason) in [
        ("port", "wrong number of arguments"),
        ("port a b", "wrong number of arguments"),
        ("foo bar", "Bad directive or wrong number of arguments"),
        ("port \"abc", "Unbalanced quotes in configuration line"),
        (
            "loglevel nope",
            "argument(s) must be one of the following: debug, verbose, notice, warning",
        ),
        ("maxmemory 1x", "argument must be a memory value"),
        (
            "client-output-buffer-limit normal 1",
            "Wrong number of arguments in buffer limit configuration.",
        ),
        ("save 1", "Invalid save parameters"),
        ("databases 0", "argument must be between 1 and 2147483647 inclusive"),
        ("dir /nonexistent", "No such file or directory"),
        ("include a b", "Bad directive or wrong number of arguments"),
        // What would promise something that cannot be kept.
        (
            "shutdown-on-sigterm save nosave",
            "shutdown options SAVE and NOSAVE can't be used simultaneously",
        ),
        ("replicaof 10.0.0.1 6379", "replication is not supported"),
        ("slaveof 10.0.0.1 6379", "replication is not supported"),
        ("replicaof a", "wrong number of arguments"),
        ("min-replicas-to-write 1", "replication is not supported"),
        ("cluster-enabled yes", "cluster mode is not supported"),
        ("tls-port 6380", "TLS is not supported"),
        ("aclfile /etc/redis/users.acl", "users besides 'default' are not supported"),
        ("loadmodule /usr/lib/a.so x", "modules are not supported"),
        ("rename-command CONFIG \"\"", "commands cannot be renamed or taken away"),
        ("rename-command CONFIG", "Bad directive or wrong number of arguments"),
        ("user", "Bad directive or wrong number of arguments"),
        ("user alice on nopass ~* &* +@all", ONE_USER),
        ("user default on #5e8848 ~* &* +@all", ONE_USER),
        ("user default on nopass ~* &* +@all -@dangerous", ONE_USER),
        ("user default off", ONE_USER),
    ] {
        let path = directory.write("kelvin.conf", &format!("hz 10\n{line}\n"));
        assert_eq!(
            Config::default().load_file(&path).unwrap_err().to_string(),
            format!(
                "*** FATAL CONFIG FILE ERROR ***\nReading the configuration file, at line 2\n>>> '{line}'\n{reason}"
            )
        );
    }
    let path = directory.write("kelvin.conf", &includes_itself);
    let error = Config::default().load_file(&path).unwrap_err().to_string();
    assert!(error.ends_with("too many files include each other"), "{error}");
    assert_eq!(
        Config::default().load_file(Path::new("/nonexistent/a.conf")).unwrap_err().to_string(),
        "Fatal error, can't open config file '/nonexistent/a.conf': No such file or directory"
    );
}

const ONE_USER: &str =
    "the only user is 'default', who may do everything, with the password of requirepass";

/// The options of the file that Redis 7.0 comes with, at the values that Debian gives them.
const REDIS_FILE: &str = include_str!("redis-options.txt");

#[test]
fn reads_the_file_that_redis_comes_with() {
    let directory = Directory::new("stock");
    let home = directory.0.display();
    let text = format!("{REDIS_FILE}dir {home}\nlogfile {home}/redis.log\n");
    check_stock_file(&directory.write("redis.conf", &text));
}

/// Debian's own file, where redis-server is installed and may be read by whoever runs the tests.
#[test]
fn reads_the_file_of_debian() {
    let path = Path::new("/etc/redis/redis.conf");
    let readable = |path: &Path| std::fs::File::open(path).is_ok();
    if readable(path) && readable(Path::new("/var/lib/redis")) {
        check_stock_file(path);
    }
}

fn check_stock_file(path: &Path) {
    let config = Config::default();
    config.load_file(path).unwrap();
    // As Debian's service starts it.
    assert_eq!(config.without_effect(), ["daemonize", "save (by default)"]);
    assert_eq!(value_of(&config, "daemonize"), "yes");
    assert_eq!(value_of(&config, "pidfile"), "/run/redis/redis-server.pid");
    assert_eq!(value_of(&config, "bind"), "127.0.0.1 -::1");
    assert_eq!(value_of(&config, "oom-score-adj-values"), "0 200 800");
    let service = to_bytes(&["--supervised", "systemd", "--daemonize", "no", "--save", ""]);
    config.load_arguments(&service).unwrap();
    assert!(config.without_effect().is_empty());
}

#[test]
fn reads_over_lines_that_change_nothing() {
    let directory = Directory::new("nothing");
    let path = directory.write(
        "kelvin.conf",
        "user default on nopass sanitize-payload ~* &* +@all\n\
         USER default ON nopass allkeys allcommands\nlua-replicate-commands yes\n\
         min-slaves-to-write 0\ntls-port 0\naclfile \"\"\nsave \"\"\n",
    );
    let config = Config::default();
    config.load_file(&path).unwrap();
    assert!(config.without_effect().is_empty());
}

#[test]
fn names_what_has_no_effect_once_it_asks_for_something() {
    for (arguments, expected) in [
        (&["--hz", "20", "--maxmemory", "1gb"] as &[&str], &[] as &[&str]),
        (&["--tls-port", "0"], &["save (by default)"]),
        (&["--tls-port", "0", "--save"], &[]),
        (&["--io-threads", "4", "--save", ""], &["io-threads"]),
        (
            &["--slave-priority", "1", "--replica-priority", "2", "--save", ""],
            &["replica-priority"],
        ),
    ] {
        let config = Config::default();
        config.load_arguments(&to_bytes(arguments)).unwrap();
        assert_eq!(config.without_effect(), expected, "{arguments:?}");
    }
}

#[test]
fn loads_command_lines() {
    let directory = Directory::new("arguments");
    let file = directory.write("kelvin.conf", "hz 20\nloglevel debug\n");
    let file = file.to_str().unwrap();
    type Case = (&'static [&'static str], &'static [(&'static str, &'static str)]);
    let file_cases = [
        (vec![file, "--hz", "30"], [("hz", "30"), ("loglevel", "debug")]),
        (vec![file, "loglevel", "verbose", "--hz 5"], [("loglevel", "verbose"), ("hz", "5")]),
    ];
    for (arguments, expected) in &file_cases {
        check_command_line(arguments, expected);
    }
    let cases: &[Case] = &[
        (&[], &[("port", "6379")]),
        (&["--port", "1", "--maxmemory", "1gb"], &[("port", "1"), ("maxmemory", "1073741824")]),
        (
            &["--maxmemory 700mb", "--maxmemory-policy 'volatile-lru'"],
            &[("maxmemory", "734003200"), ("maxmemory-policy", "volatile-lru")],
        ),
        (
            &["--proc-title-template", "--my--title", "--hz", "5"],
            &[("proc-title-template", "--my--title"), ("hz", "5")],
        ),
        (&["--save", "--hz", "5"], &[("save", ""), ("hz", "5")]),
        (&["--hz", "5", "--save"], &[("save", ""), ("hz", "5")]),
        (&["--save", "", "--hz", "5"], &[("save", ""), ("hz", "5")]),
        (
            &["--proc-title-template", "--save", "--save", ""],
            &[("proc-title-template", "--save"), ("save", "")],
        ),
        (&["--bind", "127.0.0.1", "::1", "--hz", "5"], &[("bind", "127.0.0.1 ::1"), ("hz", "5")]),
        (&["--flash-path", "/mnt/a", "/mnt/b"], &[("flash-path", "/mnt/a /mnt/b")]),
        (&["--flash-path", "/mnt/a /mnt/b"], &[("flash-path", "/mnt/a /mnt/b")]),
        (&["--flash-path", "'/mnt/a b'"], &[("flash-path", "\"/mnt/a b\"")]),
        (&["--bind", "127.0.0.1 ::1"], &[("bind", "127.0.0.1 ::1")]),
        (&["--requirepass", "two\nlines \"quoted\""], &[("requirepass", "two\nlines \"quoted\"")]),
    ];
    for (arguments, expected) in cases {
        check_command_line(arguments, expected);
    }
}

fn check_command_line(arguments: &[&str], expected: &[(&str, &str)]) {
    let config = Config::default();
    config.load_arguments(&to_bytes(arguments)).unwrap();
    for (name, value) in expected {
        assert_eq!(value_of(&config, name), *value, "{arguments:?}");
    }
}

#[test]
fn says_what_is_wrong_with_a_command_line() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["--invalid"],
            "*** FATAL COMMAND LINE ERROR ***\n>>> '--invalid'\nBad directive or wrong number of arguments",
        ),
        (&["--port"], "*** FATAL COMMAND LINE ERROR ***\n>>> '--port'\nwrong number of arguments"),
        (
            &["--port", "1", "2"],
            "*** FATAL COMMAND LINE ERROR ***\n>>> '--port \"1\" \"2\"'\nwrong number of arguments",
        ),
        (
            &["--port", "--loglevel", "verbose"],
            "*** FATAL COMMAND LINE ERROR ***\n>>> '--port \"--loglevel\" \"verbose\"'\nwrong number of arguments",
        ),
        (
            &["--port", "--bla", "--loglevel", "debug"],
            "*** FATAL COMMAND LINE ERROR ***\n>>> '--port \"--bla\"'\nargument couldn't be parsed into an integer",
        ),
        (
            &["--logfile", "--my", "--loglevel", "--bla"],
            "*** FATAL COMMAND LINE ERROR ***\n>>> '--loglevel \"--bla\"'\nargument(s) must be one of the following: debug, verbose, notice, warning",
        ),
    ];
    for (arguments, expected) in cases {
        let error = Config::default().load_arguments(&to_bytes(arguments)).unwrap_err().to_string();
        assert_eq!(&error, expected, "{arguments:?}");
    }
}

fn to_bytes(arguments: &[&str]) -> Vec<Vec<u8>> {
    arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect()
}

#[test]
fn rewrites_with_little_change() {
    let before = "# my comment\nport 7392\nmaxmemory 10mb\nmaxmemory   20mb\n\n# tail\n\
        loglevel \"verbose\"\nhash-max-ziplist-entries 21\nunknown option\n";
    let config = Config::default();
    for (name, value) in [
        ("port", "7392"),
        ("maxmemory", "5gb"),
        ("maxclients", "100"),
        ("notify-keyspace-events", "KEA"),
        ("hash-max-listpack-entries", "100"),
        ("requirepass", "a\"b"),
        ("client-output-buffer-limit", "normal 1 2 3"),
    ] {
        set(&config, &[name, value]).unwrap();
    }
    let after = "# my comment\nport 7392\nmaxmemory 5gb\n\n# tail\n\
        loglevel notice\nhash-max-listpack-entries 100\nunknown option\n\n\
        # Generated by CONFIG REWRITE\nrequirepass \"a\\\"b\"\nmaxclients 100\n\
        client-output-buffer-limit normal 1 2 3\n\
        client-output-buffer-limit slave 268435456 67108864 60\n\
        client-output-buffer-limit pubsub 33554432 8388608 60\n\
        notify-keyspace-events \"g$lshzxetdKE\"\n";
    assert_eq!(String::from_utf8(config.rewrite_text(before.as_bytes())).unwrap(), after);
    assert_eq!(String::from_utf8(config.rewrite_text(after.as_bytes())).unwrap(), after);
}

#[test]
fn a_name_for_the_process_shows_something() {
    let config = Config::default();
    for (template, valid) in [
        ("", false),
        (" ", false),
        ("{title}", false),
        ("{title} {server-mode}", false),
        ("{title}x", true),
        ("{listen-addr}", true),
        ("{port}", true),
        ("{{title}", true),
        ("{{", true),
        ("}", true),
        ("{", false),
        ("{}", false),
        ("{title", false),
        ("{TITLE}x", false),
        ("a{{b {config-file} {unixsocket} {tls-port}", true),
    ] {
        let result = set(&config, &["proc-title-template", template]);
        assert_eq!(result.is_ok(), valid, "{template}: {result:?}");
    }
}

#[test]
fn a_rewritten_file_reads_back() {
    let directory = Directory::new("rewrite");
    let path = directory.write("kelvin.conf", "hz 20\n");
    let config = Config::default();
    assert_eq!(config.rewrite(WaitForChange::Yes), Err(ConfigError::NoFile));
    config.load_file(&path).unwrap();
    for (name, value) in [
        ("bind", ""),
        ("requirepass", "\u{e9} \n'\""),
        ("maxmemory-clients", "7%"),
        ("notify-keyspace-events", "AKEnm"),
        ("latency-tracking-info-percentiles", ""),
        ("proc-title-template", "# not a comment"),
        ("tier-promotion", "access"),
        ("flash-path", "'/mnt/a b'"),
        ("slowlog-log-slower-than", "-1"),
    ] {
        set(&config, &[name, value]).unwrap();
    }
    config.rewrite(WaitForChange::Yes).unwrap();
    let read = Config::default();
    read.load_file(&path).unwrap();
    assert_eq!(get(&read, "*"), get(&config, "*"));
    // Nothing else is left behind.
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 1);
    std::fs::remove_dir_all(&directory.0).unwrap();
    assert_eq!(
        config.rewrite(WaitForChange::Yes).unwrap_err().to_string(),
        "ERR Rewriting config file: No such file or directory"
    );
}

#[test]
fn events_are_classes() {
    let config = Config::default();
    set(&config, &["notify-keyspace-events", "K$x"]).unwrap();
    let classes = Classes::BY_KEY.and(Classes::STRING).and(Classes::EXPIRED);
    assert_eq!(config.notify_keyspace_events.load(), classes);
}

#[test]
fn output_limits_answer_by_class() {
    let limits = Config::default().client_output_buffer_limit.load();
    let limit = limits.of(ClientClass::Replica);
    assert_eq!((limit.hard_bytes, limit.soft_bytes, limit.soft_seconds), (256 << 20, 64 << 20, 60));
    assert_eq!(limits.of(ClientClass::Normal), OutputLimit::default());
}

/// Options that do something here and that redis-server has too.
const SHARED_NAMES: &[&str] = &[
    "maxmemory",
    "maxmemory-clients",
    "maxmemory-policy",
    "hz",
    "timeout",
    "tcp-keepalive",
    "protected-mode",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "loglevel",
    "client-output-buffer-limit",
    "client-query-buffer-limit",
    "proto-max-bulk-len",
    "latency-tracking-info-percentiles",
    "maxmemory-samples",
    "databases",
    "unixsocketperm",
    "appendfsync",
    "appenddirname",
    "auto-aof-rewrite-percentage",
    "auto-aof-rewrite-min-size",
    "aof-load-truncated",
    "no-such-option",
];

/// Values for all of them, right for some and wrong for the others.
const SHARED_VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "00",
    "01",
    "+1",
    " 1",
    "1 ",
    "5",
    "10",
    "11",
    "64",
    "100",
    "101",
    "500",
    "501",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1b",
    "1k",
    "1K",
    "1kb",
    "2mb",
    "2m",
    "1gb",
    "1tb",
    "kb",
    "1 kb",
    "1.5mb",
    "5%",
    "100%",
    "101%",
    "%",
    "-5%",
    "05%",
    "yes",
    "no",
    "YES",
    "maybe",
    "debug",
    "notice",
    "allkeys-lru",
    "noeviction",
    "KEA",
    "Kg$",
    "xn",
    "nA",
    "mA",
    "Ex",
    "?",
    "50",
    "50 99",
    "50 99.9 100",
    "50 a",
    "nan",
    "inf",
    "0x10",
    "normal 1 2 3",
    "normal 1mb 2k 3 pubsub 4 5 6",
    "replica 1 2 3",
    "SLAVE 1 2 3",
    "master 1 2 3",
    "normal 1 2",
    "normal 1 2 x",
    "normal 1 2 -3",
    "normal x 2 3",
];

/// Options without effect of which redis-server takes other values, or not the same way: those that
/// promise something, those of later versions, and those that it must be able to act on.
const OWN_NAMES: &[&str] = &[
    "min-replicas-to-write",
    "oom-score-adj",
    "oom-score-adj-values",
    "proc-title-template",
    "repl-backlog-size",
    "save",
    "set-max-listpack-entries",
    "set-max-listpack-value",
];

fn shared_names() -> impl Iterator<Item = &'static str> {
    let is_shared = |name: &&str| !OWN_NAMES.contains(name) && !name.starts_with("tls-");
    let inert = inert::INERT.iter().map(|row| row.name).filter(is_shared);
    SHARED_NAMES.iter().copied().chain(inert)
}

/// What our table says of values that redis-server knows too must be what it says.
#[test]
fn agrees_with_redis_server() {
    let directory = Directory::new("redis");
    let mut redis = Redis::start(&directory.0);
    let mut differences = Vec::new();
    for name in shared_names() {
        for &value in SHARED_VALUES {
            if name == "maxmemory-clients" && value == "9223372036854775808" {
                // Redis takes so many bytes for a percentage.
                continue;
            }
            let config = Config::default();
            let before = redis.call(&["CONFIG", "GET", name]);
            let ours = match set(&config, &[name, value]) {
                Ok(()) => "+OK\r\n".to_owned(),
                Err(error) => format!("-{error}\r\n"),
            };
            let theirs = redis.call(&["CONFIG", "SET", name, value]);
            if ours != theirs {
                differences.push(format!("{name} {value:?}: {ours:?}, not {theirs:?}"));
            } else if ours == "+OK\r\n" {
                let shown = value_of(&config, name);
                let expected =
                    format!("*2\r\n${}\r\n{name}\r\n${}\r\n{shown}\r\n", name.len(), shown.len());
                assert_eq!(redis.call(&["CONFIG", "GET", name]), expected, "{name} {value:?}");
                redis.reset(name, &before);
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A redis-server of a test's own.
struct Redis {
    process: std::process::Child,
    socket: std::os::unix::net::UnixStream,
}

impl Redis {
    fn start(directory: &Path) -> Self {
        use std::io::BufRead;
        let path = directory.join("redis.sock");
        let mut process = std::process::Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("redis-server is part of the test setup");
        let log = std::io::BufReader::new(process.stdout.take().unwrap());
        let ready = log.lines().map_while(Result::ok).any(|line| line.contains("ready to accept"));
        assert!(ready, "redis-server did not start");
        let socket = std::os::unix::net::UnixStream::connect(path).unwrap();
        Self { process, socket }
    }

    /// The reply's bytes.
    fn call(&mut self, words: &[&str]) -> String {
        use std::io::{Read, Write};
        let mut request = resp::Reply::default();
        request.array(words.len());
        words.iter().for_each(|word| request.bulk(word.as_bytes()));
        self.socket.write_all(request.as_slice()).unwrap();
        let mut reply = Vec::new();
        let mut chunk = [0; 4096];
        while resp::parse_frame(&reply).unwrap().is_none() {
            let count = self.socket.read(&mut chunk).unwrap();
            assert_ne!(count, 0, "redis-server closed the connection");
            reply.extend_from_slice(&chunk[..count]);
        }
        String::from_utf8(reply).unwrap()
    }

    /// Sets an option back to what CONFIG GET had answered.
    fn reset(&mut self, name: &str, before: &str) {
        let Ok(Some((resp::Frame::Array(pair), _))) = resp::parse_frame(before.as_bytes()) else {
            panic!("no option {name}");
        };
        let resp::Frame::Bulk(value) = &pair[1] else { panic!("no value of {name}") };
        let value = std::str::from_utf8(value).unwrap();
        assert_eq!(self.call(&["CONFIG", "SET", name, value]), "+OK\r\n");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
