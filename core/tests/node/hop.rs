//! A site as an origin and as a hop, and what is said to it and by it.
//!
//! The site is `alpha`. As an origin it knows beta, with gamma and delta behind it; as a hop it stands
//! between beta, where things come from, and gamma.

use consign_core::code::{Cause, Refusal};
use consign_core::config::{Config, Route};
use consign_core::id::{ConnId, Handle, SegmentId};
use consign_core::ledger::read;
use consign_core::ledger::rows::State;
use consign_core::ledger::rows_upkeep::ReceiptRow;
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::segment::Destinations;
use consign_core::session::{Outcome, Promise, SessionCommand, SessionEvent};
use consign_core::store::StoreRequest;
use consign_core::wire::{Offer, Receipt, ReceiptOutcome};

use crate::site::{Site, config};

impl Site {
    /// A receipt as it is durable.
    pub fn receipt(&self, id: SegmentId, peer: &str) -> Option<ReceiptRow> {
        let (seq, _) = self.found(id)?;
        let key = keys::delivery(seq, self.site(peer));
        read::row(&self.store.snapshot(), Table::Receipts, &key).unwrap()
    }

    /// What a connection is told of receipts, in order, since the last look; answers bear a mark.
    pub fn said(&mut self, conn: ConnId) -> Vec<String> {
        let word = |outcome| match outcome {
            ReceiptOutcome::Delivered => "delivered".to_string(),
            ReceiptOutcome::Failed(cause) => Cause::from_number(cause).unwrap().to_string(),
        };
        let promises = self.promises().into_iter().filter(|(c, _)| *c == conn);
        let said = promises.filter_map(|(_, promise)| match promise {
            Promise::Receipt(r) => Some(format!("{}: {}", r.site, word(r.outcome))),
            Promise::ReceiptOk { receipt, later: false } => Some(format!("ok {}", receipt.site)),
            Promise::ReceiptOk { receipt, later: true } => Some(format!("later {}", receipt.site)),
            Promise::Ack { .. } => Some("ack".into()),
            _ => None,
        });
        said.collect()
    }
}

pub fn route(to: &str, via: &str) -> Route {
    Route { to: to.into(), via: via.into() }
}

pub fn origin() -> Site {
    let routes = vec![route("gamma", "beta"), route("delta", "beta")];
    Site::with(Config { routes, ..config(&["beta"]) })
}

pub fn hop() -> Site {
    Site::new(&["beta", "gamma", "omega"])
}

pub fn named(names: &[&str]) -> Destinations {
    Destinations::named(names.iter().map(|n| (*n).to_string()).collect()).unwrap()
}

pub fn receipt(site: &mut Site, conn: ConnId, id: SegmentId, of: &str, outcome: ReceiptOutcome) {
    let receipt = Receipt { id, site: of.into(), when: 77, outcome };
    site.input(Input::Session(conn, SessionEvent::Receipt(receipt)));
}

pub fn answer(site: &mut Site, conn: ConnId, id: SegmentId, of: &str, later: bool) {
    let event = SessionEvent::ReceiptOk { id, site: of.into(), later };
    site.input(Input::Session(conn, event));
}

/// An offer with everything a test may want to say, and what comes of it.
pub fn offer(
    site: &mut Site,
    conn: ConnId,
    transfer: u32,
    to: &[&str],
    with: impl FnOnce(&mut Offer),
) -> SegmentId {
    let id = offers(site, conn, transfer, to, with);
    site.settle();
    id
}

/// An offer that waits to be judged.
pub fn offers(
    site: &mut Site,
    conn: ConnId,
    transfer: u32,
    to: &[&str],
    with: impl FnOnce(&mut Offer),
) -> SegmentId {
    let body = b"one";
    let to = match to {
        ["*"] => Destinations::All,
        names => named(names),
    };
    let mut offer = Site::make_offer("one", body, transfer, to);
    with(&mut offer);
    let handle = Handle { conn, number: transfer };
    site.store.request(conn, StoreRequest::Park { handle, data: body.to_vec().into() });
    let id = offer.id;
    let event = SessionEvent::Offered { offer: Box::new(offer), body: Some(handle) };
    site.input(Input::Session(conn, event));
    id
}

pub fn refusal(site: &mut Site, conn: ConnId) -> Option<Refusal> {
    site.take_told(conn).into_iter().find_map(|command| match command {
        SessionCommand::Refuse { refusal, .. } => Some(refusal),
        _ => None,
    })
}

/// The only attempt handed to a session since the last look.
pub fn sent(site: &mut Site) -> (ConnId, Offer) {
    let mut sends = site.sendings();
    assert_eq!(sends.len(), 1, "{sends:?}");
    let (conn, sending) = sends.remove(0);
    (conn, sending.offer)
}

pub fn state(site: &Site, id: SegmentId, peer: &str) -> Option<State> {
    site.delivery(id, peer).map(|row| row.state)
}

/// A hop that has taken a segment for gamma from beta, offered it to gamma, and got the ACK.
pub fn passed_on() -> (Site, ConnId, ConnId, SegmentId) {
    let mut site = hop();
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    let id = offer(&mut site, beta, 1, &["gamma"], |_| ());
    let (conn, offer) = sent(&mut site);
    assert_eq!((conn, &offer.origin[..], offer.hops), (gamma, "beta", 2));
    site.outcome(gamma, offer.transfer, Outcome::Acked);
    site.settle();
    (site, beta, gamma, id)
}
