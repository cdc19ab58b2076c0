//! The node's thread: takes inputs, turns the pump, carries out actions, and ends the run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use consign_core::driver::Ended;
use consign_core::id::ConnId;
use consign_core::node::{Action, Input, Note};
use consign_core::pump::{Host, Pump};
use consign_core::session::SessionCommand;
use consign_core::store::Batch;
use consign_core::time::Instant;

use crate::Context;
use crate::listen::dial;
use crate::queue::{Entry, Mail};

/// Sees the notes.
pub(crate) type Observe = Arc<dyn Fn(Note) + Send + Sync>;

/// Carries out actions. Commands are kept until the turn is over, so that each connection is woken
/// once a turn.
struct Hands<'a> {
    context: &'a Arc<Context>,
    observe: &'a Observe,
    commands: Vec<(ConnId, SessionCommand)>,
    ended: Option<Ended>,
}

impl Host for Hands<'_> {
    fn act(&mut self, action: Action) {
        match action {
            Action::Command(conn, command) => self.commands.push((conn, command)),
            Action::Read(number, request) => self.context.store.read(number, request),
            Action::Errand(errand) => self.context.store.errand(errand),
            Action::Dial { site, name, address } => dial(self.context, site, name, address),
            Action::Export(job) => self.context.exporter.export(*job),
            Action::Reload(number) => self.context.reloader.reload(number),
            Action::Note(note) => (self.observe)(note),
            Action::Drained => {
                self.ended.get_or_insert(Ended::Drained);
            }
            Action::Halt(why) => self.ended = Some(Ended::Halted(why)),
        }
    }

    fn commit(&mut self, batch: Batch) {
        self.context.store.commit(batch);
    }
}

impl Hands<'_> {
    /// Hands out the commands of a turn, those of one connection together.
    fn hand_out(&mut self) {
        let mut commands = self.commands.drain(..).peekable();
        while let Some((conn, command)) = commands.next() {
            let mut mail = vec![Mail::Command(command)];
            while let Some((_, command)) = commands.next_if(|(next, _)| *next == conn) {
                mail.push(Mail::Command(command));
            }
            if let Some(mailbox) = self.context.table.get(conn) {
                mailbox.push(mail);
            }
        }
    }
}

/// Runs the node until it has drained, was told to halt, or took longer than `drain` to stop.
pub(crate) fn run(
    context: &Arc<Context>,
    mut pump: Pump,
    observe: &Observe,
    drain: Duration,
) -> Ended {
    let mut hands = Hands { context, observe, commands: Vec::new(), ended: None };
    let mut entries = VecDeque::new();
    let mut deadline = Some(Instant::ZERO);
    let mut cut_at: Option<Instant> = None;
    loop {
        let wake_at = deadline.into_iter().chain(cut_at).min();
        let timeout = wake_at.map(|at| context.clock.until(at));
        context.inbox.take(&mut entries, timeout);
        let now = context.clock.now();
        let timer = deadline.is_some_and(|at| at <= now.mono).then_some(Input::Timer);
        let clock = context.clock.step().map(|ahead| Input::Clock {
            ahead: u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX),
        });
        let skew = context.clock.skew().map(|ahead| Input::Skew { ahead });
        let first = clock.into_iter().chain(skew).chain(timer);
        let mut inputs = first.chain(std::iter::from_fn(|| {
            loop {
                match entries.pop_front()? {
                    // The ticket goes back as the node takes the input.
                    Entry::Input(input, _) => return Some(input),
                    Entry::Note(note) => observe(note),
                    Entry::Pulse => {}
                    Entry::Stop => {
                        context.close_listeners();
                        return Some(Input::Stop);
                    }
                }
            }
        }));
        deadline = pump.turn(now, &mut inputs, &mut hands);
        drop(inputs);
        hands.hand_out();
        if pump.node().is_stopping() {
            // By a signal, or because a client has asked for it.
            cut_at.get_or_insert_with(|| now.mono.after(drain));
        }
        context.turns.fetch_add(1, Ordering::Relaxed);
        let late = cut_at.is_some_and(|at| at <= context.clock.now().mono);
        match hands.ended.take() {
            // The node says so too when it has waited long enough.
            Some(Ended::Drained) if late => return Ended::Cut,
            Some(ended) => return ended,
            None if late => return Ended::Cut,
            None => {}
        }
    }
}
