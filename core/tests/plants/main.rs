//! For each rule the shortest story that breaks a promise without it: told to a site (or a session)
//! that keeps the rule it ends well, told to one in which the rule is dropped it does not.

#[macro_use]
mod story;

mod attempts;
mod blobs;
mod full;
mod gate;
mod keep;
mod pickup;
mod scans;
mod wire;

#[path = "../node/books.rs"]
mod books;
#[allow(dead_code)]
#[path = "../pickup/relay.rs"]
mod relay;
#[path = "../node/site.rs"]
mod site;
#[path = "../pair/world.rs"]
mod world;

stories! {
    a_second_offer_of_what_is_only_staged: G2, gate::second_offer;
    refused_growth_and_relief_in_one_batch: G3, full::growth_and_relief_together;
    a_disk_that_others_have_filled: G4, full::filled_from_outside;
    clients_that_keep_asking_while_the_disk_is_full: G5, full::freed_ballast;
    relief_that_finds_no_space_again_and_again: G6, full::relief_without_space;
    an_ack_staged_behind_the_batch_that_fails: StagedReliefLost, full::ack_behind_the_failed_batch;
    a_commit_that_took_effect_and_reported_an_error: G7, gate::error_after_effect;
    a_claim_whose_session_is_replaced_during_the_commit: G8, gate::replaced_session;
    a_window_that_overflows_while_a_scan_is_open: W1, scans::overflow;
    a_scan_that_is_open_when_a_commit_fails: W2, scans::failed_commit;
    a_scan_asked_right_after_something_became_due: W3, scans::staged_before;
    a_partial_that_becomes_a_blob_during_the_sweep: B1, blobs::sweep;
    two_segments_with_the_same_content: B2, blobs::shared_content;
    a_reservation_whose_commit_is_refused: B3, blobs::refused_reservation;
    a_crash_after_the_file_of_a_partial_is_unlinked: B5, blobs::crash_after_unlink;
    a_crash_before_an_accept_is_durable: AckBeforeCommit, gate::crash_before_commit;
    a_crash_before_a_doom_is_durable: EvictBeforeRecord, blobs::crash_before_doom;
    restarts_while_something_is_in_flight: AttemptsReset, attempts::restarts;
    more_small_bodies_than_a_window_holds: CreditLeak, wire::small_bodies;
    a_late_ack_of_another_session: StaleEpoch, wire::late_ack;
    bulk_that_was_there_before_what_is_urgent: OrderByArrival, attempts::urgent_after_bulk;
    content_that_does_not_match: QuotaKept, blobs::mismatch;
    a_checkpoint_that_is_not_synced_yet: ResumePastDurable, wire::early_checkpoint;
    a_link_that_flaps: BudgetOnUnreachable, attempts::flapping_link;
    two_peers_of_which_one_never_answers: SharedCounter, attempts::two_peers;
    a_segment_for_everybody_that_is_handed_on: R1, keep::for_everybody;
    a_segment_that_is_accepted_anew: R2, keep::accepted_anew;
    a_circle_of_routes: R3, keep::closed_circle;
    a_hop_that_has_a_segment: R4, keep::word_of_a_hop;
    a_late_ack_of_a_generation_that_was_given_up: P1, pickup::late_ack;
    a_link_on_which_fetches_break_off: P2, pickup::broken_fetches;
    a_node_that_has_said_that_it_has_it: P3, pickup::said_so;
    an_old_connection_that_ends_during_the_next_fetch: P4, pickup::old_connection;
    a_node_that_ignores_as_many_as_it_is_told_at_a_time: P5, pickup::ignored;
    a_peer_that_leaves_the_configuration: StrangerServed, attempts::removed_peer;
}
