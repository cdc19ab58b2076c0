//! A relay with clients and nodes that are played by the test.

use std::collections::BTreeMap;
use std::time::Duration;

use consign_core::config::{BufferConfig, Config};
use consign_core::id::{BlobDigest, BlobNo, ConnId, Handle, Sha256Digest, TransferNo};
use consign_core::ledger::Table;
use consign_core::ledger::keys_pickup::{self, ShardKey};
use consign_core::ledger::read;
use consign_core::ledger::rows_pickup::{AckStatus, NodeRow, ShardRow, ShardState, TokenRow};
use consign_core::node::{Input, PickupStatus};
use consign_core::pickup::{
    AckAsk, Answer, BrokenUpload, Command, Event, FetchAsk, FetchEnd, Notify, Operator,
    OperatorAct, PickupRefusal, Serve, ShardView, Signed, TokenOffer, UploadAsk, UploadKind,
};
use consign_core::session::{Content, Promise, SessionCommand, SessionEvent};
use consign_core::store::StoreRequest;

use crate::site::{Site, config, findings};

pub const KEY: [u8; 32] = [1; 32];
pub const MIB: u64 = 1 << 20;

/// What a connection was told.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Answer(Answer),
    Command(Command),
}

pub struct Relay {
    pub site: Site,
    tickets: u32,
    tokens: u64,
    nonces: u64,
    /// Tokens by handle that a session has drawn.
    pub drawn: BTreeMap<(ConnId, u64), Sha256Digest>,
}

pub fn shard(file: &str, index: u64) -> ShardKey {
    ShardKey::new(file, 1, index, "n1").unwrap()
}

pub fn token_of(client: &str) -> Sha256Digest {
    Sha256Digest(*blake3::hash(client.as_bytes()).as_bytes())
}

pub fn digests(body: &[u8]) -> (Sha256Digest, BlobDigest) {
    // Which hash it is does not matter here: the session computes it.
    let mut other = *blake3::hash(body).as_bytes();
    other.reverse();
    (Sha256Digest(other), BlobDigest(*blake3::hash(body).as_bytes()))
}

pub fn with(buffer: BufferConfig) -> Config {
    Config { buffer, ..config(&[]) }
}

impl Relay {
    pub fn new() -> Relay {
        Relay::with(config(&[]))
    }

    pub fn with(config: Config) -> Relay {
        let site = Site::with(config);
        let mut relay = Relay { site, tickets: 0, tokens: 0, nonces: 0, drawn: BTreeMap::new() };
        relay.site.settle();
        relay.act(OperatorAct::EnrolNode { id: "n1".into(), key: KEY }).unwrap();
        relay.act(OperatorAct::EnrolNode { id: "n2".into(), key: [2; 32] }).unwrap();
        for name in ["cam", "eve"] {
            let token = token_of(name);
            relay.act(OperatorAct::EnrolClient { name: name.into(), token }).unwrap();
        }
        relay
    }

    /// A power cut, and the next start.
    pub fn restart(self) -> Relay {
        let site = self.site.restart();
        Relay { site, ..self }
    }

    pub fn ticket(&mut self) -> TransferNo {
        self.tickets += 1;
        TransferNo(self.tickets)
    }

    pub fn tell(&mut self, conn: ConnId, event: Event) {
        self.site.input(Input::Session(conn, SessionEvent::Pickup(Box::new(event))));
    }

    /// Everything a connection was told since the last look, in order.
    pub fn said(&mut self, conn: ConnId) -> Vec<Said> {
        let told = self.site.take_told(conn);
        let said = told.into_iter().filter_map(|command| match command {
            SessionCommand::Pickup(command) => Some(Said::Command(*command)),
            SessionCommand::Promised(promised) => match promised.into_inner() {
                Promise::Pickup(answer) => Some(Said::Answer(*answer)),
                other => panic!("{other:?}"),
            },
            SessionCommand::Close { .. } => None,
            other => panic!("{other:?}"),
        });
        said.collect()
    }

    /// Tells and waits for the one answer.
    pub fn ask(&mut self, conn: ConnId, event: Event) -> Said {
        self.tell(conn, event);
        self.site.settle();
        let mut said = self.said(conn);
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    }

    /// As [`Relay::ask`], for what is answered or refused.
    pub fn call(&mut self, conn: ConnId, event: Event) -> Result<Answer, PickupRefusal> {
        match self.ask(conn, event) {
            Said::Answer(answer) => Ok(answer),
            Said::Command(Command::Refuse { refusal, .. })
            | Said::Command(Command::AckRefused { refusal, .. }) => Err(refusal),
            Said::Command(other) => panic!("{other:?}"),
        }
    }

    pub fn act(&mut self, act: OperatorAct) -> Result<bool, PickupRefusal> {
        let conn = self.site.client();
        let ticket = self.ticket();
        let (who, why) = ("uid:1000".to_string(), "test".to_string());
        let act = Box::new(Operator { act, who, why });
        match self.call(conn, Event::Operator { ticket, act })? {
            Answer::Done { report, .. } => Ok(report.changed),
            other => panic!("{other:?}"),
        }
    }

    pub fn ask_of(&self, shard: &ShardKey, size: Option<u64>) -> UploadAsk {
        UploadAsk {
            shard: shard.clone(),
            client: Some(token_of("cam")),
            kind: UploadKind::Post,
            size,
            body: size,
            sha256: None,
            blake3: None,
            complete: true,
            whole: None,
        }
    }

    /// A small upload, parked.
    pub fn small(&mut self, conn: ConnId, shard: &ShardKey, body: &[u8]) -> UploadAsk {
        let number = self.ticket().0;
        let handle = Handle { conn, number };
        self.site.store.request(conn, StoreRequest::Park { handle, data: body.to_vec().into() });
        let (sha256, blake3) = digests(body);
        let size = body.len() as u64;
        UploadAsk {
            whole: Some((Content::Parked(handle), size, sha256, blake3)),
            ..self.ask_of(shard, Some(size))
        }
    }

    pub fn upload(&mut self, ask: UploadAsk) -> Result<(bool, ShardView), PickupRefusal> {
        let conn = self.site.client();
        self.upload_on(conn, ask)
    }

    pub fn upload_on(
        &mut self,
        conn: ConnId,
        ask: UploadAsk,
    ) -> Result<(bool, ShardView), PickupRefusal> {
        let ticket = self.ticket();
        match self.call(conn, Event::Upload { ticket, ask: Box::new(ask) })? {
            Answer::Buffered { new, view, .. } => Ok((new, *view)),
            other => panic!("{other:?}"),
        }
    }

    /// Uploads a small shard.
    pub fn put(&mut self, shard: &ShardKey, body: &[u8]) -> ShardView {
        let conn = self.site.client();
        let ask = self.small(conn, shard, body);
        let (new, view) = self.upload_on(conn, ask).unwrap();
        assert!(new);
        view
    }

    /// Begins an upload to a file: its connection, ticket, blob and where it begins.
    pub fn begin(&mut self, ask: UploadAsk) -> Result<Writer, PickupRefusal> {
        let conn = self.site.client();
        let ticket = self.ticket();
        let answer = self.call(conn, Event::Upload { ticket, ask: Box::new(ask) })?;
        let Answer::Granted { blob, offset, reserved, .. } = answer else { panic!("{answer:?}") };
        self.site.store.request(conn, StoreRequest::Create { blob, offset });
        Ok(Writer { conn, ticket, blob, offset, reserved })
    }

    pub fn write(&mut self, writer: &Writer, bytes: &[u8]) {
        let data = bytes.to_vec().into();
        self.site.store.request(writer.conn, StoreRequest::Write { blob: writer.blob, data });
        self.site.store.request(writer.conn, StoreRequest::Sync { blob: writer.blob });
    }

    pub fn whole(
        &mut self,
        writer: &Writer,
        body: &[u8],
    ) -> Result<(bool, ShardView), PickupRefusal> {
        self.site.store.request(writer.conn, StoreRequest::Finish { blob: writer.blob });
        let (sha256, blake3) = digests(body);
        let (ticket, blob, size) = (writer.ticket, writer.blob, body.len() as u64);
        let event = Event::Whole { ticket, blob, size, sha256, blake3 };
        match self.call(writer.conn, event)? {
            Answer::Buffered { new, view, .. } => Ok((new, *view)),
            other => panic!("{other:?}"),
        }
    }

    pub fn cut(&mut self, writer: &Writer, offset: u64) -> Result<Answer, PickupRefusal> {
        self.site.store.request(writer.conn, StoreRequest::Abandon { blob: writer.blob });
        let why = BrokenUpload::Cut { offset, chain: vec![7; 4] };
        let (ticket, blob) = (writer.ticket, writer.blob);
        self.call(writer.conn, Event::Broken { ticket, blob, why })
    }

    /// Uploads a shard to a file.
    pub fn put_file(&mut self, shard: &ShardKey, body: &[u8]) -> ShardView {
        let ask = self.ask_of(shard, Some(body.len() as u64));
        let writer = self.begin(ask).unwrap();
        self.write(&writer, body);
        self.whole(&writer, body).unwrap().1
    }

    pub fn head(
        &mut self,
        shard: &ShardKey,
        client: &str,
    ) -> Result<(u64, bool, ShardState), PickupRefusal> {
        let conn = self.site.client();
        let ticket = self.ticket();
        let client = Some(token_of(client));
        match self.call(conn, Event::Head { ticket, shard: shard.clone(), client })? {
            Answer::Offset { offset, complete, state, .. } => Ok((offset, complete, state)),
            other => panic!("{other:?}"),
        }
    }

    pub fn slot(
        &mut self,
        shard: &ShardKey,
        client: &str,
        size: u64,
    ) -> Result<(bool, u64), PickupRefusal> {
        let conn = self.site.client();
        let ticket = self.ticket();
        let client = Some(token_of(client));
        match self.call(conn, Event::Slot { ticket, shard: shard.clone(), client, size })? {
            Answer::Slot { new, expires_at, .. } => Ok((new, expires_at.0)),
            other => panic!("{other:?}"),
        }
    }

    pub fn signed(&mut self, node: &str, key: [u8; 32]) -> Signed {
        self.nonces += 1;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.nonces.to_be_bytes());
        Signed { node: node.into(), key, timestamp: self.site.now.wall.0 / 1000, nonce }
    }

    /// A node's WebSocket from the upgrade to its registration.
    pub fn node(&mut self, node: &str, key: [u8; 32]) -> ConnId {
        let conn = self.subscribe(node, key);
        self.register(conn);
        conn
    }

    pub fn subscribe(&mut self, node: &str, key: [u8; 32]) -> ConnId {
        let conn = self.site.client();
        let (ticket, signed) = (self.ticket(), self.signed(node, key));
        let answer = self.call(conn, Event::Subscribe { ticket, signed }).unwrap();
        assert!(matches!(answer, Answer::Upgraded { .. }), "{answer:?}");
        conn
    }

    pub fn offers(&mut self, conn: ConnId, count: u64) -> Vec<TokenOffer> {
        let mut offers = Vec::new();
        for _ in 0..count {
            self.tokens += 1;
            let hash = Sha256Digest(*blake3::hash(&self.tokens.to_be_bytes()).as_bytes());
            offers.push(TokenOffer { handle: self.tokens, hash });
            self.drawn.insert((conn, self.tokens), hash);
        }
        offers
    }

    pub fn register(&mut self, conn: ConnId) {
        let window = u64::from(self.site.config.buffer.notify_window);
        let tokens = self.offers(conn, window);
        self.tell(conn, Event::Register { tokens });
    }

    /// Notifications of a session since the last look; each token that was used is replaced.
    pub fn notified(&mut self, conn: ConnId) -> Vec<Notify> {
        self.site.settle();
        let mut all = Vec::new();
        for said in self.said(conn) {
            match said {
                Said::Answer(Answer::Notify(notify)) => all.push(*notify),
                Said::Answer(Answer::Registered { .. } | Answer::State { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        if !all.is_empty() {
            let offers = self.offers(conn, all.len() as u64);
            self.tell(conn, Event::Tokens(offers));
            self.site.settle();
        }
        all
    }

    pub fn hash(&self, conn: ConnId, notify: &Notify) -> Sha256Digest {
        self.drawn[&(conn, notify.handle)]
    }

    /// Redeems a token on a connection of its own.
    pub fn redeem(&mut self, hash: Sha256Digest) -> Result<(ConnId, Serve), PickupRefusal> {
        let signed = self.signed("n1", KEY);
        self.redeem_as(signed, Some(hash), None)
    }

    pub fn redeem_as(
        &mut self,
        signed: Signed,
        token: Option<Sha256Digest>,
        from: Option<u64>,
    ) -> Result<(ConnId, Serve), PickupRefusal> {
        let conn = self.site.client();
        let ticket = self.ticket();
        let ask = Box::new(FetchAsk { signed, token, from });
        match self.call(conn, Event::Fetch { ticket, ask })? {
            Answer::Serve { serve, .. } => Ok((conn, *serve)),
            other => panic!("{other:?}"),
        }
    }

    pub fn fetched(&mut self, conn: ConnId, redemption: u64, end: FetchEnd) {
        self.tell(conn, Event::FetchEnded { redemption, end });
        self.site.settle();
    }

    pub fn ack(
        &mut self,
        conn: ConnId,
        shard: &ShardKey,
        redemption: u64,
        status: AckStatus,
    ) -> Result<ShardState, PickupRefusal> {
        let ask = AckAsk { shard: shard.clone(), redemption, status, reason: "why".into() };
        self.tell(conn, Event::Ack(Box::new(ask)));
        self.site.settle();
        let mut outcome = None;
        let mut rest = Vec::new();
        for said in self.said(conn) {
            match said {
                Said::Answer(Answer::State { state, .. }) => outcome = Some(Ok(state)),
                Said::Command(Command::AckRefused { refusal, .. }) => outcome = Some(Err(refusal)),
                other => rest.push(other),
            }
        }
        for said in rest {
            // Whoever looks for notifications finds them still.
            let Said::Answer(answer) = said else { panic!("{said:?}") };
            let promised =
                consign_core::gate::Promised::for_tests(Promise::Pickup(Box::new(answer)));
            self.site.told.push_back((conn, SessionCommand::Promised(promised)));
        }
        outcome.expect("every ack is answered")
    }

    /// The one shard that a session is notified of, redeemed.
    pub fn pick_up(&mut self, ws: ConnId) -> (ConnId, Serve) {
        let notify = self.notified(ws).pop().expect("a notification");
        let hash = self.hash(ws, &notify);
        self.redeem(hash).unwrap()
    }

    pub fn row(&self, shard: &ShardKey) -> Option<ShardRow> {
        read::row(self.site.store.ledger(), Table::Shards, &shard.key()).unwrap()
    }

    pub fn state(&self, shard: &ShardKey) -> Option<ShardState> {
        self.row(shard).map(|row| row.state)
    }

    pub fn token(&self, hash: Sha256Digest) -> Option<TokenRow> {
        read::row(self.site.store.ledger(), Table::Tokens, &hash.0).unwrap()
    }

    pub fn node_row(&self, id: &str) -> Option<NodeRow> {
        read::row(self.site.store.ledger(), Table::Nodes, &keys_pickup::node(id)).unwrap()
    }

    pub fn status(&self) -> PickupStatus {
        self.site.pump.node().status(self.site.now).pickup
    }

    pub fn used(&self) -> u64 {
        self.site.pump.node().status(self.site.now).used
    }

    pub fn close(&mut self, conn: ConnId) {
        self.site.store.conn_ended(conn);
        self.site.input(Input::Closed { conn, why: String::new() });
    }

    pub fn wait(&mut self, d: Duration) {
        self.site.wait(d);
    }

    /// Nothing is wrong in the ledger, and files are there for exactly what rows say.
    pub fn audit(&self) {
        assert_eq!(findings(&self.site.store), []);
        assert_eq!(self.site.halted, None);
        let mut known = Vec::new();
        for table in [Table::Blobs, Table::Incoming, Table::Doomed] {
            for nth in 0..self.site.store.rows(table) {
                let key = self.site.store.nth_key(table, nth).unwrap();
                known.push(u64::from_be_bytes(key.try_into().unwrap()));
            }
        }
        for (blob, _) in self.site.store.files() {
            assert!(known.contains(&blob.0), "file {blob} has no row");
        }
    }
}

/// A session that writes.
#[derive(Clone, Debug)]
pub struct Writer {
    pub conn: ConnId,
    pub ticket: TransferNo,
    pub blob: BlobNo,
    pub offset: u64,
    pub reserved: u64,
}
