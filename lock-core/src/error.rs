use std::fmt;
use std::sync::Arc;

use crate::LockKey;

/// What every call of this workspace returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed, and whether it may have had an effect all the same.
///
/// Its text says what was tried, on what, why it failed and what to do. The client library's own error is its source.
/// Cheap to clone, because one failed batch is many errors.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    effect: Effect,
    backend: Box<str>,
    operation: &'static str,
    key: Option<LockKey>,
    says: Box<str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `backend` in `operation`; `says` tells why it failed and what to do, without a full stop.
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        effect: Effect,
        backend: &str,
        operation: &'static str,
        says: impl Into<String>,
    ) -> Self {
        let says = says.into().into_boxed_str();
        Self(Arc::new(Inner { kind, effect, backend: backend.into(), operation, key: None, says, source: None }))
    }

    /// The same error, naming the key that it is about.
    #[must_use]
    pub fn with_key(mut self, key: &LockKey) -> Self {
        Arc::make_mut(&mut self.0).key = Some(key.clone());
        self
    }

    /// The same error with what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// The same error with another effect, for a call of several requests that knows more than its last one.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        Arc::make_mut(&mut self.0).effect = effect;
        self
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the request may have been applied.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// The backend's name.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.0.backend
    }

    /// What was tried, such as `acquire`.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The key it is about, if it is about one.
    #[must_use]
    pub fn key(&self) -> Option<&LockKey> {
        self.0.key.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { backend, operation, key, says, .. } = &*self.0;
        match key {
            Some(key) => write!(f, "{backend}: {operation} `{key}`: {says}"),
            None => write!(f, "{backend}: {operation}: {says}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("effect", &self.0.effect)
            .field("says", &format_args!("{self}"))
            .field("source", &self.0.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// What kind of failure an [`Error`] is: what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else held the lock until the caller's own limit. Try later.
    TimedOut,
    /// The lock is no longer ours. Stop the work that it guards.
    Lost,
    /// The store cannot be reached or cannot answer now. The only kind that is tried again while acquiring.
    Unavailable,
    /// The store refuses: credentials, rights, or a limit of its own. Needs a person.
    Rejected,
    /// The caller's values are wrong. The text names the range.
    InvalidInput,
    /// The backend cannot do this at all, as its guarantees say.
    Unsupported,
    /// The store answered something that the backend does not understand: a version it does not know, or a defect.
    Backend,
}

/// May a failed request have been applied?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there is no third answer")]
pub enum Effect {
    /// No: it was never sent, or it was refused.
    None,
    /// It may have been, or may still be.
    Unknown,
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn it_reads_as_a_sentence() {
        let error = Error::new(
            ErrorKind::Rejected,
            Effect::None,
            "redis",
            "acquire",
            "the server refused AUTH (WRONGPASS); check user and password in the URL",
        );
        assert_eq!(
            error.clone().with_key(&LockKey::new("orders/42").unwrap()).to_string(),
            "redis: acquire `orders/42`: the server refused AUTH (WRONGPASS); check user and password in the URL"
        );
        assert_eq!(
            error.to_string(),
            "redis: acquire: the server refused AUTH (WRONGPASS); check user and password in the URL"
        );
    }

    #[test]
    fn a_clone_keeps_the_source() {
        let error = Error::new(ErrorKind::Unavailable, Effect::Unknown, "redis", "renew", "the connection was lost")
            .with_source(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(error.clone().source().unwrap().to_string(), "broken pipe");
    }
}
