//! TLS as it is asked for on the command line, and a connection that speaks it.
//!
//! A connection keeps no decrypted bytes back: one read takes at most a few records from the socket,
//! which fit the caller's buffer, so that a wait for the socket never waits for what is here already.

use crate::LoadError;
use crate::options::Options;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

/// How to speak TLS.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    /// Name to ask for, in place of the host's.
    name: Option<String>,
}

impl Tls {
    /// Reads the certificates that `options` name.
    ///
    /// Errors: [`LoadError::Certificate`].
    pub fn new(options: &Options) -> Result<Self, LoadError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let broken = |what: &str| {
            let what = what.to_owned();
            move |error: rustls::Error| LoadError::Certificate { what, why: error.to_string() }
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(broken("TLS"))?;
        let verifier: Arc<dyn ServerCertVerifier> = if options.tls_skip_verify {
            Arc::new(AnyServer(Arc::clone(&provider)))
        } else {
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots(options)?), provider)
                .build()
                .map_err(|error| LoadError::Certificate {
                    what: "--cacert".to_owned(),
                    why: error.to_string(),
                })?
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let config = match (&options.cert, &options.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates(cert)?;
                let key =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
                builder.with_client_auth_cert(chain, key).map_err(broken("--cert and --key"))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Self { config: Arc::new(config), name: options.sni.clone() })
    }

    /// A connection to `host` over `socket`; the handshake goes with the first write and read.
    ///
    /// Errors: when the host's name is none.
    pub fn connect(&self, socket: TcpStream, host: &str) -> io::Result<TlsStream> {
        let name = self.name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(&self.config), name);
        Ok(TlsStream { socket, session: session.map_err(io::Error::other)? })
    }
}

fn roots(options: &Options) -> Result<RootCertStore, LoadError> {
    let mut roots = RootCertStore::empty();
    match &options.cacert {
        Some(path) => roots.add_parsable_certificates(certificates(path)?),
        None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    };
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &rustls::pki_types::pem::Error) -> LoadError {
    LoadError::Certificate { what: path.display().to_string(), why: error.to_string() }
}

/// A connection that speaks TLS, over a socket that may or may not block.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    session: ClientConnection,
}

impl TlsStream {
    /// The socket beneath.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether encrypted bytes wait for the socket to take them.
    pub fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// Sends encrypted bytes that wait.
    ///
    /// Errors: the system's, `WouldBlock` when the socket takes no more.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

impl Read for TlsStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if self.session.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            self.session.process_new_packets().map_err(io::Error::other)?;
            self.flush()?;
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.session.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        TlsStream::flush(self)
    }
}

/// Trusts any server: `--tls-skip-verify`.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
