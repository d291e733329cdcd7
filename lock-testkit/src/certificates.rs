use std::fmt;
use std::io;
use std::net::Ipv4Addr;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

/// New certificates for a private server: an authority's, and one for `localhost` and 127.0.0.1 that it has signed. Needs
/// the feature `tls`.
///
/// # Examples
///
/// ```
/// use lock_testkit::{Certificates, RedisServer};
///
/// let certificates = Certificates::new()?;
/// let server = RedisServer::builder().tls(certificates.server(), certificates.key()).start()?;
///
/// let trusted = redis::TlsCertificates { client_tls: None, root_cert: Some(certificates.authority().into()) };
/// let url = server.tls_url().expect("it was given a certificate");
/// let mut connection = redis::Client::build_with_tls(url, trusted)?.get_connection()?;
/// assert_eq!(redis::cmd("PING").query::<String>(&mut connection)?, "PONG");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Certificates {
    authority: String,
    server: String,
    key: String,
}

impl Certificates {
    /// Makes them, with keys of their own.
    ///
    /// # Errors
    ///
    /// If the operating system has no random numbers to give.
    pub fn new() -> io::Result<Self> {
        Self::make().map_err(io::Error::other)
    }

    /// The authority's certificate, in PEM: what a client must trust.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The server's certificate, in PEM.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The server's private key, in PEM.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    fn make() -> Result<Self, rcgen::Error> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        authority.distinguished_name.push(DnType::CommonName, "lock-testkit");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let key = KeyPair::generate()?;
        let server = CertificateParams::new(["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()])?;
        let server = server.signed_by(&key, &authority)?;
        Ok(Self { authority: authority.pem(), server: server.pem(), key: key.serialize_pem() })
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("server", &self.server).finish_non_exhaustive()
    }
}
