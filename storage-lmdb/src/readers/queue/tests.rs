//! Which jobs a reader takes at a time.

use consign_core::id::{BlobNo, BodyNo};

use super::*;

fn owner(conn: u32, ticket: u32) -> Owner {
    (ConnId { slot: conn, generation: 1 }, TransferNo(ticket))
}

fn body(len: usize) -> Ask {
    Ask::Read { body: Body::Inline(BodyNo(1)), offset: 0, len }
}

fn file() -> Ask {
    Ask::Read { body: Body::Blob(BlobNo(1)), offset: 0, len: 10 }
}

fn state(jobs: impl IntoIterator<Item = (Owner, Ask)>) -> State {
    State { jobs: jobs.into_iter().collect(), ..State::default() }
}

/// Whose jobs the next round is made of.
fn round(state: &mut State) -> Vec<Owner> {
    let mut round = Vec::new();
    state.take(&mut round);
    round.iter().map(|(owner, _)| *owner).collect()
}

#[test]
fn bodies_are_taken_together_in_order_and_the_other_reader_gets_its_share() {
    let mut state = state((1..=100).map(|ticket| (owner(ticket % 3, ticket), body(1024))));
    let first = round(&mut state);
    let expected: Vec<Owner> = (1..=49).map(|ticket| owner(ticket % 3, ticket)).collect();
    assert_eq!(first, expected);
    assert_eq!(round(&mut state).first(), Some(&owner(50 % 3, 50)));
    let mut many = State { jobs: (1..=1000).map(|t| (owner(1, t), body(8))).collect(), ..state };
    many.serving.clear();
    assert_eq!(round(&mut many).len(), ROUND);
}

#[test]
fn a_round_ends_before_what_is_no_row_and_begins_with_anything() {
    let jobs = (1..=9).map(|t| (owner(1, t), if t == 3 { file() } else { body(8) }));
    let mut state = state(jobs);
    assert_eq!(round(&mut state), [owner(1, 1), owner(1, 2)]);
    assert_eq!(round(&mut state), [owner(1, 3)], "a file is read alone");
    assert_eq!(round(&mut state), [owner(1, 4), owner(1, 5)]);
}

#[test]
fn jobs_of_one_owner_are_never_served_at_the_same_time() {
    let jobs = [1, 2, 1, 3, 1, 4, 5, 6].map(|ticket| (owner(1, ticket), body(8)));
    let mut state = state(jobs);
    assert_eq!(round(&mut state), [owner(1, 1), owner(1, 2)], "the next is served already");
    assert_eq!(round(&mut state), [owner(1, 3)], "nor is it passed over in the middle of a round");
    state.serving.clear();
    assert_eq!(round(&mut state).first(), Some(&owner(1, 1)));
}

#[test]
fn large_bodies_bound_a_round() {
    let mut state = state((1..=100).map(|ticket| (owner(1, ticket), body(60 << 10))));
    let bytes: usize = round(&mut state).len() * (60 << 10);
    assert!(bytes <= ROUND_BYTES + (60 << 10), "{bytes} bytes");
}

#[test]
fn two_pieces_of_one_file_are_read_at_a_time_and_nothing_passes_them() {
    let query = || Ask::Query(Box::new(|_| Ok(Vec::new())));
    let jobs = [(1, file()), (1, file()), (1, file()), (1, query()), (1, file()), (2, file())];
    let mut state = state(jobs.map(|(ticket, ask)| (owner(1, ticket), ask)));
    let take = |state: &mut State| {
        let mut round = Vec::new();
        let turn = state.take(&mut round);
        (turn, round.iter().map(|((_, ticket), _)| ticket.0).collect::<Vec<u32>>())
    };
    assert_eq!(take(&mut state), (0, vec![1]));
    assert_eq!(take(&mut state), (1, vec![1]), "beside the first, answered behind it");
    assert_eq!(take(&mut state), (0, vec![2]), "no third one");
    assert_eq!(take(&mut state), (0, vec![]));
    state.answered(owner(1, 1));
    assert_eq!(take(&mut state), (2, vec![1]));
    state.answered(owner(1, 1));
    assert_eq!(take(&mut state), (0, vec![]), "the question waits, and the file behind it");
    state.answered(owner(1, 1));
    assert_eq!(take(&mut state), (0, vec![1]), "the question");
    assert_eq!(take(&mut state), (0, vec![]), "the file waits for the question");
    state.answered(owner(1, 1));
    assert_eq!(take(&mut state), (0, vec![1]));
}

/// Two pieces of one file, both being read.
fn two_pieces(queue: &Queue) -> [Round<'_>; 2] {
    for _ in 0..2 {
        assert!(queue.push(owner(1, 1), file()).is_ok());
    }
    [(); 2].map(|()| queue.take().expect("a round").1)
}

#[test]
fn pieces_are_answered_in_order_whoever_has_read_first() {
    let queue = Queue::default();
    let [first, second] = two_pieces(&queue);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let later = tell.clone();
        scope.spawn(move || {
            second.await_turn();
            later.send(2).expect("somebody listens");
        });
        first.await_turn();
        tell.send(1).expect("somebody listens");
        drop(first);
    });
    assert_eq!(told.try_iter().collect::<Vec<i32>>(), [1, 2]);
}

#[test]
fn who_waits_for_a_turn_gets_it_when_the_one_before_panics() {
    let queue = Queue::default();
    let [first, second] = two_pieces(&queue);
    std::thread::scope(|scope| {
        let panicked = scope.spawn(move || {
            let _round = first;
            std::panic::resume_unwind(Box::new("a reader panics"));
        });
        second.await_turn();
        assert!(panicked.join().is_err());
    });
}
