use std::time::Duration;

use lock_core::{Effect, Error, ErrorKind};
use zookeeper_client::Error as ClientError;

use crate::naming::Naming;

/// Why a request failed, before it is known whose request it was.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The client or the server says no.
    Client(ClientError),
    /// No session could be made.
    Connect(ClientError),
    /// No session was made within the limit.
    ConnectLimit(Duration),
    /// There was no connection for as long as the limit, so nothing was sent.
    Disconnected(Duration),
    /// Sent, and not answered within the limit.
    Limit(Duration),
    /// Somebody contends for the lock who neither sees us nor is seen.
    OtherNaming { child: String, naming: Naming },
    /// The path that the connect string begins from does not exist.
    NoChroot,
    /// The paths above the lock vanished as often as they were made.
    NoParents,
    /// Our node is not in line any more.
    Displaced,
    /// The server does not tell when a node was made.
    NoZxid,
    /// A fixed lease that the session cannot promise.
    FixedTooLong { asked: Duration, most: Duration },
    /// A grant that another backend made.
    Foreign,
    /// The session did not say goodbye.
    NotClosed(Duration),
    /// This, after our node had been made: it may stand.
    Unsure(Box<Self>),
}

impl Failure {
    /// The same, where something that was sent before may stand.
    pub(crate) fn unsure(self) -> Self {
        Self::Unsure(Box::new(self))
    }

    /// Whether the server has ended the session, and with it everything that was in it.
    pub(crate) const fn is_expiry(&self) -> bool {
        matches!(self, Self::Client(ClientError::SessionExpired))
    }

    /// Whether another session would do: this one is over, and what was asked of it is not in force.
    pub(crate) fn asks_for_another_session(&self) -> bool {
        match self {
            Self::Client(error) => matches!(error, ClientError::SessionExpired) || never_sent(error),
            _ => false,
        }
    }

    /// Whether the server has answered, so that it can be told more.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Client(error) => is_answer(error),
            Self::OtherNaming { .. } | Self::NoZxid => true,
            _ => false,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Whether the server has said this about one request: the session lives.
pub(crate) const fn is_answer(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::NoNode
            | ClientError::NoAuth
            | ClientError::BadVersion
            | ClientError::NoChildrenForEphemerals
            | ClientError::NodeExists
            | ClientError::NotEmpty
            | ClientError::InvalidAcl
            | ClientError::QuotaExceeded
            | ClientError::Unimplemented
    )
}

/// Whether a client that says this will serve nobody any more.
pub(crate) fn ends_session(error: &ClientError) -> bool {
    matches!(error, ClientError::SessionExpired | ClientError::AuthFailed | ClientError::ClientClosed) || is_dead(error)
}

/// Whether the runtime of the client's task has ended, for which the client has no word of its own.
fn is_dead(error: &ClientError) -> bool {
    never_sent(error) || matches!(error, ClientError::UnexpectedError(says) if says.contains("but got none"))
}

/// A client whose task has ended takes no request.
fn never_sent(error: &ClientError) -> bool {
    matches!(error, ClientError::UnexpectedError(says) if says.starts_with("expect error state"))
}

/// The one place that says what a failure means: its kind, its effect, and what to do.
pub(crate) fn explain(failure: &Failure, backend: &str, operation: &'static str) -> Error {
    use {Effect as E, ErrorKind as K};

    let (kind, effect, says, source) = match failure {
        Failure::Unsure(failure) => return explain(failure, backend, operation).with_effect(E::Unknown),
        Failure::Client(error) => {
            let (kind, effect, says) = meaning(error);
            (kind, effect, says, Some(error))
        }
        Failure::Connect(error) => {
            let (kind, says) = connect_meaning(error);
            (kind, E::None, says, Some(error))
        }
        Failure::ConnectLimit(limit) => (
            K::Unavailable,
            E::None,
            format!("no session within {limit:?}; check the connect string, and that a majority of the servers is up"),
            None,
        ),
        Failure::Disconnected(limit) => (
            K::Unavailable,
            E::None,
            format!("no connection for {limit:?}; check that a majority of the servers is up and reachable"),
            None,
        ),
        Failure::Limit(limit) => (
            K::Unavailable,
            E::Unknown,
            format!(
                "no answer within {limit:?}; check that the server is up and reachable, or raise the request limit"
            ),
            None,
        ),
        Failure::OtherNaming { child, naming } => (
            K::Rejected,
            E::None,
            format!(
                "`{child}` under the lock's path is named as {} names its nodes, and this side as {}: the two do not exclude \
                 each other; set the same naming on both sides, or use another prefix",
                naming.other().whose(),
                naming.whose()
            ),
            None,
        ),
        Failure::NoChroot => (
            K::Rejected,
            E::None,
            "the path at the end of the connect string does not exist; create it, or leave it out".to_owned(),
            None,
        ),
        Failure::NoParents => (
            K::Unavailable,
            E::None,
            "the lock's path vanished each time it was made; find out who deletes it".to_owned(),
            None,
        ),
        Failure::Displaced => (
            K::Unavailable,
            E::None,
            "our node is gone from the line, deleted by somebody or with its session; try again".to_owned(),
            None,
        ),
        Failure::NoZxid => (
            K::Unsupported,
            E::None,
            "the server does not tell a node's czxid, which is the fencing token; ZooKeeper 3.5 or newer is needed"
                .to_owned(),
            None,
        ),
        Failure::FixedTooLong { asked, most } => (
            K::InvalidInput,
            E::None,
            format!(
                "a fixed lease of {asked:?} is longer than {most:?}, half of the session's timeout, which is the most that can \
                 be promised; ask for less, use a renewed lease, or a session with a longer timeout"
            ),
            None,
        ),
        Failure::Foreign => (
            K::Backend,
            E::None,
            "the grant was not made by this backend; this is a defect of the caller".to_owned(),
            None,
        ),
        Failure::NotClosed(limit) => (
            K::Unavailable,
            E::Unknown,
            format!("the session was not ended within {limit:?}; its nodes go when its timeout is over"),
            None,
        ),
    };
    let error = Error::new(kind, effect, backend, operation, says);
    match source {
        Some(source) => error.with_source(source.clone()),
        None => error,
    }
}

fn meaning(error: &ClientError) -> (ErrorKind, Effect, String) {
    use {ClientError as C, Effect as E, ErrorKind as K};

    match error {
        C::ConnectionLoss | C::Custom(_) => {
            (K::Unavailable, E::Unknown, format!("the connection failed ({error}); check the network and the server's log"))
        }
        // What the session held and what was in it is gone with it.
        C::SessionExpired => (K::Unavailable, E::None, "the session has ended; a new one is made at the next try".to_owned()),
        C::ClientClosed => (K::Unavailable, E::Unknown, "the session was closed; a new one is made at the next try".to_owned()),
        error if is_dead(error) => {
            let effect = if never_sent(error) { E::None } else { E::Unknown };
            let says = "the runtime that the session was made in has ended; a new session is made at the next try";
            (K::Unavailable, effect, says.to_owned())
        }
        C::SessionMoved | C::NotReadOnly | C::Throttled => {
            (K::Unavailable, E::None, format!("the server cannot serve this now ({error}); try again"))
        }
        C::NoAuth => (
            K::Rejected,
            E::None,
            "the session may not do this (NoAuth); give it credentials (`Connector::with_auth`), or correct the ACLs of the \
             path"
                .to_owned(),
        ),
        C::AuthFailed => {
            (K::Rejected, E::None, "the server refused the credentials; check those of `Connector::with_auth`".to_owned())
        }
        C::InvalidAcl => (
            K::Rejected,
            E::None,
            "the server refused the ACLs; `creator_all` needs a session with credentials (`Connector::with_auth`)".to_owned(),
        ),
        C::QuotaExceeded => (K::Rejected, E::None, "a quota of the path is used up; raise it".to_owned()),
        C::NoChildrenForEphemerals => {
            (K::Rejected, E::None, "an ephemeral node stands in the lock's path; use another prefix or key".to_owned())
        }
        C::BadArguments(says) => (K::InvalidInput, E::None, format!("the client refuses it ({says}); correct the settings")),
        error if is_answer(error) => {
            (K::Backend, E::None, format!("this answer is not expected ({error}); report it"))
        }
        error => {
            let says = format!("the answer was not understood ({error}); check that this is a ZooKeeper server, and report it");
            (K::Backend, E::Unknown, says)
        }
    }
}

fn connect_meaning(error: &ClientError) -> (ErrorKind, String) {
    match error {
        ClientError::Timeout | ClientError::NoHosts | ClientError::ConnectionLoss | ClientError::Custom(_) => (
            ErrorKind::Unavailable,
            format!("cannot connect ({error}); check the connect string, and that a majority of the servers is up"),
        ),
        ClientError::BadArguments(says) => (
            ErrorKind::InvalidInput,
            format!("the connect string is wrong ({says}); write it as host:port,host:port/path"),
        ),
        error => {
            let (kind, _, says) = meaning(error);
            (kind, says)
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_core::{Effect as E, ErrorKind as K};

    use super::*;

    #[test]
    fn each_failure_has_its_kind_its_effect_and_a_remedy() {
        use ClientError as C;

        let limit = Duration::from_secs(2);
        let dead = |says: &str| Failure::Client(C::UnexpectedError(says.to_owned()));
        let table = [
            (Failure::Client(C::ConnectionLoss), K::Unavailable, E::Unknown, "check the network"),
            (Failure::Client(C::SessionExpired), K::Unavailable, E::None, "a new one is made"),
            (Failure::Client(C::ClientClosed), K::Unavailable, E::Unknown, "a new one is made"),
            (dead("expect error state, got SyncConnected"), K::Unavailable, E::None, "the runtime"),
            (dead("BUG: Create2 expect response, but got none"), K::Unavailable, E::Unknown, "the runtime"),
            (dead("something else"), K::Backend, E::Unknown, "report it"),
            (Failure::Client(C::SessionMoved), K::Unavailable, E::None, "try again"),
            (Failure::Client(C::NotReadOnly), K::Unavailable, E::None, "try again"),
            (Failure::Client(C::Throttled), K::Unavailable, E::None, "try again"),
            (Failure::Client(C::NoAuth), K::Rejected, E::None, "with_auth"),
            (Failure::Client(C::AuthFailed), K::Rejected, E::None, "with_auth"),
            (Failure::Client(C::InvalidAcl), K::Rejected, E::None, "creator_all"),
            (Failure::Client(C::QuotaExceeded), K::Rejected, E::None, "raise it"),
            (Failure::Client(C::NoChildrenForEphemerals), K::Rejected, E::None, "another prefix"),
            (Failure::Client(C::BadArguments(&"path")), K::InvalidInput, E::None, "correct the settings"),
            (Failure::Client(C::BadVersion), K::Backend, E::None, "report it"),
            (Failure::Client(C::MarshallingError), K::Backend, E::Unknown, "report it"),
            (Failure::Connect(C::Timeout), K::Unavailable, E::None, "a majority of the servers"),
            (Failure::Connect(C::NoHosts), K::Unavailable, E::None, "a majority of the servers"),
            (Failure::Connect(C::ConnectionLoss), K::Unavailable, E::None, "a majority of the servers"),
            (Failure::Connect(C::BadArguments(&"invalid address")), K::InvalidInput, E::None, "host:port"),
            (Failure::Connect(C::AuthFailed), K::Rejected, E::None, "with_auth"),
            (Failure::ConnectLimit(limit), K::Unavailable, E::None, "no session within 2s"),
            (Failure::Disconnected(limit), K::Unavailable, E::None, "no connection for 2s"),
            (Failure::Limit(limit), K::Unavailable, E::Unknown, "no answer within 2s"),
            (Failure::NoChroot, K::Rejected, E::None, "create it"),
            (Failure::NoParents, K::Unavailable, E::None, "who deletes it"),
            (Failure::Displaced, K::Unavailable, E::None, "try again"),
            (Failure::Displaced.unsure(), K::Unavailable, E::Unknown, "try again"),
            (Failure::NoZxid, K::Unsupported, E::None, "3.5 or newer"),
            (Failure::FixedTooLong { asked: limit, most: limit / 2 }, K::InvalidInput, E::None, "longer than 1s"),
            (Failure::Foreign, K::Backend, E::None, "not made by this backend"),
            (Failure::NotClosed(limit), K::Unavailable, E::Unknown, "within 2s"),
            (
                Failure::OtherNaming { child: "x__lock__0000000000".into(), naming: Naming::Curator },
                K::Rejected,
                E::None,
                "named as kazoo names its nodes, and this side as Curator",
            ),
        ];
        for (failure, kind, effect, says) in table {
            let error = explain(&failure, "zookeeper", "acquire");
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{failure:?}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
