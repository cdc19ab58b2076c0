//! What can be wrong with a message, and how it is answered.

/// A message that is not understood or not waited for any longer. The connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The head breaks the grammar.
    #[error("the head is malformed: {0}")]
    Syntax(&'static str),
    /// The head is larger than [`super::HEAD_MAX`] bytes.
    #[error("the head is larger than 16384 bytes")]
    HeadTooLarge,
    /// The head has more than [`super::FIELDS_MAX`] fields.
    #[error("the head has more than 64 fields")]
    TooManyFields,
    /// The target is longer than [`super::TARGET_MAX`] bytes.
    #[error("the request target is longer than 4096 bytes")]
    TargetTooLong,
    /// The target is not spelt the one way it can be.
    #[error("the request target is not canonical: {0}")]
    Target(&'static str),
    /// A parameter in the query is doubled, unknown or unreadable.
    #[error("the query is wrong: {0}")]
    Query(&'static str),
    /// `Host` is missing, doubled or malformed.
    #[error("the Host field is {0}")]
    Host(&'static str),
    /// It cannot be told where the body ends.
    #[error("the length of the body is unclear: {0}")]
    Framing(&'static str),
    /// A chunk of the body breaks the grammar.
    #[error("the chunked body is malformed: {0}")]
    Chunk(&'static str),
    /// An `Expect` other than `100-continue`.
    #[error("only the expectation 100-continue is understood")]
    Expectation,
    /// A version other than HTTP/1.0 and HTTP/1.1.
    #[error("only HTTP versions 1.1 and 1.0 are spoken here")]
    Version,
    /// The head was not whole in time.
    #[error("the head was not complete after {seconds} s")]
    HeadTimeout {
        /// How long it was waited for.
        seconds: u64,
    },
    /// The body came too slowly.
    #[error("the body brought {bytes} bytes in {seconds} s, less than the minimum rate")]
    TooSlow {
        /// Bytes that came.
        bytes: u64,
        /// In this time.
        seconds: u64,
    },
    /// The connection ended inside a message.
    #[error("the connection ended inside the message")]
    Cut,
}

impl Fault {
    /// The status it is answered with.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Fault::Syntax(_)
            | Fault::Target(_)
            | Fault::Query(_)
            | Fault::Host(_)
            | Fault::Framing(_)
            | Fault::Chunk(_)
            | Fault::Cut => 400,
            Fault::HeadTooLarge | Fault::TooManyFields => 431,
            Fault::TargetTooLong => 414,
            Fault::Expectation => 417,
            Fault::Version => 505,
            Fault::HeadTimeout { .. } | Fault::TooSlow { .. } => 408,
        }
    }

    /// The stable code in its body.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Fault::Syntax(_) | Fault::Host(_) => "bad_request",
            Fault::Target(_) => "bad_target",
            Fault::Query(_) => "bad_query",
            Fault::Framing(_) | Fault::Chunk(_) => "bad_framing",
            Fault::Cut => "body_cut",
            Fault::HeadTooLarge | Fault::TooManyFields => "head_too_large",
            Fault::TargetTooLong => "target_too_long",
            Fault::Expectation => "bad_expectation",
            Fault::Version => "bad_version",
            Fault::HeadTimeout { .. } => "head_timeout",
            Fault::TooSlow { .. } => "too_slow",
        }
    }
}
