//! Where a peer session stands. Every transition is in this file.
//!
//! ```text
//!        Opened          Start            Hello
//!   New ───────▶ Quiet ─────────▶ Said ─────────▶ Ready ──┐ Frame
//!                  │                               ▲  ▲───┘
//!                  │ Hello               Start     │
//!                  └──────────▶ Heard ─────────────┘
//!
//!   every phase ── End ──▶ Over
//! ```
//!
//! *Said*: our HELLO is out. *Heard*: the peer's HELLO is there, ours waits for the node. A peer
//! that sends anything else before both have said HELLO, or HELLO twice, breaks the protocol;
//! GOODBYE is welcome at any time and ends the session, as does everything else that ends it.

/// The phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Made, not connected.
    New,
    /// Connected, nobody has said HELLO.
    Quiet,
    /// We have said HELLO.
    Said,
    /// The peer has said HELLO.
    Heard,
    /// Both have.
    Ready,
    /// It is over; nothing matters any more.
    Over,
}

/// What can move a session from one phase to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The connection is up.
    Opened,
    /// The node wants HELLO said.
    Start,
    /// The peer's HELLO, already found good.
    Hello,
    /// Any other frame but GOODBYE.
    Frame,
    /// GOODBYE from either side, the end of the stream, a fault, silence.
    End,
}

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It leads here.
    To(Phase),
    /// The peer may not do that now.
    Fault(PhaseFault),
    /// It changes nothing: too late, or said twice by this side.
    Ignore,
}

/// How a peer broke the order of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PhaseFault {
    /// Anything but HELLO or GOODBYE first.
    #[error("a frame before both sides have said HELLO")]
    Early,
    /// HELLO twice.
    #[error("a second HELLO")]
    HelloAgain,
}

/// The table.
pub(super) fn next(phase: Phase, event: Event) -> Step {
    use PhaseFault::{Early, HelloAgain};
    use Step::{Fault, Ignore, To};
    match (phase, event) {
        (Phase::New, Event::Opened) => To(Phase::Quiet),
        (Phase::New, Event::Start) => Ignore,
        (Phase::New, Event::Hello | Event::Frame) => Fault(Early),

        (Phase::Quiet, Event::Opened) => Ignore,
        (Phase::Quiet, Event::Start) => To(Phase::Said),
        (Phase::Quiet, Event::Hello) => To(Phase::Heard),
        (Phase::Quiet, Event::Frame) => Fault(Early),

        (Phase::Said, Event::Opened | Event::Start) => Ignore,
        (Phase::Said, Event::Hello) => To(Phase::Ready),
        (Phase::Said, Event::Frame) => Fault(Early),

        (Phase::Heard, Event::Opened) => Ignore,
        (Phase::Heard, Event::Start) => To(Phase::Ready),
        (Phase::Heard, Event::Hello) => Fault(HelloAgain),
        (Phase::Heard, Event::Frame) => Fault(Early),

        (Phase::Ready, Event::Opened | Event::Start) => Ignore,
        (Phase::Ready, Event::Hello) => Fault(HelloAgain),
        (Phase::Ready, Event::Frame) => To(Phase::Ready),

        (Phase::Over, Event::Opened | Event::Start | Event::Hello | Event::Frame) => Ignore,
        (
            Phase::New | Phase::Quiet | Phase::Said | Phase::Heard | Phase::Ready | Phase::Over,
            Event::End,
        ) => To(Phase::Over),
    }
}

#[cfg(test)]
mod tests;
