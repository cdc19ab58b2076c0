//! Wake-ups between threads and tasks.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
struct State {
    set: bool,
    wakers: Vec<Waker>,
}

/// Something that happens once, for any number of tasks that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Signal(Mutex<State>);

impl Signal {
    /// It has happened.
    pub(crate) fn set(&self) {
        let wakers = {
            let mut state = self.lock();
            state.set = true;
            std::mem::take(&mut state.wakers)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Waits for it.
    pub(crate) async fn wait(&self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.set {
            return Poll::Ready(());
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
