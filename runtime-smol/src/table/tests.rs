//! Numbers are never used twice, and outsiders cannot take all the room.

use super::*;

#[test]
fn a_slot_is_used_again_under_another_generation() {
    let table = Table::new(10);
    let first = table.admit(Kind::Peer, None).unwrap().id();
    let second = table.admit(Kind::Own, None).unwrap().id();
    assert_ne!(first.slot, second.slot);
    table.remove(first);
    table.remove(first);
    assert_eq!(table.live(), 1);
    let third = table.admit(Kind::Peer, None).unwrap().id();
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
    let peers: Vec<_> = (0..14).map(|_| table.admit(Kind::Peer, None).unwrap().id()).collect();
    assert!(!table.has_room(Kind::Peer) && table.has_room(Kind::Own));
    let why = table.admit(Kind::Peer, None).unwrap_err().to_string();
    assert_eq!(why, "14 connections are the limit");
    table.admit(Kind::Own, None).unwrap();
    table.admit(Kind::Own, None).unwrap();
    assert!(table.admit(Kind::Own, None).is_err());
    table.remove(peers[3]);
    assert!(!table.has_room(Kind::Peer) && table.has_room(Kind::Own));
}

#[test]
fn one_address_leaves_room_for_others() {
    let table = Table::new(1_000);
    let (greedy, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    let mut taken = Vec::new();
    while table.has_room_from(greedy) {
        taken.push(table.admit(Kind::Peer, Some(greedy)).unwrap().id());
    }
    assert_eq!(taken.len(), 875 / 4);
    assert!(table.has_room_from(other) && table.has_room(Kind::Peer));
    table.remove(taken[0]);
    table.remove(taken[0]);
    assert!(table.has_room_from(greedy));
    table.admit(Kind::Peer, Some(greedy)).unwrap();
    assert!(!table.has_room_from(greedy));
}

#[test]
fn an_end_reaches_everybody_and_admits_nobody() {
    let table = Table::new(4);
    let mailbox = table.admit(Kind::Own, None).unwrap();
    table.end(Ending::Stop);
    assert_eq!(mailbox.take().1, Ending::Stop);
    assert!(table.admit(Kind::Own, None).is_err() && !table.has_room(Kind::Own));
    assert!(!table.wait_empty(Duration::ZERO));
    table.remove(mailbox.id());
    assert!(table.wait_empty(Duration::ZERO));
}
