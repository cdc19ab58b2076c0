//! Planted bugs: rules that a test-only switch drops, one at a time, so that the simulator can
//! prove that it would notice.
//!
//! Each [`Plant`] drops exactly the rule it is named after, at the place where that rule is kept. A
//! node has at most one, in [`crate::config::Config::plant`]; its sessions and its store are given
//! the same. No configuration file can set it, and without the feature `plant` the query
//! [`Plant::is_in`] is `false` at compile time, so that nothing of this is in a released binary.
//!
//! Rules that have no part yet cannot be dropped:
//!
//! | rules | what is missing |
//! |---|---|
//! | R5 | it is a rule for configurations: one that breaks it is refused |
//! | B4 | it is kept by `fsck --restored`, outside the node |
#![doc(hidden)]

macro_rules! plants {
    ($(#[$doc:meta])* pub enum Plant { $($(#[$vdoc:meta])* $variant:ident = $number:literal, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Plant { $($(#[$vdoc])* $variant = $number,)* }

        impl Plant {
            /// Every plant, in the order of their numbers.
            pub const ALL: &'static [Plant] = &[$(Plant::$variant,)*];
            /// The stable word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Plant::$variant => $word,)* }
            }
            /// The number.
            #[must_use]
            pub const fn number(self) -> u8 { self as u8 }
            /// The plant of a word, if there is one.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Plant> {
                Plant::ALL.iter().copied().find(|plant| plant.word() == word)
            }
        }
    };
}

plants! {
    /// A rule that is dropped. The first sentence says which, the second what breaks without it.
    pub enum Plant {
        /// (G2) A promise without rows of its own leaves at once instead of with the newest staged
        /// batch. The second of two offers of one segment is acknowledged while the first is staged
        /// only; that batch fails or is cut off, and the copy the peer let go was the last.
        G2 = 1, "g2";
        /// (G3) After a full commit the counters stay as they were staged instead of being read
        /// again. What the refused growth had charged stays charged, and nobody owns it.
        G3 = 2, "g3";
        /// (G4) Claims are growth: none is made while space is short. On a disk that others have
        /// filled nothing leaves, so nothing is ever freed.
        G4 = 3, "g4";
        /// (G5) Growth is taken again as soon as one relief batch is through, before the ballast is
        /// whole. It eats the freed ballast, the next relief finds no space, and the process stops.
        /// `storage.min_free` would hide that, so under this plant it does not hold growth back.
        G5 = 4, "g5";
        /// (G6) Relief that fails again is tried again at once and without end. The node spins
        /// while the disk is full and never says that it cannot go on.
        G6 = 5, "g6";
        /// (G6, second half) Relief that was staged behind the failed batch is dropped instead of
        /// being submitted with it. An attempt that has ended stays Inflight until the next start.
        StagedReliefLost = 6, "staged_relief_lost";
        /// (G7, kept by the store) After a commit error the batch number is not read back. A sender
        /// is told `disk_full` for rows that are there.
        G7 = 7, "g7";
        /// (G8) A promise to send outlives its session and goes out on the one that took its place.
        /// A segment is offered under a claim that has ended, beside the claim of the new session.
        /// Connections that are gone are dropped by number as well, so the plant gives the promise
        /// the number of the new one.
        G8 = 8, "g8";
        /// (W1) The answer of a scan is used although the window's end has moved since it was
        /// asked. The row that overflow dropped in between is jumped over until the next start.
        W1 = 9, "w1";
        /// (W2) A failed commit leaves open scans and the overlay they are patched with. What never
        /// happened is patched into their answers: rows that are not there, rows that are skipped.
        W2 = 10, "w2";
        /// (W3) The changes applied to a scan begin after it was asked, without what was staged and
        /// not committed then. A row that became due in that batch is in neither, and is skipped.
        W3 = 11, "w3";
        /// (B1, kept by the store) The sweep for orphans reads blobs, incoming and doomed one after
        /// the other instead of in one snapshot. A partial that becomes a blob in between is in
        /// none of them, and a live file is set aside.
        B1 = 12, "b1";
        /// (B2) Content that is shared with a blob that is there is answered for without taking a
        /// reference. The blob has more owners than it counts, and goes with the first of them.
        B2 = 13, "b2";
        /// (B3) Content is let come before its `incoming` row is committed. A commit that is
        /// refused or cut off leaves a file that no row names and no sweep may touch.
        B3 = 14, "b3";
        /// (B5) Content that is given up does not go through `doomed`: its row goes, its file is
        /// unlinked, its charge is taken back in memory. A crash between the two charges the bytes
        /// for ever.
        B5 = 15, "b5";
        /// A new segment is acknowledged, and a local submission answered, before its batch is
        /// durable. A crash loses what was promised.
        AckBeforeCommit = 16, "ack_before_commit";
        /// A file is unlinked before the row that dooms it is durable. A crash leaves a row that
        /// says how much of the content is safe, and no file.
        EvictBeforeRecord = 17, "evict_before_record";
        /// What was in flight at a restart starts with a fresh count of attempts and failures. A
        /// segment that can never be delivered is tried for ever by a site that restarts.
        AttemptsReset = 18, "attempts_reset";
        /// The credit of a body that rode with its offer is not given back. The peer's window runs
        /// dry, and a session that works is cut off as stuck.
        CreditLeak = 19, "credit_leak";
        /// An ACK counts whatever epoch it bears. A late one from another session marks a transfer
        /// that bears the same number now as held.
        StaleEpoch = 20, "stale_epoch";
        /// Deliveries are claimed in the order they were accepted in, whatever class they have and
        /// since when they are due. Urgent ones wait behind bulk.
        OrderByArrival = 21, "order_by_arrival";
        /// The charge of content that was given up is not taken back when its file is gone. The
        /// quota fills with nothing.
        QuotaKept = 22, "quota_kept";
        /// A checkpoint is told when its sync is asked for instead of when it is done. After a
        /// power cut a transfer goes on behind bytes that are not there.
        ResumePastDurable = 23, "resume_past_durable";
        /// A session that is lost spends of the segment's retries. A link that flaps kills healthy
        /// work.
        BudgetOnUnreachable = 24, "budget_on_unreachable";
        /// A segment's failures are counted together for all its peers. What one peer refuses is
        /// given up for the others.
        SharedCounter = 25, "shared_counter";
        /// (R1) A site that is itself addressed evicts once it has handed a segment on. Two peers that
        /// are to have it rely on each other's copy, and both let it go.
        R1 = 26, "r1";
        /// (R2) Memory of an evicted id does not know the accept number, and refuses a later accept of
        /// the same. What is accepted anew goes nowhere.
        R2 = 27, "r2";
        /// (R3) `already_relayed` settles a delivery whoever says so. In a circle of routes the last site
        /// is told so by the first, and nobody owes anything any more.
        R3 = 28, "r3";
        /// (R4) A hop's ACK counts as that of the site behind it. The hop dies, or gives it up, and the
        /// origin shows as delivered what nobody has.
        R4 = 29, "r4";
        /// (G1) A promise that has not left does not pin its segment. It is evicted in the very batch that
        /// the promise waits for, and the ACK leaves for a copy that is gone.
        G1 = 30, "g1";
        /// (P1) The next generation of a shard goes on with the numbers of the one before. A late ack of
        /// the first one's fetch verifies the second one, whose bytes no node has.
        P1 = 31, "p1";
        /// (P2) A fetch that breaks off counts towards `buffer.max_pickups` like an ack that says
        /// `failed`. A shard is given up for a bad link, though its node may hold it already.
        P2 = 32, "p2";
        /// (P3) NODE_VERIFIED is not finished forward, but waits for `buffer.transit_grace` and goes back.
        /// What a node has and has said so is given out once more.
        P3 = 33, "p3";
        /// (P4) The end of any fetch takes a shard back, whichever redemption it is of. The end of an old
        /// connection throws back the fetch that took its place.
        P4 = 34, "p4";
        /// (P5) What a node has ignored comes before what it has not heard of yet. As many as the window
        /// holds starve the rest.
        P5 = 35, "p5";
        /// A peer that leaves the configuration keeps its session. What is owed to it goes on being sent to
        /// somebody who is trusted no longer.
        StrangerServed = 36, "stranger_served";
    }
}

impl Plant {
    /// Whether this is what `planted` drops. Always `false` without the feature `plant`.
    #[must_use]
    pub const fn is_in(self, planted: Option<Plant>) -> bool {
        cfg!(feature = "plant") && matches!(planted, Some(plant) if plant as u8 == self as u8)
    }
}

impl core::fmt::Debug for Plant {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Configurations are shown in releases too, and their words must not come along.
        if cfg!(feature = "plant") { f.write_str(self.word()) } else { Ok(()) }
    }
}

// By number: the words stay out of releases.
#[cfg(feature = "serde")]
impl serde::Serialize for Plant {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(self.number())
    }
}

#[cfg(feature = "serde")]
impl<'a> serde::Deserialize<'a> for Plant {
    fn deserialize<D: serde::Deserializer<'a>>(from: D) -> Result<Plant, D::Error> {
        let number = u8::deserialize(from)?;
        let found = Plant::ALL.iter().copied().find(|plant| plant.number() == number);
        found.ok_or_else(|| serde::de::Error::custom("a number that means nothing here"))
    }
}

#[cfg(test)]
mod tests {
    use super::Plant;

    #[test]
    fn numbers_and_words_are_told_apart() {
        for (i, plant) in Plant::ALL.iter().enumerate() {
            assert_eq!(usize::from(plant.number()), i + 1);
            assert_eq!(Plant::from_word(plant.word()), Some(*plant));
        }
    }

    #[test]
    fn a_plant_is_there_only_where_it_is_planted_and_only_with_the_feature() {
        for planted in Plant::ALL.iter().copied() {
            for asked in Plant::ALL.iter().copied() {
                let there = cfg!(feature = "plant") && asked == planted;
                assert_eq!(asked.is_in(Some(planted)), there);
            }
            assert!(!planted.is_in(None));
        }
    }
}
