//! Wake-ups are neither lost nor given for nothing, and credit comes back.

use std::task::Wake;

use consign_core::code::Goodbye;

use super::*;

fn mailbox() -> Arc<Mailbox> {
    Arc::new(Mailbox::new(ConnId { slot: 1, generation: 2 }))
}

fn mail() -> Mail {
    Mail::Command(SessionCommand::Close { why: Goodbye::Stopping, text: String::new() })
}

/// Counts wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task's side of a mailbox.
struct Task(Arc<Count>, Arc<Mailbox>);

impl Task {
    fn new(mailbox: &Arc<Mailbox>) -> Task {
        Task(Arc::default(), mailbox.clone())
    }

    fn is_ready(&self) -> bool {
        let waker = Waker::from(self.0.clone());
        self.1.poll(&mut Context::from_waker(&waker)).is_ready()
    }

    fn wakes(&self) -> usize {
        self.0.0.swap(0, Ordering::Relaxed)
    }
}

#[test]
fn only_a_waiting_task_is_woken_and_only_once() {
    let mailbox = mailbox();
    let task = Task::new(&mailbox);
    mailbox.push([mail()]);
    assert!(task.is_ready());
    assert_eq!(mailbox.take().0.len(), 1);
    assert!(!task.is_ready());
    mailbox.push([mail()]);
    mailbox.push([mail()]);
    assert_eq!(task.wakes(), 1);
    assert!(task.is_ready());
    assert_eq!(mailbox.take().0.len(), 2);
    mailbox.push([mail()]);
    assert_eq!(task.wakes(), 0, "it is awake");
}

#[test]
fn an_end_is_seen_and_does_not_weaken() {
    let mailbox = mailbox();
    let task = Task::new(&mailbox);
    assert!(!task.is_ready());
    mailbox.end(Ending::Cut);
    assert_eq!(task.wakes(), 1);
    mailbox.end(Ending::Stop);
    assert!(task.is_ready());
    assert_eq!(mailbox.take().1, Ending::Cut);
    assert!(!task.is_ready(), "told once");
}

#[test]
fn a_crowd_of_events_stops_reading_until_the_node_has_caught_up() {
    let mailbox = mailbox();
    let task = Task::new(&mailbox);
    let first = Ticket::new(&mailbox, EVENTS_MAX - 1);
    assert!(!mailbox.is_crowded());
    let second = Ticket::new(&mailbox, 500);
    assert!(mailbox.is_crowded() && !task.is_ready());
    drop(second);
    assert!(!mailbox.is_crowded());
    assert_eq!(task.wakes(), 1, "it may read again");
    mailbox.take();
    assert!(!task.is_ready());
    drop(first);
    assert_eq!(task.wakes(), 0, "it did not wait for that");
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
