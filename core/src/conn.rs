//! A connection as the node and the store see it: a [`Link`] with a number and a part to play.
//!
//! What both runtimes must do alike stands here: who is announced to the node and when, that requests
//! reach the store before events reach the node, and that every announced connection is reported
//! closed exactly once.

use alloc::boxed::Box;
use alloc::string::{String, ToString};

use crate::driver::MakeSession;
use crate::id::{ConnId, SiteNo};
use crate::link::{End, Link, Timeouts};
use crate::node::{Input, Note};
use crate::session::{ConnInfo, Identity, Session};
use crate::store::StoreRequest;
use crate::time::{Instant, Now};
use crate::tls::{PickupTls, TlsSetup};

/// How a connection came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A peer dialled this site.
    Accepted,
    /// This site dialled a peer.
    Dialled {
        /// The peer.
        site: SiteNo,
        /// Its name: what its certificate must say.
        name: String,
    },
    /// A local client, or one of pickup.
    Local {
        /// User id of a Unix peer.
        uid: Option<u32>,
    },
}

/// Where a connection's wishes go. Nothing here may block.
pub trait Outlet {
    /// For the store.
    fn request(&mut self, conn: ConnId, request: StoreRequest);
    /// For the store: the connection has ended.
    fn ended(&mut self, conn: ConnId);
    /// For the node.
    fn node(&mut self, input: Input);
    /// For whoever watches.
    fn note(&mut self, note: Note);
}

/// One connection.
#[derive(Debug)]
pub struct Conn {
    id: ConnId,
    remote: String,
    role: Role,
    make: Maker,
    link: Link,
    /// Who the peer is where no certificate says it.
    claimed: Option<Identity>,
    announced: bool,
    reported: bool,
}

struct Maker(MakeSession);

impl core::fmt::Debug for Maker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("MakeSession")
    }
}

/// What every new connection is given.
#[derive(Clone, Copy)]
pub struct Begin<'a> {
    /// Its number.
    pub id: ConnId,
    /// The time.
    pub now: Now,
    /// Its deadlines.
    pub timeouts: Timeouts,
    /// Makes its session.
    pub make: &'a MakeSession,
}

impl Conn {
    /// A peer has connected from `remote`.
    #[must_use]
    pub fn accepted(begin: Begin<'_>, remote: String, setup: &TlsSetup) -> Conn {
        let link = Link::server(setup, begin.now, begin.timeouts);
        Conn::new(begin, remote, Role::Accepted, link)
    }

    /// The peer `name` was dialled at `remote`.
    #[must_use]
    pub fn dialled(
        begin: Begin<'_>,
        remote: String,
        site: SiteNo,
        name: String,
        setup: &TlsSetup,
    ) -> Conn {
        let link = Link::client(setup, &name, begin.now, begin.timeouts);
        Conn::new(begin, remote, Role::Dialled { site, name }, link)
    }

    /// A local client has connected, without TLS.
    #[must_use]
    pub fn local(begin: Begin<'_>, remote: String, uid: Option<u32>) -> Conn {
        Conn::new(begin, remote, Role::Local { uid }, Link::plain(begin.timeouts))
    }

    /// A pickup client or node has connected from `remote`, with TLS or without.
    #[must_use]
    pub fn pickup(begin: Begin<'_>, remote: String, tls: Option<&PickupTls>) -> Conn {
        let link = match tls {
            Some(config) => Link::for_anybody(config, begin.now, begin.timeouts),
            None => Link::plain(begin.timeouts),
        };
        Conn::new(begin, remote, Role::Local { uid: None }, link)
    }

    /// A connection to a peer whose identity is given instead of proved, without TLS: for the
    /// simulator, where encryption would only cost time.
    #[doc(hidden)]
    #[must_use]
    pub fn simulated(begin: Begin<'_>, remote: String, role: Role, identity: Identity) -> Conn {
        let link = Link::plain(begin.timeouts);
        Conn { claimed: Some(identity), ..Conn::new(begin, remote, role, link) }
    }

    fn new(begin: Begin<'_>, remote: String, role: Role, link: Link) -> Conn {
        let make = Maker(begin.make.clone());
        let (claimed, announced, reported) = (None, false, false);
        Conn { id: begin.id, remote, role, make, link, claimed, announced, reported }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ConnId {
        self.id
    }

    /// The link, for bytes, commands and time.
    pub fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// When [`Link::timer`] is to be called if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.link.next_deadline()
    }

    /// Carries out what the link has come to want. To be called after every input, before waiting.
    pub fn deliver(&mut self, now: Now, outlet: &mut dyn Outlet) {
        if self.link.is_ready() {
            self.begin(now, outlet);
        }
        let out = self.link.out();
        for request in out.requests.drain(..) {
            outlet.request(self.id, request);
        }
        for event in out.events.drain(..) {
            outlet.node(Input::Session(self.id, event));
        }
        if !self.reported
            && let Some(end) = self.link.end()
        {
            self.reported = true;
            let why = match end {
                End::Orderly => String::new(),
                End::Fault(fault) => fault.to_string(),
            };
            self.report(why, outlet);
        }
    }

    /// Announces the connection to the node and gives it its session, or turns it away.
    fn begin(&mut self, now: Now, outlet: &mut dyn Outlet) {
        let identity = self.link.identity().or(self.claimed.as_ref()).cloned();
        let dialled = match (&self.role, &identity) {
            (Role::Dialled { name, .. }, Some(found)) if *name != found.name => {
                let why =
                    alloc::format!("the certificate says {:?} instead of {name:?}", found.name);
                return self.link.refuse(now, why);
            }
            (Role::Dialled { .. }, _) => true,
            (Role::Accepted | Role::Local { .. }, _) => false,
        };
        let uid = match self.role {
            Role::Local { uid } => uid,
            Role::Accepted | Role::Dialled { .. } => None,
        };
        let conn = self.id;
        let info = ConnInfo { conn, remote: self.remote.clone(), uid, identity: identity.clone() };
        let session: Box<dyn Session> = (self.make.0)(&info);
        self.announced = true;
        outlet.node(match identity {
            Some(identity) => Input::Connected { conn, identity, dialled },
            None => Input::Opened { conn },
        });
        self.link.attach(now, session);
    }

    fn report(&mut self, why: String, outlet: &mut dyn Outlet) {
        if self.announced {
            outlet.ended(self.id);
            outlet.node(Input::Closed { conn: self.id, why });
            return;
        }
        match &self.role {
            Role::Dialled { site, .. } => {
                outlet.node(Input::DialFailed { site: *site, why, reached: true });
            }
            Role::Accepted | Role::Local { .. } => {
                outlet.note(Note::Unwelcome { name: self.remote.clone(), why });
            }
        }
    }
}
