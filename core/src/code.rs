//! Stable codes of refusals and failures: the same word on the wire, in the ledger, in the CLI, in
//! metrics and in the documents.

macro_rules! codes {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $number,)* }

        impl $name {
            /// Every code, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// The stable word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
            /// The number in rows and frames.
            #[must_use]
            pub const fn number(self) -> u8 { self as u8 }
            /// The code of a number, if there is one.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<$name> {
                match number { $($number => Some($name::$variant),)* _ => None }
            }
            /// Adds one to its place among counts that are in the order of [`Self::ALL`].
            pub fn count_in(self, counts: &mut [u64]) {
                let mut places = Self::ALL.iter().zip(counts);
                if let Some((_, count)) = places.find(|(code, _)| **code == self) {
                    *count += 1;
                }
            }
            /// The code of a word, if there is one.
            #[must_use]
            pub fn from_word(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result { f.write_str(self.word()) }
        }
    };
}
pub(crate) use codes;

codes! {
    /// Why an offer or a local submission is refused (REJECT code, DESIGN 3.4).
    pub enum Refusal {
        /// Over quota at the receiver; retry later.
        Quota = 1, "quota";
        /// No space left at the receiver; retry later.
        DiskFull = 2, "disk_full";
        /// Another source is sending this content, or the site is stopping; retry later.
        Busy = 3, "busy";
        /// Larger than the receiver takes; permanent.
        TooLarge = 4, "too_large";
        /// Past its expiry; permanent.
        Expired = 5, "expired";
        /// Malformed or inconsistent; permanent.
        Invalid = 6, "invalid";
        /// The receiver is neither addressed nor able to forward; permanent.
        NotAddressed = 7, "not_addressed";
        /// Content did not match its digest or length; permanent the second time.
        Mismatch = 8, "mismatch";
        /// The receiver had it, delivered it and evicted it; settled.
        AlreadyRelayed = 9, "already_relayed";
        /// A WANT for something that is not here.
        Unknown = 10, "unknown";
        /// A local submission names a destination that is neither known nor routed.
        UnknownDestination = 11, "unknown_destination";
    }
}

impl Refusal {
    /// Whether the sender should try again later without being at fault.
    #[must_use]
    pub const fn is_retry(self) -> bool {
        matches!(self, Refusal::Quota | Refusal::DiskFull | Refusal::Busy)
    }
}

codes! {
    /// Why the last attempt of a delivery failed, or why it is dead (rows, CLI, metrics).
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub enum Cause {
        /// The session ended before the outcome was known.
        SessionLost = 1, "session_lost";
        /// The process was stopped or killed while the delivery was in flight.
        Restart = 2, "restart";
        /// The peer did not acknowledge in time on a live session.
        AckTimeout = 3, "ack_timeout";
        /// The peer acknowledged something else.
        AckMismatch = 4, "ack_mismatch";
        /// This site could not read the content.
        Unreadable = 5, "unreadable";
        /// The content is gone from this site.
        Missing = 6, "missing";
        /// The segment expired before it was delivered.
        Expired = 7, "expired";
        /// Refused: quota.
        Quota = 8, "quota";
        /// Refused: disk full.
        DiskFull = 9, "disk_full";
        /// Refused: busy.
        Busy = 10, "busy";
        /// Refused: too large.
        TooLarge = 11, "too_large";
        /// Refused: invalid.
        Invalid = 12, "invalid";
        /// Refused: not addressed.
        NotAddressed = 13, "not_addressed";
        /// Refused: mismatch.
        Mismatch = 14, "mismatch";
        /// Refused as already relayed by a site that is not addressed: a loop.
        Loop = 15, "loop";
        /// Refused with a code this version does not know.
        Refused = 16, "refused";
        /// The retries are used up.
        Exhausted = 17, "exhausted";
        /// The row could not be read.
        Corrupt = 18, "corrupt";
    }
}

codes! {
    /// Why a session ends (GOODBYE code).
    pub enum Goodbye {
        /// The site is stopping.
        Stopping = 1, "stopping";
        /// Another session with this peer took its place.
        Replaced = 2, "replaced";
        /// The peer broke the protocol.
        Protocol = 3, "protocol";
        /// No common protocol version.
        Version = 4, "version";
        /// The certificate's name is not a known peer.
        UnknownPeer = 5, "unknown_peer";
        /// The session is older than its maximum age or its certificate.
        Age = 6, "age";
        /// The peer went silent.
        Silent = 7, "silent";
        /// Too many sessions.
        Crowded = 8, "crowded";
    }
}
