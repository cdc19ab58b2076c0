//! What is asked of whom for a request that is whole.

use consign_core::id::TransferNo;
use consign_core::node::{LogWanted, Question};
use consign_core::session::{SessionEvent, SessionOut};
use consign_core::store::{Query, Snapshot, StoreFault, StoreRequest};
use consign_core::time::Now;

use super::answer::json;
use super::{AdminSession, Task};
use crate::admin::assurance::{self, Rules};
use crate::admin::route::Route;
use crate::admin::shapes::PendingPeers;
use crate::admin::{exports, ledger, lists, shape};

impl AdminSession {
    /// The request is whole: asks whoever knows.
    pub(super) fn begin(&mut self, now: Now, route: Route, out: &mut SessionOut) {
        let ticket = self.ticket();
        match &route {
            Route::Events(wanted, wait) => return self.events(now, *wanted, *wait, out),
            Route::Pending => {
                let shape = PendingPeers::of(self.context.strangers.list());
                return self.shape(now, 200, &[], &shape, out);
            }
            Route::Page => return self.page(now, out),
            Route::Link => return self.link(now, out),
            Route::Enter(code) => return self.enter(now, code, out),
            Route::Ping(peer, wait) => {
                let asked = (peer.clone(), *wait);
                return self.ping(now, ticket, asked, out);
            }
            Route::Health => return self.text(now, 200, "ok\n", out),
            Route::Status
            | Route::Ready
            | Route::Stop
            | Route::ConfirmClock
            | Route::Reload
            | Route::Log
            | Route::SetLog(_)
            | Route::Peers
            | Route::Metrics
            | Route::ExportRun
            | Route::Unwatch(..) => {
                let question = match &route {
                    Route::Stop => Question::Stop,
                    Route::ConfirmClock => Question::ConfirmClock,
                    Route::Reload => Question::Reload(self.asker.who()),
                    Route::SetLog(wanted) => {
                        let who = self.asker.who();
                        Question::LogLevel(LogWanted { who, ..wanted.clone() })
                    }
                    Route::ExportRun => Question::InboxRun,
                    Route::Unwatch(rule, paths) => Question::Unwatch(*rule, paths.clone()),
                    _ => Question::Status,
                };
                out.events.push(SessionEvent::Ask { ticket, question });
                self.task = Task::Ask(ticket, route);
                return;
            }
            Route::List(listing) => {
                let (listing, wall) = (listing.clone(), now.wall);
                query(ticket, out, move |s| json(&ledger::list(s, &listing, wall)?));
            }
            Route::Show(id) => {
                let (id, wall) = (id.clone(), now.wall);
                query(ticket, out, move |s| json(&ledger::show(s, &id, wall)?));
            }
            Route::Content(id) => {
                let id = id.clone();
                query(ticket, out, move |s| json(&ledger::locate(s, &id)?));
            }
            Route::Dead(listing) => {
                let (listing, wall) = (listing.clone(), now.wall);
                query(ticket, out, move |s| json(&lists::dead(s, &listing, wall)?));
            }
            Route::Groups(listing) => {
                let (listing, wall) = (listing.clone(), now.wall);
                query(ticket, out, move |s| json(&lists::groups(s, &listing, wall)?));
            }
            Route::Audit(listing) => {
                let listing = listing.clone();
                query(ticket, out, move |s| json(&lists::audit(s, &listing)?));
            }
            Route::Assured(id) => {
                let (id, wall, rules) = (id.clone(), now.wall, self.rules());
                query(ticket, out, move |s| json(&assurance::of(s, &id, &rules, wall)?));
            }
            Route::Assurances(selection) => {
                let (selection, wall, rules) = (selection.clone(), now.wall, self.rules());
                query(ticket, out, move |s| json(&assurance::list(s, &selection, &rules, wall)?));
            }
            Route::Shape(after) => {
                let (after, wall) = (*after, now.wall);
                query(ticket, out, move |s| json(&shape::slice(s, after, wall)?));
            }
            Route::Exports(listing) => {
                let (listing, wall, context) = (listing.clone(), now.wall, self.context.clone());
                query(ticket, out, move |s| {
                    json(&exports::list(s, &listing, &context.inbox, wall)?)
                });
            }
            Route::ExportRetry(id) => {
                let id = id.clone();
                query(ticket, out, move |s| json(&ledger::find(s, &id)?.map(|seq| seq.0)));
            }
            Route::Watched(listing) => {
                let listing = listing.clone();
                query(ticket, out, move |s| json(&exports::watched_files(s, &listing)?));
            }
            Route::Pickup(route) => super::pickup::ask(route, ticket, out),
            Route::Submit(_) | Route::Act => unreachable!("its body comes first"),
        }
        self.task = Task::Query(ticket, route);
    }

    fn rules(&self) -> Rules {
        let inbox = self.context.inbox.keys().copied().collect();
        Rules { success: self.context.reloads.condition(), inbox }
    }
}

pub(in crate::admin::session) fn query(
    ticket: TransferNo,
    out: &mut SessionOut,
    read: impl FnOnce(&dyn Snapshot) -> Result<Vec<u8>, StoreFault> + Send + 'static,
) {
    let query: Query = Box::new(read);
    out.requests.push(StoreRequest::Query { ticket, query });
}
