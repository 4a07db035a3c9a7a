//! MONITOR: every request, shown to those who ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use resp::Args;

use crate::limits::MONITOR_BYTES_MAX;
use crate::state::clients::Client;
use crate::state::clock::unix_us;
use crate::state::push::{Delivery, Push};
use crate::state::secrets::{REDACTED, secret_args};
use crate::state::server::Server;

/// Those who watch.
#[derive(Default)]
pub(crate) struct Monitors {
    count: AtomicUsize,
    clients: Mutex<Vec<Arc<Client>>>,
}

impl Monitors {
    /// Whether anybody watches. Cost: one load.
    #[inline]
    pub(crate) fn are_watching(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Starts to show requests to a client.
    pub(crate) fn add(&self, client: &Arc<Client>) {
        self.clients.lock().push(client.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        client.is_monitor.store(true, Ordering::Relaxed);
    }

    /// Ends it.
    pub(crate) fn remove(&self, client: &Client) {
        let mut clients = self.clients.lock();
        let before = clients.len();
        clients.retain(|other| other.id != client.id);
        self.count.fetch_sub(before - clients.len(), Ordering::Relaxed);
        client.is_monitor.store(false, Ordering::Relaxed);
    }

    /// Shows a request that has run on worker `from`. A client that falls too far behind is closed, as one
    /// that exceeds its output limit.
    #[cold]
    pub(crate) fn show(&self, server: &Server, from: &Client, db: u8, args: Args<'_>) {
        let source = match from.address.strip_suffix(":0") {
            Some(path) if from.is_unix_socket => format!("unix:{path}"),
            _ => from.address.clone(),
        };
        let size: usize = args.iter().map(<[u8]>::len).sum();
        let clients = self.clients.lock().clone();
        if size as u64 > MONITOR_BYTES_MAX {
            return clients.iter().for_each(|client| client.kill());
        }
        let line = Push::encoded(&line(unix_us(), db, &source, args));
        let mut delivery = Delivery::new(server, Some(from.worker));
        for client in &clients {
            if client.pushes.bytes() > MONITOR_BYTES_MAX {
                client.kill();
            }
            delivery.give(client, line.bytes(), || line.clone());
        }
    }
}

/// A request as a line, secrets left out.
fn line(now_us: u128, db: u8, source: &str, args: Args<'_>) -> Vec<u8> {
    let (seconds, micros) = (now_us / 1_000_000, now_us % 1_000_000);
    let mut line = format!("+{seconds}.{micros:06} [{db} {source}]").into_bytes();
    let secrets = secret_args(args);
    for (index, arg) in args.iter().enumerate() {
        line.extend_from_slice(b" \"");
        for &byte in if secrets.contains(&index) { REDACTED } else { arg } {
            match byte {
                b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
                b'\n' => line.extend_from_slice(b"\\n"),
                b'\r' => line.extend_from_slice(b"\\r"),
                b'\t' => line.extend_from_slice(b"\\t"),
                0x07 => line.extend_from_slice(b"\\a"),
                0x08 => line.extend_from_slice(b"\\b"),
                0x20..=0x7e => line.push(byte),
                _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            }
        }
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::ArgRange;

    #[test]
    fn lines_are_quoted_as_redis_quotes_them() {
        let buffer = b"set k\"\\\x00\n";
        let ranges = [ArgRange { start: 0, len: 3 }, ArgRange { start: 4, len: 5 }];
        let text = line(1_700_000_000_000_042, 3, "127.0.0.1:5", Args::new(buffer, &ranges));
        let expected = b"+1700000000.000042 [3 127.0.0.1:5] \"set\" \"k\\\"\\\\\\x00\\n\"\r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn lines_hold_no_passwords() {
        let ranges = [ArgRange { start: 0, len: 4 }, ArgRange { start: 5, len: 2 }];
        let text = line(0, 0, "unix:/s", Args::new(b"auth pw", &ranges));
        assert_eq!(text, b"+0.000000 [0 unix:/s] \"auth\" \"(redacted)\"\r\n");
    }
}
