//! Listening sockets: who may come in, and which worker serves them.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::net::SendFlags;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::Sender;

use crate::state::clients::Client;
use crate::state::clock::unix_ms;
use crate::state::server::Server;

/// Pause after a failed accept (out of file descriptors): the queue waits, nobody spins.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
const PROTECTED: &str = concat!(
    "-DENIED Kelvin runs in protected mode: it has no password and accepts connections from this ",
    "machine alone. To connect from elsewhere, do one of these: 1) set a password with ",
    "'CONFIG SET requirepass <password>' or the option 'requirepass'; 2) turn protected mode off ",
    "with 'CONFIG SET protected-mode no', on this machine, when nobody else can reach the port; ",
    "3) start it with '--protected-mode no'. Connections are then accepted from outside.\r\n"
);

/// A connection on its way to its worker.
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    /// Registered already, so that it counts from the moment it is admitted.
    pub(crate) client: Arc<Client>,
}

/// Everything the server listens on.
pub(crate) struct Listeners {
    tcp: Vec<TcpListener>,
    unix: Option<UnixListener>,
}

impl Listeners {
    /// Binds the addresses of the options. Must run inside a runtime.
    ///
    /// Errors: an address is taken or unknown. An address written with a leading `-` may be
    /// missing on this machine.
    pub(crate) fn bind(server: &Server) -> anyhow::Result<Listeners> {
        let port = server.config.port.load() as u16;
        let backlog = server.config.tcp_backlog.load() as i32;
        let mut tcp: Vec<TcpListener> = Vec::new();
        if port != 0 || server.config.unixsocket.load().is_empty() {
            for address in server.config.bind.load().iter() {
                let address = String::from_utf8_lossy(address).into_owned();
                let (name, optional) = match address.strip_prefix('-') {
                    Some(name) => (name, true),
                    None => (address.as_str(), false),
                };
                // Port 0 (choose one) must give all addresses the same port.
                let chosen = tcp.first().and_then(|first| first.local_addr().ok());
                let port = chosen.map_or(port, |address| address.port());
                match bind_tcp(name, port, backlog) {
                    Ok(listener) => tcp.push(listener),
                    Err(error) if optional => tracing::debug!(%error, name, "not listening"),
                    Err(error) => {
                        return Err(error)
                            .with_context(|| format!("cannot listen on {name} port {port}"));
                    }
                }
            }
            if tcp.is_empty() {
                bail!("none of the addresses of 'bind' exists on this machine");
            }
        }
        if let Some(Ok(address)) = tcp.first().map(TcpListener::local_addr) {
            server.tcp_port.store(u64::from(address.port()), Ordering::Relaxed);
        }
        Ok(Listeners { tcp, unix: bind_unix(server)? })
    }

    /// Accepts connections for as long as the runtime is there.
    pub(crate) fn accept(self, server: &Arc<Server>, workers: &[Sender<Accepted>]) {
        for listener in self.tcp {
            tokio::spawn(accept_tcp(listener, server.clone(), workers.to_vec()));
        }
        if let Some(listener) = self.unix {
            tokio::spawn(accept_unix(listener, server.clone(), workers.to_vec()));
        }
    }
}

fn bind_tcp(name: &str, port: u16, backlog: i32) -> io::Result<TcpListener> {
    let address = match name {
        "*" => SocketAddr::from(([0, 0, 0, 0], port)),
        "::*" => SocketAddr::from(([0u16; 8], port)),
        name => (name, port)
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such address"))?,
    };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    TcpListener::from_std(socket.into())
}

fn bind_unix(server: &Server) -> anyhow::Result<Option<UnixListener>> {
    let path = server.config.unixsocket.load();
    let path = String::from_utf8_lossy(&path).into_owned();
    if path.is_empty() {
        return Ok(None);
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace the socket {path}"));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen on {path}"))?;
    let mode = server.config.unixsocketperm.load();
    if mode != 0 {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the permissions of {path}"))?;
    }
    Ok(Some(listener))
}

async fn accept_tcp(listener: TcpListener, server: Arc<Server>, workers: Vec<Sender<Accepted>>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Ok(stream) = stream.into_std() else { continue };
                let local = stream.local_addr().map_or_else(|_| String::new(), |a| a.to_string());
                if let Err(error) = set_options(&server, &stream) {
                    tracing::debug!(%error, "cannot set the options of a connection");
                }
                let client = Client {
                    address: peer.to_string(),
                    local_address: local,
                    fd: stream.as_raw_fd(),
                    ..Client::default()
                };
                let denial = denial(&server, Some(peer.ip()));
                admit(&server, &workers, stream.into(), client, denial).await;
            }
            Err(error) => wait_after(&error).await,
        }
    }
}

async fn accept_unix(listener: UnixListener, server: Arc<Server>, workers: Vec<Sender<Accepted>>) {
    let path = String::from_utf8_lossy(&server.config.unixsocket.load()).into_owned();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(stream) = stream.into_std() else { continue };
                let client = Client {
                    address: format!("{path}:0"),
                    local_address: format!("{path}:0"),
                    is_unix_socket: true,
                    fd: stream.as_raw_fd(),
                    ..Client::default()
                };
                let denial = denial(&server, None);
                admit(&server, &workers, stream.into(), client, denial).await;
            }
            Err(error) => wait_after(&error).await,
        }
    }
}

async fn wait_after(error: &io::Error) {
    let aborted = error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error());
    if !aborted {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_RETRY).await;
    }
}

/// What a connection that may not come in is told.
fn denial(server: &Server, peer: Option<IpAddr>) -> Option<&'static [u8]> {
    if server.clients.count() >= server.config.maxclients.load() as u64 {
        return Some(TOO_MANY);
    }
    let outside = peer.is_some_and(|address| !address.to_canonical().is_loopback());
    let open = server.config.requirepass.load().is_empty();
    if outside && open && server.config.protected_mode.load() {
        return Some(PROTECTED.as_bytes());
    }
    None
}

/// Sends a connection to the worker with the fewest, or turns it away.
async fn admit(
    server: &Server,
    workers: &[Sender<Accepted>],
    socket: OwnedFd,
    client: Client,
    denial: Option<&'static [u8]>,
) {
    if let Some(denial) = denial {
        server.rejected_connections.fetch_add(1, Ordering::Relaxed);
        // Best effort: a full socket buffer on a fresh connection is not worth waiting for.
        let _ = rustix::net::send(&socket, denial, SendFlags::NOSIGNAL);
        return;
    }
    let (id, created_ms) = (server.clients.next_id(), unix_ms());
    let worker = server.clients.least_loaded(id as usize);
    let client = Arc::new(Client { id, created_ms, worker, ..client });
    server.clients.add(client.clone());
    // A worker that has ended is a server that is stopping.
    let _ = workers[worker].send(Accepted { socket, client }).await;
}

fn set_options(server: &Server, stream: &std::net::TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let seconds = server.config.tcp_keepalive.load() as u64;
    if seconds > 0 {
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(seconds))
            .with_interval(Duration::from_secs((seconds / 3).max(1)))
            .with_retries(3);
        SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}
