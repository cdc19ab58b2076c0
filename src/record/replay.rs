//! Stepping a fresh core over a recording.

use std::collections::{BTreeMap, VecDeque};
use std::io::BufRead;

use consign_core::node::{Action, Input, Node};
use consign_core::pump::{Host, Pump};
use consign_core::store::Batch;
use consign_core::time::Now;

use crate::caught::caught;

use super::effect::{BatchText, Effect, action_text};
use super::line::{Line, Start};
use super::outcome::{Difference, Ending, Outcome, Panicked, Totals};
use super::reader::{Lines, Next};
use super::{Header, ReplayError};

/// Most nodes in one recording.
pub const NODES_MAX: u32 = 4_096;
/// How many inputs before a difference are told.
const RECENT: usize = 5;
/// How much of an input is told, in characters.
const SHOWN: usize = 400;

/// Replays the recording that `from` gives; its version must be this build's.
///
/// # Errors
/// When it is no recording, not of this build's format and version, or not to be understood. That it is
/// cut off is no error: see [`Outcome::ending`].
pub fn replay(from: impl BufRead) -> Result<Outcome, ReplayError> {
    Replayer::open(from)?.run()
}

/// A recording that is about to be replayed.
pub struct Replayer<R> {
    lines: Lines<R>,
    header: Header,
    nodes: BTreeMap<u32, Life>,
    totals: Totals,
    panicked: Option<Panicked>,
}

impl<R: BufRead> Replayer<R> {
    /// Reads the header and judges format and version.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn open(from: R) -> Result<Replayer<R>, ReplayError> {
        let replayer = Replayer::open_any_version(from)?;
        let (found, this) = (&replayer.header.version, Header::new("").version);
        if *found != this {
            return Err(ReplayError::Version { found: found.clone(), this });
        }
        Ok(replayer)
    }

    /// Reads the header and judges the format only: differences may then be those between two versions.
    ///
    /// # Errors
    /// As [`replay`], but for the version.
    pub fn open_any_version(from: R) -> Result<Replayer<R>, ReplayError> {
        let mut lines = Lines::new(from);
        let header = lines.header()?;
        let (nodes, totals) = (BTreeMap::new(), Totals::default());
        Ok(Replayer { lines, header, nodes, totals, panicked: None })
    }

    /// What wrote the recording.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Replays up to the first difference, or to the end. Reads one line at a time.
    ///
    /// # Errors
    /// When a line cannot be read or understood.
    pub fn run(mut self) -> Result<Outcome, ReplayError> {
        loop {
            let line = match self.lines.read()? {
                Next::Line(line) => line,
                Next::Nothing { half } => {
                    let after = self.lines.line;
                    return Ok(self.outcome(None, Ending::Cut { after, half }));
                }
            };
            if let Line::End { lines } = line {
                return self.end(lines);
            }
            if let Some(difference) = self.line(line)? {
                let at = self.lines.line;
                return Ok(self.outcome(Some(difference), Ending::Left { at }));
            }
        }
    }

    /// The last line: nothing may be missing, nothing may follow.
    fn end(mut self, told: u64) -> Result<Outcome, ReplayError> {
        let lines = self.lines.line;
        if told != lines {
            return Err(self.bad(format!("it ends as line {told}, but is line {lines}")));
        }
        match self.lines.read()? {
            Next::Nothing { half: false } => Ok(self.outcome(None, Ending::Whole)),
            Next::Line(_) | Next::Nothing { half: true } => {
                Err(self.bad("something follows the end of the recording".to_owned()))
            }
        }
    }

    fn line(&mut self, line: Line<'static>) -> Result<Option<Difference>, ReplayError> {
        let at = self.lines.line;
        let (node, fed) = match line {
            Line::Start(start) => {
                self.start(*start)?;
                return Ok(None);
            }
            Line::Note { .. } | Line::End { .. } => return Ok(None),
            Line::In { node, now, input } => (node, Fed::Input(now, input.into_owned())),
            Line::Turn { node, now } => (node, Fed::Turn(now)),
            Line::Do { node, action } => (node, Fed::Effect(Effect::Do(action.into_owned()))),
            Line::Batch { node, batch } => (node, Fed::Effect(Effect::Batch(batch.into_owned()))),
            Line::Rest { node, next } => (node, Fed::Effect(Effect::Rest(next))),
        };
        let Some(life) = self.nodes.get_mut(&node) else {
            return Err(self.bad(format!("node {node} was not started")));
        };
        Ok(life.feed(fed, at, node, &mut self.totals))
    }

    /// A life may end at any point, in the middle of a turn too: what an earlier one had still to do is no
    /// difference. Nothing is lost by that, for a turn that was finished told its end.
    fn start(&mut self, start: Start<'static>) -> Result<(), ReplayError> {
        let Start { node, now, config, recovery } = start;
        if node >= NODES_MAX {
            return Err(self.bad(format!("node {node} is beyond the limit of {NODES_MAX} nodes")));
        }
        if let Some(plant) = config.plant.filter(|plant| !plant.is_in(config.plant)) {
            let number = plant.number();
            return Err(self.bad(format!(
                "node {node} has bug {number} on purpose, which this build cannot have"
            )));
        }
        let name = config.name.clone();
        let recovered = Node::recover(config.into_owned(), recovery.into_owned(), now)
            .map_err(|why| self.bad(format!("node {node} cannot start: {why}")))?;
        let life = Life {
            name,
            pump: Some(Pump::new(recovered)),
            panicked: None,
            hands: Hands::default(),
            now,
            recent: VecDeque::new(),
        };
        match self.nodes.insert(node, life) {
            None => self.totals.nodes += 1,
            Some(before) => self.panicked = self.panicked.take().or(before.panicked),
        }
        self.totals.lives += 1;
        Ok(())
    }

    fn bad(&self, why: String) -> ReplayError {
        ReplayError::Bad { line: self.lines.line, column: 0, why }
    }

    fn outcome(self, difference: Option<Difference>, ending: Ending) -> Outcome {
        let panicked = match difference {
            Some(_) => None,
            None => {
                let last = self.nodes.into_values().find_map(|life| life.panicked);
                self.panicked.or(last)
            }
        };
        let totals = Totals { lines: self.lines.line, ..self.totals };
        Outcome { header: self.header, totals, difference, ending, panicked }
    }
}

/// What a line says of a node.
enum Fed {
    Input(Now, Input),
    Turn(Now),
    Effect(Effect),
}

/// A life of a node.
struct Life {
    name: String,
    /// `None` once it has panicked.
    pump: Option<Pump>,
    panicked: Option<Panicked>,
    hands: Hands,
    now: Now,
    recent: VecDeque<String>,
}

impl Life {
    fn feed(&mut self, fed: Fed, at: u64, node: u32, totals: &mut Totals) -> Option<Difference> {
        match fed {
            Fed::Effect(recorded) => {
                totals.effects += 1;
                return self.effect(&recorded, at, node);
            }
            Fed::Input(..) | Fed::Turn(_) if self.more().is_some() => {
                let next = match fed {
                    Fed::Input(..) => "the next input",
                    Fed::Turn(_) | Fed::Effect(_) => "the work in bulk",
                };
                return Some(self.difference(at, node, next, self.more()));
            }
            Fed::Input(now, input) => {
                totals.inputs += 1;
                self.now = now;
                self.remember(&input);
                self.step(at, node, |pump, hands| pump.take(now, input, hands));
            }
            Fed::Turn(now) => {
                totals.turns += 1;
                self.now = now;
                self.step(at, node, |pump, hands| {
                    let next = pump.finish(now, hands);
                    hands.effects.push_back(Effect::Rest(next));
                });
            }
        }
        None
    }

    /// Steps the node. A recording may be what a core panicked over, and this core may panic over it too:
    /// that is a finding, not the end of the replay.
    fn step(&mut self, line: u64, node: u32, step: impl FnOnce(&mut Pump, &mut Hands)) {
        let Some(mut pump) = self.pump.take() else { return };
        let hands = &mut self.hands;
        match caught(|| {
            step(&mut pump, hands);
            pump
        }) {
            Ok(pump) => self.pump = Some(pump),
            Err(why) => self.panicked = Some(Panicked { line, node, why }),
        }
    }

    fn effect(&mut self, recorded: &Effect, at: u64, node: u32) -> Option<Difference> {
        let replayed = self.hands.effects.pop_front();
        match replayed {
            Some(replayed) if replayed == *recorded => None,
            Some(Effect::Batch(replayed)) if matches!(recorded, Effect::Batch(_)) => {
                let Effect::Batch(recorded) = recorded else { return None };
                let (recorded, replayed) = recorded.first_difference(&replayed);
                Some(self.difference(at, node, &recorded, Some(replayed)))
            }
            Some(replayed) => {
                let recorded = recorded.to_string();
                Some(self.difference(at, node, &recorded, Some(replayed.to_string())))
            }
            None => Some(self.difference(at, node, &recorded.to_string(), self.more())),
        }
    }

    /// What the core does next that the recording has not told yet.
    fn more(&self) -> Option<String> {
        let panicked = || self.panicked.as_ref().map(|p| format!("the core panics: {}", p.why));
        self.hands.effects.front().map(Effect::to_string).or_else(panicked)
    }

    fn remember(&mut self, input: &Input) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let mut text = serde_json::to_string(input).unwrap_or_else(|why| why.to_string());
        if let Some((at, _)) = text.char_indices().nth(SHOWN) {
            text.truncate(at);
            text.push('…');
        }
        self.recent.push_back(text);
    }

    fn difference(
        &self,
        line: u64,
        node: u32,
        recorded: &str,
        replayed: Option<String>,
    ) -> Difference {
        Difference {
            line,
            node,
            name: self.name.clone(),
            now: self.now,
            inputs: self.recent.iter().cloned().collect(),
            recorded: recorded.to_owned(),
            replayed: replayed.unwrap_or_else(|| "nothing".to_owned()),
        }
    }
}

/// Takes what leaves the node.
#[derive(Default)]
struct Hands {
    effects: VecDeque<Effect>,
}

impl Host for Hands {
    fn act(&mut self, action: Action) {
        self.effects.push_back(Effect::Do(action_text(&action)));
    }

    fn commit(&mut self, batch: Batch) {
        self.effects.push_back(Effect::Batch(BatchText::of(&batch)));
    }
}
