//! Which jobs a reader takes at a time.

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
fn what_is_read_past_the_page_cache_is_what_was_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let content: Vec<u8> = (0..30_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(&path, &content).expect("a file");
    let file = OwnedFd::from(std::fs::File::open(&path).expect("it opens"));
    if grown::set_direct(&file, true).is_err() {
        println!("not past the page cache: the directory is none of a disk");
    }
    let pieces =
        [(0, 4096), (0, 1), (4095, 2), (1, 29_999), (8192, 8192), (29_999, 1), (0, 30_000)];
    for (offset, len) in pieces {
        let read = read_direct(&file, offset, len).expect("it reads");
        assert_eq!(read, content[offset as usize..offset as usize + len], "{len} from {offset}");
    }
    assert!(read_direct(&file, 30_000, 0).expect("it reads").is_empty());
    assert_eq!(read_direct(&file, 29_000, 5_000).expect("it reads"), content[29_000..], "the end");
    assert!(read_direct(&file, 40_000, 10).expect("it reads").is_empty(), "behind the end");
}
