//! redis-server, as it is installed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ports that are tried: another may take one between its choice and its use.
const PORTS_MAX: usize = 20;

/// A running server with a folder of its own; both go when it is dropped.
pub struct Real {
    pub port: u16,
    pub folder: PathBuf,
    process: Child,
}

impl Real {
    /// Starts a server with these words on its command line besides.
    pub fn start(more: &[&str]) -> Self {
        Self::start_in(new_folder(), "--port", more)
    }

    /// Starts a server in `folder` that gets a port by `port_option`.
    pub fn start_in(folder: PathBuf, port_option: &str, more: &[&str]) -> Self {
        for _ in 0..PORTS_MAX {
            let port = free_port();
            let mut process = Command::new("redis-server")
                .args([port_option, &port.to_string()])
                .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
                .arg(&folder)
                .args(more)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-server is installed");
            // Its own word: on a port that was taken, somebody else would answer.
            let log = BufReader::new(process.stdout.take().expect("piped"));
            if log.lines().map_while(Result::ok).any(|line| line.contains("Ready to accept")) {
                return Self { port, folder, process };
            }
            process.wait().expect("a child can be waited for");
        }
        panic!("redis-server does not start with {more:?}");
    }

    /// What `redis-cli` prints for these words.
    pub fn cli(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(words)
            .output()
            .expect("redis-cli is installed");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A folder of its own.
pub fn new_folder() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("kelvin-bench-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    // A run that was killed may have left one of the same number.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A port that nobody listens on: a cluster node also takes the port 10,000 above.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        if port < 55_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}

/// Runs a program that must succeed.
pub fn run(program: &str, words: &[&str], folder: &Path) {
    let output = Command::new(program)
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}
