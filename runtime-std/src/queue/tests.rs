//! Wake-ups are neither lost nor given for nothing, and credit comes back.

use consign_core::code::Goodbye;

use super::*;

fn mailbox() -> Arc<Mailbox> {
    Arc::new(Mailbox::new(ConnId { slot: 1, generation: 2 }).unwrap())
}

fn mail() -> Mail {
    Mail::Command(SessionCommand::Close { why: Goodbye::Stopping, text: String::new() })
}

/// Whether the mailbox has been woken, as its connection would see it.
fn woken(mailbox: &Mailbox) -> bool {
    crate::wake::wait(mailbox.wake(), None, Some(Duration::ZERO)).unwrap().woken
}

#[test]
fn only_a_parked_connection_is_woken_and_only_once() {
    let mailbox = mailbox();
    mailbox.push([mail()]);
    assert!(!woken(&mailbox), "it is awake");
    assert!(!mailbox.park(), "there is mail");
    assert_eq!(mailbox.take().0.len(), 1);
    assert!(mailbox.park());
    mailbox.push([mail()]);
    assert!(woken(&mailbox));
    mailbox.unpark(true);
    assert!(!woken(&mailbox));
    mailbox.push([mail()]);
    assert!(!woken(&mailbox), "it is awake");
    assert_eq!(mailbox.take().0.len(), 2);
}

#[test]
fn an_end_is_seen_and_does_not_weaken() {
    let mailbox = mailbox();
    assert!(mailbox.park());
    mailbox.end(Ending::Cut);
    assert!(woken(&mailbox));
    mailbox.end(Ending::Stop);
    assert!(!mailbox.park());
    assert_eq!(mailbox.take().1, Ending::Cut);
    assert!(mailbox.park(), "told once");
}

#[test]
fn a_crowd_of_events_stops_reading_until_the_node_has_caught_up() {
    let mailbox = mailbox();
    let first = Ticket::new(&mailbox, EVENTS_MAX - 1);
    assert!(!mailbox.is_crowded());
    let second = Ticket::new(&mailbox, 500);
    assert!(mailbox.is_crowded());
    assert!(mailbox.park());
    drop(second);
    assert!(!mailbox.is_crowded());
    assert!(woken(&mailbox), "it may read again");
    mailbox.unpark(true);
    mailbox.take();
    assert!(mailbox.park());
    drop(first);
    assert!(!woken(&mailbox), "it did not wait for that");
}

#[test]
fn the_inbox_keeps_order_and_gives_tickets_back_when_closed() {
    let (inbox, mailbox) = (NodeInbox::default(), mailbox());
    let closed = |n| Input::Closed { conn: ConnId { slot: n, generation: 0 }, why: String::new() };
    let mut entries = VecDeque::new();
    inbox.take(&mut entries, Some(Duration::ZERO));
    assert!(entries.is_empty());
    inbox.push([Entry::Input(closed(1), None), Entry::Input(closed(2), None)]);
    inbox.take(&mut entries, None);
    inbox.push([Entry::Input(closed(3), None)]);
    inbox.take(&mut entries, None);
    let order: Vec<_> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Input(Input::Closed { conn, .. }, _) => conn.slot,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(order, [1, 2, 3]);
    inbox.push([Entry::Input(closed(4), Some(Ticket::new(&mailbox, EVENTS_MAX)))]);
    assert!(mailbox.is_crowded());
    inbox.close();
    assert!(!mailbox.is_crowded());
    inbox.push([Entry::Input(closed(5), Some(Ticket::new(&mailbox, EVENTS_MAX)))]);
    assert!(!mailbox.is_crowded(), "dropped, for nobody will take it");
}

#[test]
fn the_node_is_woken_by_whoever_pushes() {
    let inbox = Arc::new(NodeInbox::default());
    let pusher = inbox.clone();
    let pushing = std::thread::spawn(move || {
        for _ in 0..1_000 {
            pusher.push([Entry::Stop]);
        }
    });
    let (mut entries, mut total) = (VecDeque::new(), 0);
    while total < 1_000 {
        inbox.take(&mut entries, None);
        total += entries.drain(..).count();
    }
    pushing.join().unwrap();
}
