//! The sentence that `systemctl status` shows.

use std::collections::BTreeMap;

use consign_core::node::Note;

/// What it is made of.
#[derive(Debug, Default)]
pub(super) struct Tell {
    /// Peers that are configured.
    pub(super) peers: usize,
    /// Code of what was wrong with the last reading of the configuration; empty if nothing was.
    pub(super) refused: String,
    /// Sessions that are up, by peer.
    up: BTreeMap<String, usize>,
    full: bool,
}

impl Tell {
    /// Takes a note in; whether the sentence may be another now.
    pub(super) fn note(&mut self, note: &Note) -> bool {
        match note {
            Note::SessionUp { peer, .. } => *self.up.entry(peer.clone()).or_default() += 1,
            Note::SessionDown { peer, .. } => {
                let left = self.up.get(peer).map_or(0, |n| n.saturating_sub(1));
                if left == 0 {
                    self.up.remove(peer);
                } else {
                    self.up.insert(peer.clone(), left);
                }
            }
            Note::Full { .. } => self.full = true,
            Note::RoomAgain => self.full = false,
            _ => return false,
        }
        true
    }

    pub(super) fn sentence(&self) -> String {
        // A peer that was taken out may still be saying goodbye.
        let up = self.up.len().min(self.peers);
        let mut text = match self.peers {
            0 => "no peers".to_owned(),
            peers => format!("{up} of {peers} peers connected"),
        };
        if self.full {
            text += "; no space: new segments are refused";
        }
        if !self.refused.is_empty() {
            text += &format!("; the last reload was refused ({})", self.refused);
        }
        text
    }
}
