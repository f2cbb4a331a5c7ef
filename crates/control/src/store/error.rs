//! What can go wrong with a store.

/// Why the store did not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nobody answers in time. What was to be changed may have been changed.
    #[error("cannot {what}: {place} does not answer ({reason}); {hint}")]
    Unavailable {
        /// What was tried.
        what: String,
        /// Where.
        place: String,
        /// What the network says.
        reason: String,
        /// Where to look.
        hint: &'static str,
    },
    /// The guard's key has gone or belongs to somebody else; nothing was changed.
    #[error("cannot {what}: the key is not held any longer, somebody else may lead by now")]
    Fenced {
        /// What was tried.
        what: String,
    },
    /// The session's lease has ended, and its keys with it; nothing was changed.
    #[error("cannot {what}: the session has ended; begin a new one")]
    SessionEnded {
        /// What was tried.
        what: String,
    },
    /// Nothing was changed.
    #[error(
        "cannot commit {operations} operations with {bytes} bytes at once; at most {} operations with {} bytes",
        super::MOST_OPERATIONS,
        super::MOST_BYTES
    )]
    TooLarge {
        /// How many were to be committed.
        operations: usize,
        /// Their keys and values.
        bytes: usize,
    },
    /// The store says no.
    #[error("cannot {what}: {place} says: {reason}")]
    Refused {
        /// What was tried.
        what: String,
        /// Where.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// No thread, no event descriptor.
    #[error("cannot start the thread of the store: {0}")]
    Thread(#[source] std::io::Error),
}

/// Why one attempt failed; [`StoreError`] adds what was tried and where.
#[derive(Debug)]
pub(super) enum Failure {
    /// No answer. `undone`: the request has certainly not been carried out.
    Away {
        reason: String,
        undone: bool,
    },
    Fenced,
    SessionEnded,
    /// What was asked for has been compacted.
    Compacted,
    Refused(String),
}

impl Failure {
    pub(super) fn away(reason: impl Into<String>) -> Failure {
        Failure::Away { reason: reason.into(), undone: false }
    }
}
