//! Whether a peer answers, for whoever asks.

use consign_core::id::{ConnId, TransferNo};
use consign_core::node::{Answer, Input, Pinged, Question};
use consign_core::session::{SessionCommand, SessionEvent};

use crate::site::Site;

fn ask(site: &mut Site, name: &str) -> ConnId {
    let client = site.client();
    let question = Question::Ping(name.into());
    site.input(Input::Session(client, SessionEvent::Ask { ticket: TransferNo(3), question }));
    site.settle();
    client
}

fn told(site: &mut Site, client: ConnId) -> Option<Pinged> {
    site.take_told(client).into_iter().find_map(|command| match command {
        SessionCommand::Answer { ticket: TransferNo(3), answer } => match &*answer {
            Answer::Pinged(pinged) => Some(pinged.clone()),
            _ => None,
        },
        _ => None,
    })
}

fn pings(site: &mut Site, session: ConnId) -> usize {
    let told = site.take_told(session);
    told.iter().filter(|command| matches!(command, SessionCommand::Ping)).count()
}

#[test]
fn everybody_who_waits_for_a_peer_hears_of_its_answer_and_nobody_twice() {
    let mut site = Site::new(&["beta", "gamma"]);
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    site.settle();
    site.take_told(beta);
    let (a, b, c) = (ask(&mut site, "beta"), ask(&mut site, "beta"), ask(&mut site, "gamma"));
    assert_eq!((pings(&mut site, beta), pings(&mut site, gamma)), (2, 1));
    assert_eq!(told(&mut site, a), None, "the peer has not answered yet");
    site.input(Input::Session(beta, SessionEvent::Pong(420)));
    site.settle();
    for client in [a, b] {
        assert_eq!(told(&mut site, client), Some(Pinged::After(420)));
    }
    assert_eq!(told(&mut site, c), None);
    site.input(Input::Session(beta, SessionEvent::Pong(1)));
    site.settle();
    assert_eq!((told(&mut site, a), told(&mut site, c)), (None, None));
    // The session ends before the answer.
    site.input(Input::Closed { conn: gamma, why: "connection reset".into() });
    site.settle();
    assert_eq!(told(&mut site, c), Some(Pinged::Down("connection reset".into())));
    site.audit();
}

#[test]
fn without_a_session_the_answer_is_there_at_once_and_clients_that_left_are_forgotten() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let (nobody, down) = (ask(&mut site, "delta"), ask(&mut site, "beta"));
    assert_eq!(told(&mut site, nobody), Some(Pinged::Unknown));
    assert!(matches!(told(&mut site, down), Some(Pinged::Down(_))));
    let beta = site.session("beta");
    site.settle();
    let client = ask(&mut site, "beta");
    site.input(Input::Closed { conn: client, why: String::new() });
    site.input(Input::Session(beta, SessionEvent::Pong(7)));
    site.settle();
    assert_eq!(told(&mut site, client), None);
    site.audit();
}
