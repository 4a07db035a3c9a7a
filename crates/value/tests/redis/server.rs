//! A redis-server of a test's own, on a Unix socket, gone when the test ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use resp::{Frame, Reply, parse_frame};

/// The server, with one connection to it.
pub struct Redis {
    directory: PathBuf,
    process: Child,
    socket: UnixStream,
    received: Vec<u8>,
}

impl Redis {
    /// Starts a server. Panics if there is none: it is part of the test setup.
    pub fn start(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("kelvin-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the socket");
        let path = directory.join("redis.sock");
        let mut process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--zset-max-listpack-entries", "0", "--unixsocket"])
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server is part of the test setup");
        let log = BufReader::new(process.stdout.take().expect("invariant: it is piped"));
        let ready = log.lines().map_while(Result::ok).any(|line| line.contains("ready to accept"));
        assert!(ready, "redis-server did not start");
        let socket = UnixStream::connect(path).expect("a server that is ready");
        Self { directory, process, socket, received: Vec::new() }
    }

    /// Sends all requests at once and returns their replies.
    pub fn call_all(&mut self, requests: &[Vec<Vec<u8>>]) -> Vec<Frame> {
        let mut output = Reply::default();
        for request in requests {
            output.array(request.len());
            request.iter().for_each(|word| output.bulk(word));
        }
        self.socket.write_all(output.as_slice()).expect("a server that reads");
        requests.iter().map(|_| self.receive()).collect()
    }

    fn receive(&mut self) -> Frame {
        let mut chunk = [0; 1 << 16];
        loop {
            if let Some((frame, consumed)) = parse_frame(&self.received).expect("a reply") {
                self.received.drain(..consumed);
                return frame;
            }
            let count = self.socket.read(&mut chunk).expect("a server that writes");
            assert_ne!(count, 0, "redis-server closed the connection");
            self.received.extend_from_slice(&chunk[..count]);
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
