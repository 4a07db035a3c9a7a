//! redis-server, as it is installed.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// A running server with a folder of its own; both go when it is dropped.
pub struct Real {
    pub port: u16,
    pub folder: PathBuf,
    process: Child,
}

impl Real {
    /// Starts a server with these words on its command line besides.
    pub fn start(more: &[&str]) -> Self {
        let port = free_port();
        let folder =
            std::env::temp_dir().join(format!("kelvin-bench-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self::start_in(folder, port, &["--port", &port.to_string()], more)
    }

    /// Starts a server in `folder` whose plain or TLS port is `port`.
    pub fn start_in(folder: PathBuf, port: u16, ports: &[&str], more: &[&str]) -> Self {
        let process = Command::new("redis-server")
            .args(ports)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
            .arg(&folder)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let server = Self { port, folder, process };
        let deadline = Instant::now() + START_TIME_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "redis-server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
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

/// A port that nobody listens on, below those that the system hands out: a cluster node also takes
/// the port 10,000 above.
pub fn free_port() -> u16 {
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
