//! What a small world does with connections, files and commits: the steps that touch a session or a
//! store.

use std::rc::Rc;

use consign_core::id::{ConnId, ReadNo};
use consign_core::node::Input;
use consign_core::session::peer::PeerSession;
use consign_core::session::{
    Broken as Cut, ConnInfo, Identity, Session, SessionEvent, SessionInput, SessionOut,
};
use consign_core::store::{Errand, StoreEvent, StoreRequest};
use consign_core::time::UnixMillis;
use consign_core::wire::{self, Frame};

use super::NAMES;
use super::check::{Checked, broken};
use super::nth::{Call as Kind, Hit};
use super::ops::{CHECKPOINT, other};
use super::site::{Call, End, print, session_config};
use super::world::{BEGIN, World};
use crate::sim::seen::{Death, Seen, SiteIx};

/// Room a session is given after each of its steps.
const ROOM: usize = 256 << 10;
/// How long certificates are valid, in milliseconds: longer than any small world lives.
const VALID: u64 = 10 * 365 * 86_400_000;

impl World {
    /// A dial is answered.
    pub(super) fn dial(&mut self, i: SiteIx) -> Checked {
        let Some(to) = self.sites[i].dials.pop_front() else { return Ok(()) };
        let j = other(i);
        if self.sites[j].pump.is_none() {
            let why = "connection refused".to_string();
            self.sites[i].inbox.push(Input::DialFailed { site: to, why, reached: false });
            return Ok(());
        }
        let (here, there) = (self.sites[i].conn(0), self.sites[j].conn(0));
        self.attach(i, here, there, true)?;
        self.attach(j, there, here, false)?;
        self.feed(i, here, SessionInput::Open)?;
        self.feed(j, there, SessionInput::Open)
    }

    fn attach(&mut self, i: SiteIx, conn: ConnId, to: ConnId, dialled: bool) -> Checked {
        let name = NAMES[other(i)].to_string();
        let not_after = UnixMillis(BEGIN.0 + VALID).0;
        let identity = Identity { name: name.clone(), fingerprint: [0; 32], not_after };
        let info = ConnInfo { conn, remote: name, uid: None, identity: Some(identity.clone()) };
        let site = &mut self.sites[i];
        let config = session_config(&site.config);
        let session = PeerSession::with_checkpoints(&info, config, CHECKPOINT);
        let end = End {
            print: print(&format!("{session:?}")),
            session: Rc::new(session),
            other: Some(to),
            closed: false,
            air: Vec::new(),
            heard: Vec::new(),
            words: Default::default(),
            calls: Default::default(),
            epoch: None,
        };
        site.ends.insert(conn, end);
        site.inbox.push(Input::Connected { conn, identity, dialled });
        Ok(())
    }

    /// One input of a session, and room for what it wants to send.
    pub(super) fn feed(&mut self, i: SiteIx, conn: ConnId, input: SessionInput<'_>) -> Checked {
        let mut out = SessionOut::default();
        let now = self.now;
        let Some(end) = self.sites[i].ends.get_mut(&conn) else { return Ok(()) };
        let session = Rc::make_mut(&mut end.session);
        session.step(now, input, &mut out);
        session.step(now, SessionInput::Room(ROOM), &mut out);
        session.step(now, SessionInput::Handed(u64::MAX), &mut out);
        end.print = print(&format!("{:?}", end.session));
        self.carry(i, conn, out)
    }

    /// Requests before events before bytes.
    fn carry(&mut self, i: SiteIx, conn: ConnId, out: SessionOut) -> Checked {
        let bytes = out.pieces().collect::<Vec<_>>().concat();
        let site = &mut self.sites[i];
        for request in out.requests {
            if let StoreRequest::Park { .. } = request {
                site.store.request(conn, request);
                site.print_store();
            } else if let Some(end) = site.ends.get_mut(&conn) {
                end.calls.push_back(Call::of(request));
            }
        }
        site.inbox.extend(out.events.into_iter().map(|event| Input::Session(conn, event)));
        self.frames(i, conn, &bytes)?;
        let to = self.sites[i].ends.get(&conn).and_then(|end| end.other);
        if let Some(end) = to.and_then(|to| self.sites[other(i)].ends.get_mut(&to)) {
            end.air.extend_from_slice(&bytes);
        }
        if out.close { self.close(i, conn, String::new()) } else { Ok(()) }
    }

    /// Looks at what leaves: a session hands out whole frames.
    fn frames(&mut self, i: SiteIx, conn: ConnId, mut bytes: &[u8]) -> Checked {
        const WHOLE: &str = "a session sends whole frames that can be read";
        while !bytes.is_empty() {
            let (used, frame) = match wire::decode(bytes) {
                Ok(Some(read)) => read,
                no => return broken(WHOLE, format!("{}: {no:?}", NAMES[i])),
            };
            bytes = &bytes[used..];
            let peer = other(i);
            self.watch.see(self.now, i, &Seen::FrameSent { peer, conn, frame: &frame })?;
            let site = &mut self.sites[i];
            let Some(end) = site.ends.get_mut(&conn) else { return Ok(()) };
            match frame {
                Frame::Hello(hello) => end.epoch = Some(hello.epoch),
                Frame::Ack { id, .. } => self.check.ack_sent(i, id, &site.store)?,
                Frame::Offer(offer, _) => {
                    let epoch = end.epoch.unwrap_or_default();
                    self.check.offer_sent(i, offer.id, epoch, &site.store)?;
                }
                Frame::BadOffer(_)
                | Frame::Segment { .. }
                | Frame::Accept { .. }
                | Frame::Reject { .. }
                | Frame::Ping(_)
                | Frame::Pong(_)
                | Frame::Goodbye { .. }
                | Frame::Credit { .. }
                | Frame::Receipt(_)
                | Frame::Want { .. }
                | Frame::ReceiptOk { .. }
                | Frame::Skipped(_) => {}
            }
        }
        Ok(())
    }

    /// This end of a connection is over: the store does what was asked of it, the node hears of it,
    /// the other end has yet to learn.
    fn close(&mut self, i: SiteIx, conn: ConnId, why: String) -> Checked {
        let site = &mut self.sites[i];
        let Some(end) = site.ends.remove(&conn) else { return Ok(()) };
        for call in end.calls {
            let done = site.store.request(conn, call.request());
            if let Some(StoreEvent::Finished { blob, .. }) = done {
                self.watch.whole(self.now, i, blob, &site.store)?;
            }
        }
        site.store.conn_ended(conn);
        site.print_store();
        site.inbox.push(Input::Closed { conn, why });
        if let Some(far) = end.other.and_then(|to| self.sites[other(i)].ends.get_mut(&to)) {
            far.other = None;
            far.closed = true;
        }
        Ok(())
    }

    /// A site learns that a connection is gone.
    pub(super) fn notice(&mut self, i: SiteIx, conn: ConnId) -> Checked {
        let closed = self.sites[i].ends.get(&conn).is_some_and(|end| end.closed);
        if closed {
            self.feed(i, conn, SessionInput::Eof)?;
        }
        self.close(i, conn, if closed { String::new() } else { "reset".to_string() })
    }

    /// Bytes arrive.
    pub(super) fn arrive(&mut self, i: SiteIx, conn: ConnId, most: usize) -> Checked {
        let Some(end) = self.sites[i].ends.get_mut(&conn) else { return Ok(()) };
        let bytes: Vec<u8> = end.air.drain(..most.min(end.air.len())).collect();
        if self.watch.is_on() {
            end.heard.extend_from_slice(&bytes);
            let heard = std::mem::take(&mut end.heard);
            let mut rest = heard.as_slice();
            while let Ok(Some((used, frame))) = wire::decode(rest) {
                rest = &rest[used..];
                let (peer, frame) = (other(i), &frame);
                self.watch.see(self.now, i, &Seen::FrameArrived { peer, conn, frame })?;
            }
            if let Some(end) = self.sites[i].ends.get_mut(&conn) {
                end.heard = rest.to_vec();
            }
        }
        self.feed(i, conn, SessionInput::Bytes(&bytes))
    }

    /// A session hears everything its node has said.
    pub(super) fn word(&mut self, i: SiteIx, conn: ConnId) -> Checked {
        loop {
            let end = self.sites[i].ends.get_mut(&conn);
            let Some(command) = end.and_then(|end| end.words.pop_front()) else { return Ok(()) };
            self.feed(i, conn, SessionInput::Command(command))?;
        }
    }

    /// Sessions whose deadline has come have a look.
    pub(super) fn ring(&mut self) -> Checked {
        for i in 0..2 {
            let due = |end: &End| end.session.next_deadline().is_some_and(|at| at <= self.now.mono);
            let ends = self.sites[i].ends.iter();
            let conns: Vec<ConnId> = ends.filter(|(_, e)| due(e)).map(|(conn, _)| *conn).collect();
            for conn in conns {
                self.feed(i, conn, SessionInput::Timer)?;
            }
        }
        Ok(())
    }

    /// The store does the next file request of a connection.
    pub(super) fn file(&mut self, i: SiteIx, conn: ConnId) -> Checked {
        let site = &mut self.sites[i];
        let calls = match (site.ends.get_mut(&conn), site.clients.get_mut(&conn)) {
            (Some(end), _) => &mut end.calls,
            (None, Some(client)) => &mut client.calls,
            (None, None) => return Ok(()),
        };
        let Some(call) = calls.pop_front() else { return Ok(()) };
        let hit = self.hit(Kind::of(&call));
        if hit == Hit::Before {
            return self.crash(i, Death::PowerCut);
        }
        let site = &mut self.sites[i];
        let event = match hit.fault() {
            Some(fault) => super::nth::failed_call(&mut site.store, conn, call, fault),
            None => site.store.request(conn, call.request()),
        };
        site.print_store();
        if let Some(StoreEvent::Finished { blob, .. }) = event {
            self.watch.whole(self.now, i, blob, &site.store)?;
        }
        self.check.durable(i, &self.sites[i].store)?;
        if hit == Hit::After {
            return self.crash(i, Death::PowerCut);
        }
        match event {
            Some(event) if self.sites[i].clients.contains_key(&conn) => {
                self.client_event(i, conn, event);
                Ok(())
            }
            Some(event) => self.feed(i, conn, SessionInput::Store(event)),
            None => Ok(()),
        }
    }

    fn client_event(&mut self, i: SiteIx, conn: ConnId, event: StoreEvent) {
        let site = &mut self.sites[i];
        match event {
            StoreEvent::Finished { .. } => site.client_finished(i, conn),
            StoreEvent::WriteFailed { blob, fault } => {
                let why = Cut::Store(fault);
                let transfer = consign_core::id::TransferNo(1);
                let event = SessionEvent::Broken { transfer, blob, why };
                if let Some(client) = site.clients.get_mut(&conn) {
                    client.calls.clear();
                }
                site.inbox.push(Input::Session(conn, event));
            }
            StoreEvent::Written { .. }
            | StoreEvent::Synced { .. }
            | StoreEvent::Content { .. }
            | StoreEvent::Queried { .. } => {}
        }
    }

    /// The batch becomes durable.
    pub(super) fn commit(&mut self, i: SiteIx) -> Checked {
        let Some(batch) = self.sites[i].batch.take() else { return Ok(()) };
        let hit = self.hit(Kind::Commit);
        if hit == Hit::Before {
            return self.crash(i, Death::PowerCut);
        }
        let site = &mut self.sites[i];
        if let Some(fault) = hit.fault() {
            site.store.fail_commit(1, super::nth::commit_fault(fault));
        }
        let answer = site.store.commit(&batch);
        site.print_store();
        if matches!(answer, Input::Committed { .. }) {
            self.watch.durable(self.now, i, &batch, &site.store)?;
        }
        self.check.durable(i, &site.store)?;
        if hit == Hit::After {
            return self.crash(i, Death::PowerCut);
        }
        let fine = self.fine();
        let site = &mut self.sites[i];
        if fine {
            site.told = Some(answer)
        } else {
            site.inbox.push(answer)
        }
        Ok(())
    }

    /// A read looks at the ledger, or its answer reaches the node's queue.
    pub(super) fn read(&mut self, i: SiteIx, number: ReadNo) -> Checked {
        let Some((request, answer)) = self.sites[i].reads.remove(&number) else { return Ok(()) };
        if let Some(answer) = answer {
            self.sites[i].inbox.push(Input::Read(number, answer));
            return Ok(());
        }
        let hit = self.hit(Kind::Read);
        if matches!(hit, Hit::Before | Hit::After) {
            return self.crash(i, Death::PowerCut);
        }
        let fine = self.fine();
        let site = &mut self.sites[i];
        let answer = match hit.fault() {
            Some(fault) => Err(super::nth::store_fault(fault)),
            None => site.store.read(&request),
        };
        if fine {
            site.reads.insert(number, (request, Some(answer)));
        } else {
            site.inbox.push(Input::Read(number, answer));
        }
        Ok(())
    }

    /// Every read is answered, in the order in which they were asked.
    pub(super) fn answer_all(&mut self, i: SiteIx) -> Checked {
        while let Some((number, _)) = self.sites[i].reads.first_key_value() {
            let number = *number;
            self.read(i, number)?;
        }
        Ok(())
    }

    /// A doomed file is removed.
    pub(super) fn unlink(&mut self, i: SiteIx) -> Checked {
        let Some(blob) = self.sites[i].unlinks.pop_front() else { return Ok(()) };
        let hit = self.hit(Kind::Unlink);
        if hit == Hit::Before {
            return self.crash(i, Death::PowerCut);
        }
        let site = &mut self.sites[i];
        let answer = match hit.fault() {
            Some(fault) => {
                Some(Input::Unlinked { blob, result: Err(super::nth::store_fault(fault)) })
            }
            None => site.store.errand(Errand::Unlink(blob)),
        };
        let gone = matches!(answer, Some(Input::Unlinked { result: Ok(()), .. }));
        site.inbox.extend(answer);
        site.print_store();
        self.check.durable(i, &site.store)?;
        if gone {
            self.watch.see(self.now, i, &Seen::FileGone(blob))?;
        }
        if hit == Hit::After { self.crash(i, Death::PowerCut) } else { Ok(()) }
    }
}
