//! What a client makes of an answer.

use consign_core::http::ReplyHead;
use consign_core::ledger::rows_pickup::ShardState;
use consign_core::pickup::message::{Slot, Uploaded};

use super::Shore;
use super::say::{code, number};
use super::sight::Sight;
use super::upload::{Step, Task};

impl Task {
    /// What the answer means; whether nothing is left to do.
    pub(super) fn judge(&mut self, head: &ReplyHead, came: &[u8], shore: &mut Shore<'_>) -> bool {
        let offset = number(head, "Upload-Offset");
        let code = code(came);
        match (head.status, self.step) {
            (200 | 201, Step::Slot) => {
                if serde_json::from_slice::<Slot>(came).is_err() {
                    self.odd(head, came, shore);
                }
                self.next(Step::Post, shore);
                false
            }
            (status @ (200 | 201), Step::Post | Step::Patch(_)) => {
                let Ok(told) = serde_json::from_slice::<Uploaded>(came) else {
                    self.odd(head, came, shore);
                    return true;
                };
                let right = told.digest.sha256 == self.sha256
                    && told.digest.blake3 == self.blake3
                    && told.size == self.body.len() as u64;
                if !right {
                    self.odd(head, came, shore);
                }
                let (state, buffered) = (told.state, told.buffer_id.is_some());
                let content = self.content();
                let (new, token, asked) = (status == 201, self.token, self.asked_at);
                shore.see(&Sight::Kept { content, new, state, buffered, token, asked });
                // Once more, sometimes: the answer is the present state.
                if shore.rng.chance(50_000) {
                    self.again(Step::Post, shore);
                    return false;
                }
                true
            }
            (204, Step::Post | Step::Patch(_) | Step::Head) => {
                let complete = head.headers.text("Upload-Complete") == Some("?1");
                let state = head.headers.text("X-Nodus-State").and_then(ShardState::from_word);
                let (Some(offset), Some(state)) = (offset, state) else {
                    self.odd(head, came, shore);
                    return true;
                };
                let content = self.content();
                shore.see(&Sight::Offset { content, offset, complete, state });
                let uploading = state == ShardState::Uploading;
                let goes_on = uploading && offset <= self.body.len() as u64;
                let step = if goes_on { Step::Patch(offset) } else { Step::Post };
                if complete {
                    self.again(step, shore)
                } else {
                    self.next(step, shore)
                }
                false
            }
            (409, _) => self.conflict(&code, offset, shore),
            (404, Step::Head | Step::Patch(_)) if code == "not_found" || code.is_empty() => {
                self.again(Step::Post, shore);
                false
            }
            (401, _) | (404, Step::Slot | Step::Post) => {
                shore.not_known();
                self.later(shore)
            }
            (400, Step::Post | Step::Patch(_)) if code == "digest_mismatch" => {
                // Whoever brings other bytes may have gone on with ours, and a disk that lies of what came
                // before cannot be told from a client that does.
                let contested = shore.common.contested.contains(&self.job.shard);
                if !contested && !shore.common.reads_lie {
                    self.odd(head, came, shore);
                }
                self.again(Step::Post, shore);
                false
            }
            (408 | 429 | 500 | 503 | 507, _) => self.later(shore),
            (_, _) => {
                self.odd(head, came, shore);
                self.later(shore)
            }
        }
    }

    fn conflict(&mut self, code: &str, offset: Option<u64>, shore: &mut Shore<'_>) -> bool {
        self.conflicts += 1;
        match (code, offset) {
            // Somebody else was first.
            ("conflict", _) if self.job.contested => return true,
            ("conflict", _) if self.conflicts > 60 => {
                if !shore.common.contested.contains(&self.job.shard) {
                    let (shard, times) = (&self.job.shard, self.conflicts);
                    shore.see(&Sight::Odd(format!("{shard:?} is in conflict {times} times")));
                }
                return true;
            }
            ("conflict", _) if self.step == Step::Slot => self.again(Step::Post, shore),
            ("wrong_offset", Some(_)) => self.again(Step::Head, shore),
            (_, _) => {
                let step = if shore.rng.chance(500_000) { Step::Head } else { Step::Post };
                self.again(step, shore);
            }
        }
        false
    }

    /// The same or a look at how far it is, after a while.
    fn later(&mut self, shore: &mut Shore<'_>) -> bool {
        let step = match self.step {
            Step::Slot => Step::Slot,
            Step::Post | Step::Head => Step::Post,
            Step::Patch(_) => Step::Head,
        };
        self.again(step, shore);
        self.not_before = shore.in_millis(500, 10_000);
        false
    }

    fn odd(&self, head: &ReplyHead, came: &[u8], shore: &mut Shore<'_>) {
        let text = String::from_utf8_lossy(came);
        let (shard, step, status) = (&self.job.shard, self.step, head.status);
        shore.see(&Sight::Odd(format!("{step:?} of {shard:?} is answered {status} {text}")));
    }
}
