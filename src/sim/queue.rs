//! The world's own events, in one total order: by time, then in the order they were planned.

use std::collections::BTreeMap;

use super::time::Micros;

/// Events to come.
#[derive(Debug)]
pub struct Queue<E> {
    events: BTreeMap<(Micros, u64), E>,
    planned: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Queue<E> {
        Queue { events: BTreeMap::new(), planned: 0 }
    }
}

impl<E> Queue<E> {
    /// Plans an event.
    pub fn plan(&mut self, at: Micros, event: E) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    /// When the first is due.
    #[must_use]
    pub fn next(&self) -> Option<Micros> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the first event if it is due.
    pub fn take(&mut self, now: Micros) -> Option<E> {
        let due = self.next()? <= now;
        due.then(|| self.events.pop_first())?.map(|(_, event)| event)
    }

    /// Drops events that are not wanted any more.
    pub fn retain(&mut self, mut keep: impl FnMut(&E) -> bool) {
        self.events.retain(|_, event| keep(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_they_were_planned() {
        let mut queue = Queue::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            queue.plan(Micros(at), event);
        }
        assert_eq!(queue.next(), Some(Micros(1)));
        let due: String = std::iter::from_fn(|| queue.take(Micros(4))).collect();
        assert_eq!(due, "ab");
        queue.retain(|event| *event != 'c');
        assert_eq!(queue.take(Micros(5)), Some('d'));
        assert_eq!(queue.take(Micros::FAR), None);
    }
}
