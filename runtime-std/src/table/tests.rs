//! Numbers are never used twice, and outsiders cannot take all the room.

use super::*;

#[test]
fn a_slot_is_used_again_under_another_generation() {
    let table = Table::new(10);
    let first = table.admit(Kind::Peer).unwrap().id();
    let second = table.admit(Kind::Own).unwrap().id();
    assert_ne!(first.slot, second.slot);
    table.remove(first);
    table.remove(first);
    assert_eq!(table.live(), 1);
    let third = table.admit(Kind::Peer).unwrap().id();
    assert_eq!(third.slot, first.slot);
    assert_ne!(third.generation, first.generation);
    // Late mail for the first does not reach the third.
    assert!(table.get(first).is_none() && table.get(third).is_some());
    table.remove(first);
    assert_eq!(table.live(), 2);
}

#[test]
fn an_eighth_of_the_room_is_not_for_outsiders() {
    let table = Table::new(16);
    let peers: Vec<_> = (0..14).map(|_| table.admit(Kind::Peer).unwrap().id()).collect();
    assert!(!table.has_room(Kind::Peer) && table.has_room(Kind::Own));
    let why = table.admit(Kind::Peer).unwrap_err().to_string();
    assert_eq!(why, "14 connections are the limit");
    table.admit(Kind::Own).unwrap();
    table.admit(Kind::Own).unwrap();
    assert!(table.admit(Kind::Own).is_err());
    table.remove(peers[3]);
    assert!(!table.has_room(Kind::Peer) && table.has_room(Kind::Own));
}

#[test]
fn an_end_reaches_everybody_and_admits_nobody() {
    let table = Table::new(4);
    let mailbox = table.admit(Kind::Own).unwrap();
    table.end(Ending::Stop);
    assert_eq!(mailbox.take().1, Ending::Stop);
    assert!(table.admit(Kind::Own).is_err() && !table.has_room(Kind::Own));
    assert!(!table.wait_empty(Duration::ZERO));
    table.remove(mailbox.id());
    assert!(table.wait_empty(Duration::ZERO));
}
