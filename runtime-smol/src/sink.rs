//! Where the store's answers go.

use std::sync::Arc;

use consign_core::id::ConnId;
use consign_core::node::Input;
use consign_core::store::{Sink, StoreEvent};

use crate::queue::{Entry, Mail, NodeInbox};
use crate::table::Table;

/// Takes answers to the node's inbox and to mailboxes. Holds nothing of the store, so that the store
/// may hold it.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) inbox: Arc<NodeInbox>,
    pub(crate) table: Arc<Table>,
}

impl Sink for Answers {
    fn node(&self, input: Input) {
        self.inbox.push([Entry::Input(input, None)]);
    }

    fn conn(&self, conn: ConnId, event: StoreEvent) {
        if let Some(mailbox) = self.table.get(conn) {
            mailbox.push([Mail::Store(event)]);
        }
    }

    fn conn_all(&self, conn: ConnId, events: Vec<StoreEvent>) {
        if let Some(mailbox) = self.table.get(conn) {
            mailbox.push(events.into_iter().map(Mail::Store));
        }
    }
}
