//! What those who look after the process are told: the file with its id, and systemd's socket.
//!
//! None of it keeps the server from running: what cannot be told is logged.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;

use crate::config::{Config, Supervised};

/// Told while it exists: the server serves. What was told is taken back when it goes.
pub(crate) struct Announcement {
    pid_file: Option<PathBuf>,
    notifies: bool,
}

impl Announcement {
    /// Tells that the server serves, as `pidfile` and `supervised` say.
    pub(crate) fn make(config: &Config) -> Announcement {
        let path = config.pidfile.load();
        let path = (!path.is_empty()).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(&path)));
        let pid_file = path.filter(|path| {
            let written = std::fs::write(path, format!("{}\n", std::process::id()));
            if let Err(error) = &written {
                tracing::warn!(%error, path = %path.display(), "cannot write the pidfile");
            }
            written.is_ok()
        });
        let notifies = match config.supervised.load() {
            Supervised::No => false,
            Supervised::Systemd | Supervised::Auto => notify("READY=1"),
            Supervised::Upstart => {
                tracing::warn!("upstart is not supported: nobody is told that the server is ready");
                false
            }
        };
        Announcement { pid_file, notifies }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if self.notifies {
            notify("STOPPING=1");
        }
        if let Some(path) = &self.pid_file
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::debug!(%error, path = %path.display(), "the pidfile was gone already");
        }
    }
}

/// Tells systemd a state (`sd_notify(3)`). False: it does not listen, or could not be told.
fn notify(state: &str) -> bool {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return false;
    };
    let told = send(name.as_bytes(), state);
    if let Err(error) = &told {
        tracing::warn!(%error, state, "cannot tell systemd");
    }
    told.is_ok()
}

/// A leading `@` stands for a name that is not in the file system.
fn send(name: &[u8], state: &str) -> std::io::Result<()> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_is_told_at_either_kind_of_address() {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("kelvin-notify-{id}"));
        // A run that was killed may have left one of the same number.
        let _ = std::fs::remove_file(&path);
        let name = format!("kelvin-notify-{id}");
        let by_path = UnixDatagram::bind(&path).expect("a socket");
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let by_name = UnixDatagram::bind_addr(&address).expect("a socket");
        let mut text = [0; 64];
        for (socket, name) in
            [(by_path, path.as_os_str().as_bytes()), (by_name, format!("@{name}").as_bytes())]
        {
            send(name, "READY=1").expect("somebody listens");
            let length = socket.recv(&mut text).expect("it has been sent");
            assert_eq!(&text[..length], b"READY=1");
        }
        std::fs::remove_file(&path).expect("the socket's file");
        assert!(send(path.as_os_str().as_bytes(), "READY=1").is_err());
    }
}
