use std::time::Duration;

use etcd_client::Error as ClientError;
use lock_core::{Effect, Error, ErrorKind};
use tonic::{Code, Status};

/// The strategy's name in errors and tables.
pub(crate) const NAME: &str = "etcd";

/// What rustls says of a certificate that it does not trust.
const DISTRUSTED: &str = "invalid peer certificate";

/// Why a request failed, before it is known whose request it was.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client or the server says no.
    Client(ClientError),
    /// The client could not be made or could not log in: our request was not sent.
    Connect(ClientError),
    /// No answer within the limit.
    Limit(Duration),
    /// The server does not know the lease any more, or not yet.
    LeaseGone,
    /// The server's answer has not the form that the request asks for.
    Answer(&'static str),
}

impl Failure {
    /// Whether the server said that a lease of this id exists: a grant of ours that is repeated has worked.
    pub(crate) fn is_known_lease(&self) -> bool {
        matches!(self, Self::Client(ClientError::GRpcStatus(status)) if status.message().contains("lease already exists"))
    }

    /// Whether another endpoint may do better.
    pub(crate) fn is_outage(&self) -> bool {
        self.is_distrust() || self.meaning().0 == ErrorKind::Unavailable
    }

    /// Whether this server's certificate is not trusted.
    fn is_distrust(&self) -> bool {
        let (Self::Client(error) | Self::Connect(error)) = self else { return false };
        matches!(error, ClientError::GRpcStatus(status) if status.message().contains(DISTRUSTED))
    }

    /// Whether the request has certainly not been applied, so that it may be sent again.
    pub(crate) fn had_no_effect(&self) -> bool {
        self.meaning().1 == Effect::None
    }

    fn meaning(&self) -> (ErrorKind, Effect, String) {
        match self {
            Self::Client(error) => meaning(error),
            Self::Connect(error) => {
                let (kind, _, says) = meaning(error);
                (kind, Effect::None, says)
            }
            Self::Limit(limit) => (
                ErrorKind::Unavailable,
                Effect::Unknown,
                format!(
                    "no answer within {limit:?}; check that a majority of the members is up, or raise the request limit"
                ),
            ),
            Self::LeaseGone => (
                ErrorKind::Unavailable,
                Effect::None,
                "the lease ended while it was in use: it was revoked, or not kept alive in time; try again".to_owned(),
            ),
            Self::Answer(says) => (
                ErrorKind::Backend,
                Effect::Unknown,
                format!("the answer was not understood ({says}); check that this is etcd 3.4 or newer, and report it"),
            ),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::GRpcStatus(status) if status.message().contains("requested lease not found") => {
                Self::LeaseGone
            }
            ClientError::LeaseKeepAliveError(says) if says == "lease not found" => Self::LeaseGone,
            _ => Self::Client(error),
        }
    }
}

/// The one place that says what a failure means: its kind, its effect, and what to do.
pub(crate) fn explain(failure: Failure, operation: &'static str) -> Error {
    let (kind, effect, says) = failure.meaning();
    let error = Error::new(kind, effect, NAME, operation, says);
    match failure {
        Failure::Client(source) | Failure::Connect(source) => error.with_source(source),
        Failure::Limit(_) | Failure::LeaseGone | Failure::Answer(_) => error,
    }
}

/// An error of ours about what the caller gave.
pub(crate) fn invalid(operation: &'static str, says: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, Effect::None, NAME, operation, says)
}

fn meaning(error: &ClientError) -> (ErrorKind, Effect, String) {
    match error {
        ClientError::GRpcStatus(status) => status_meaning(status),
        ClientError::InvalidArgs(_)
        | ClientError::InvalidUri(_)
        | ClientError::InvalidMetadataValue(_)
        | ClientError::TransportError(_) => (
            ErrorKind::InvalidInput,
            Effect::None,
            format!(
                "the settings are wrong ({error}); an endpoint is http://host:2379, or https:// with the feature `tls`"
            ),
        ),
        ClientError::IoError(_) | ClientError::WatchError(_) | ClientError::LeaseKeepAliveError(_) => (
            ErrorKind::Unavailable,
            Effect::Unknown,
            format!("the connection failed ({error}); check the network and the members' logs"),
        ),
        _ => (
            ErrorKind::Backend,
            Effect::Unknown,
            format!("the client failed ({error}); look the message up, and report it"),
        ),
    }
}

/// What is known of the server's words is from etcd 3.4; the codes are those of `rpctypes/error.go`.
fn status_meaning(status: &Status) -> (ErrorKind, Effect, String) {
    let message = status.message();
    let says = |what: &str| format!("{what} ({message})");
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    match status.code() {
        _ if has(&[DISTRUSTED]) => (
            ErrorKind::Rejected,
            Effect::None,
            says(
                "the server's certificate is not trusted; trust its authority (`TlsOptions::ca_certificate`), or correct its \
                  names",
            ),
        ),
        Code::Unavailable if has(&["tcp connect error", "dns error", "error trying to connect"]) => (
            ErrorKind::Unavailable,
            Effect::None,
            says("cannot connect; check that a member is up, and the endpoints' hosts and ports"),
        ),
        Code::Unavailable if has(&["no leader"]) => (
            ErrorKind::Unavailable,
            Effect::None,
            says("the member has no leader; check that a majority of the members is up and connected"),
        ),
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Aborted => (
            ErrorKind::Unavailable,
            Effect::Unknown,
            says("the request was not answered; check the network and the members' logs"),
        ),
        Code::Unknown if has(&["Service was not ready", "worker closed"]) => {
            (ErrorKind::Unavailable, Effect::Unknown, says("the client's runtime has ended; make a new client"))
        }
        Code::Unknown | Code::Internal
            if has(&[
                "transport error",
                "h2 protocol error",
                "context deadline exceeded",
                "context canceled",
                "raft",
            ]) =>
        {
            (
                ErrorKind::Unavailable,
                Effect::Unknown,
                says("the connection failed; check the network and the members' logs"),
            )
        }
        Code::ResourceExhausted if has(&["space exceeded"]) => (
            ErrorKind::Rejected,
            Effect::None,
            says("the server's quota is used up; compact, defragment and disarm the alarm, or raise the quota"),
        ),
        Code::ResourceExhausted => {
            (ErrorKind::Unavailable, Effect::None, says("the server has too much to do; try again, or use it less"))
        }
        Code::OutOfRange if has(&["TTL"]) => {
            (ErrorKind::InvalidInput, Effect::None, says("the server does not take this ttl; ask for a shorter one"))
        }
        Code::PermissionDenied => (
            ErrorKind::Rejected,
            Effect::None,
            says("the user may not do this; grant readwrite on the prefix of the locks"),
        ),
        Code::Unauthenticated => {
            (ErrorKind::Rejected, Effect::None, says("the server does not know us; check user and password"))
        }
        Code::InvalidArgument if has(&["authentication failed", "user name is empty"]) => {
            (ErrorKind::Rejected, Effect::None, says("the server refused the credentials; check user and password"))
        }
        Code::FailedPrecondition if has(&["authentication is not enabled"]) => {
            (ErrorKind::Rejected, Effect::None, says("the server has no users; leave user and password out"))
        }
        Code::Unimplemented => (
            ErrorKind::Unsupported,
            Effect::None,
            says("the server does not know the request; etcd 3.4 or newer is needed"),
        ),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange | Code::NotFound | Code::AlreadyExists => (
            ErrorKind::Backend,
            Effect::None,
            says("the server refused what it should take; look the message up, and report it"),
        ),
        _ => (ErrorKind::Backend, Effect::Unknown, says("this is not expected; look the message up, and report it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: Code, message: &str) -> Failure {
        Failure::from(ClientError::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn each_failure_has_its_kind_its_effect_and_a_remedy() {
        use lock_core::{Effect as E, ErrorKind as K};

        let uri = "http://[".parse::<tonic::transport::Uri>().unwrap_err();
        let table = [
            (Failure::Limit(Duration::from_secs(1)), K::Unavailable, E::Unknown, "no answer within 1s"),
            (status(Code::Unavailable, "tcp connect error"), K::Unavailable, E::None, "cannot connect"),
            (
                status(Code::Unavailable, "error trying to connect: invalid peer certificate: UnknownIssuer"),
                K::Rejected,
                E::None,
                "trust its authority",
            ),
            (status(Code::Unavailable, "etcdserver: no leader"), K::Unavailable, E::None, "a majority"),
            (status(Code::Unavailable, "http2 error"), K::Unavailable, E::Unknown, "not answered"),
            (status(Code::Unavailable, "etcdserver: request timed out"), K::Unavailable, E::Unknown, "not answered"),
            (status(Code::Unavailable, "etcdserver: leader changed"), K::Unavailable, E::Unknown, "not answered"),
            (status(Code::Cancelled, "Timeout expired"), K::Unavailable, E::Unknown, "not answered"),
            (status(Code::Unknown, "transport error"), K::Unavailable, E::Unknown, "the connection failed"),
            (status(Code::Unknown, "h2 protocol error: reset"), K::Unavailable, E::Unknown, "the connection failed"),
            (status(Code::Unknown, "context deadline exceeded"), K::Unavailable, E::Unknown, "the connection failed"),
            (
                status(Code::Unknown, "Service was not ready: transport error"),
                K::Unavailable,
                E::Unknown,
                "runtime has ended",
            ),
            (status(Code::NotFound, "etcdserver: requested lease not found"), K::Unavailable, E::None, "lease ended"),
            (ClientError::LeaseKeepAliveError("lease not found".into()).into(), K::Unavailable, E::None, "lease ended"),
            (ClientError::LeaseKeepAliveError("closed".into()).into(), K::Unavailable, E::Unknown, "connection failed"),
            (ClientError::WatchError("closed".into()).into(), K::Unavailable, E::Unknown, "connection failed"),
            (
                status(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
                K::Rejected,
                E::None,
                "quota",
            ),
            (status(Code::ResourceExhausted, "etcdserver: too many requests"), K::Unavailable, E::None, "too much"),
            (status(Code::OutOfRange, "etcdserver: too large lease TTL"), K::InvalidInput, E::None, "a shorter one"),
            (status(Code::PermissionDenied, "etcdserver: permission denied"), K::Rejected, E::None, "grant readwrite"),
            (
                status(Code::Unauthenticated, "etcdserver: invalid auth token"),
                K::Rejected,
                E::None,
                "user and password",
            ),
            (status(Code::InvalidArgument, "etcdserver: authentication failed"), K::Rejected, E::None, "credentials"),
            (status(Code::InvalidArgument, "etcdserver: user name is empty"), K::Rejected, E::None, "credentials"),
            (status(Code::FailedPrecondition, "authentication is not enabled"), K::Rejected, E::None, "leave user"),
            (status(Code::Unimplemented, "unknown service"), K::Unsupported, E::None, "3.4 or newer"),
            (status(Code::InvalidArgument, "too many operations in txn"), K::Backend, E::None, "report it"),
            (status(Code::DataLoss, "corrupt"), K::Backend, E::Unknown, "report it"),
            (ClientError::InvalidUri(uri).into(), K::InvalidInput, E::None, "http://host:2379"),
            (ClientError::InvalidArgs("empty endpoints".into()).into(), K::InvalidInput, E::None, "http://host:2379"),
            (
                Failure::Connect(ClientError::GRpcStatus(Status::unknown("transport error"))),
                K::Unavailable,
                E::None,
                "the connection failed",
            ),
            (Failure::Answer("no header"), K::Backend, E::Unknown, "no header"),
        ];
        for (failure, kind, effect, says) in table {
            let error = explain(failure, "acquire");
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{error:?}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_repeated_grant_is_known() {
        assert!(status(Code::FailedPrecondition, "etcdserver: lease already exists").is_known_lease());
        assert!(!status(Code::NotFound, "etcdserver: requested lease not found").is_known_lease());
    }
}
