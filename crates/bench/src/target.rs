//! The server under load: where it is, and how a connection to it begins. The nodes of a cluster
//! differ in their addresses only.

use crate::LoadError;
use crate::options::{Options, Protocol};
use crate::tls::Tls;
use std::path::PathBuf;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What a new connection says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Version of the protocol, if it is to be agreed on.
    pub protocol: Option<u8>,
    /// User and password; a password alone is the default user's.
    pub credentials: Option<(Option<String>, String)>,
    /// Number of the database, if it is not the first.
    pub database: Option<u32>,
}

/// The server, or one node of it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where it is.
    pub address: Address,
    /// How to speak TLS, if at all.
    pub tls: Option<Tls>,
    /// What a connection says first.
    pub greeting: Greeting,
}

impl Target {
    /// The one that the options name.
    ///
    /// Errors: [`LoadError::File`] and [`LoadError::Certificate`] for what TLS needs.
    pub fn new(options: &Options) -> Result<Self, LoadError> {
        Ok(Self {
            address: match &options.unix_socket {
                Some(path) => Address::Unix(path.clone()),
                None => Address::Tcp(options.server.clone(), options.port),
            },
            tls: options.tls.then(|| Tls::new(options)).transpose()?,
            greeting: Greeting::new(options),
        })
    }
}

impl Greeting {
    fn new(options: &Options) -> Self {
        Self {
            protocol: match options.protocol {
                Protocol::Redis => None,
                Protocol::Resp2 => Some(2),
                Protocol::Resp3 => Some(3),
            },
            credentials: options.authenticate.as_ref().map(|text| match text.split_once(':') {
                Some((user, password)) => (Some(user.to_owned()), password.to_owned()),
                None => (None, text.clone()),
            }),
            database: options.select_db,
        }
    }
}
