//! What a selection chooses, against a plain list; and acts that are too much for one commit.

use std::collections::BTreeSet;
use std::time::Duration;

use consign_core::act::{Act, Action, IdPrefix, Selection};
use consign_core::code::{Cause, Refusal};
use consign_core::id::{BlobDigest, Handle, SegmentId, TransferNo};
use consign_core::ledger::Table;
use consign_core::node::Input;
use consign_core::segment::{Destinations, Meta, segment_id};
use consign_core::session::{Content, Outcome, SessionEvent, Submission};
use consign_core::store::{CommitFault, StoreRequest};
use quickcheck::{Arbitrary, Gen, QuickCheck};

use crate::acts::{act, all, ask, audits, done, end_all, told};
use crate::site::Site;

/// A dead letter to be made: for which peer, for which reason, in which minute.
#[derive(Clone, Debug)]
struct Dead {
    beta: bool,
    too_large: bool,
    minute: u64,
}

/// Dead letters and what is chosen of them.
#[derive(Clone, Debug)]
struct Case {
    dead: Vec<Dead>,
    peer: Option<bool>,
    too_large: Option<bool>,
    minutes: Option<u64>,
    ids: Option<Vec<usize>>,
    digits: usize,
    purge: bool,
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Case {
        let len = usize::arbitrary(g) % 9;
        let dead = |g: &mut Gen| Dead {
            beta: bool::arbitrary(g),
            too_large: bool::arbitrary(g),
            minute: u64::arbitrary(g) % 5,
        };
        let mut dead: Vec<Dead> = (0..len).map(|_| dead(g)).collect();
        dead.sort_by_key(|d| d.minute);
        Case {
            dead,
            peer: Option::arbitrary(g),
            too_large: Option::arbitrary(g),
            minutes: Option::<u64>::arbitrary(g).map(|m| m % 6),
            ids: Option::<Vec<usize>>::arbitrary(g).map(|ids| ids.into_iter().take(4).collect()),
            digits: 16 + usize::arbitrary(g) % 49,
            purge: bool::arbitrary(g),
        }
    }
}

fn name(beta: bool) -> &'static str {
    if beta { "beta" } else { "gamma" }
}

fn make(case: &Case) -> (Site, Vec<SegmentId>) {
    let mut site = Site::new(&["beta", "gamma"]);
    site.session("beta");
    site.session("gamma");
    site.settle();
    let (mut ids, mut minute) = (Vec::new(), 0);
    for (n, dead) in case.dead.iter().enumerate() {
        site.wait(Duration::from_secs(60 * (dead.minute - minute)));
        minute = dead.minute;
        ids.push(site.queue(&format!("n{n}"), &[name(dead.beta)]));
        let refusal = if dead.too_large { Refusal::TooLarge } else { Refusal::Invalid };
        end_all(&mut site, &Site::rejected(refusal));
    }
    site.wait(Duration::from_secs(60 * (5 - minute)));
    assert_eq!(site.store.rows(Table::Deadletters), case.dead.len());
    (site, ids)
}

#[test]
fn a_selection_chooses_what_a_plain_list_would() {
    fn holds(case: Case) -> bool {
        let (mut site, ids) = make(&case);
        let chosen: Option<BTreeSet<usize>> = case
            .ids
            .as_ref()
            .filter(|_| !ids.is_empty())
            .map(|wanted| wanted.iter().map(|n| n % ids.len()).collect());
        let expected: u64 = case
            .dead
            .iter()
            .enumerate()
            .filter(|(n, dead)| {
                chosen.as_ref().is_none_or(|c| c.is_empty() || c.contains(n))
                    && case.peer.is_none_or(|beta| beta == dead.beta)
                    && case.too_large.is_none_or(|large| large == dead.too_large)
                    && case.minutes.is_none_or(|minutes| 5 - dead.minute >= minutes)
            })
            .count() as u64;
        let prefix = |n: &usize| {
            let text = ids[*n].to_string();
            IdPrefix::parse(&text[..case.digits]).unwrap()
        };
        let of = Selection {
            ids: chosen.iter().flatten().map(prefix).collect(),
            all: true,
            peer: case.peer.map(|beta| name(beta).into()),
            reason: case.too_large.map(|l| if l { Cause::TooLarge } else { Cause::Invalid }),
            older: case.minutes.map(|m| Duration::from_secs(60 * m)),
        };
        let action = if case.purge { Action::Purge } else { Action::Retry };
        let dry = done(&mut site, Act { dry_run: true, ..act(action, of.clone()) });
        let before = site.store.rows(Table::Deadletters) as u64;
        let report = done(&mut site, act(action, of));
        let gone = before - site.store.rows(Table::Deadletters) as u64;
        site.audit();
        let audited: u64 = audits(&site).iter().map(|row| row.count).sum();
        [dry.total().0, report.total().0, gone, audited] == [expected; 4]
    }
    QuickCheck::new().tests(60).quickcheck(holds as fn(Case) -> bool);
}

/// Dead letters whose segments' rows are as large as rows can be.
fn heavy(count: u32) -> Site {
    let mut site = Site::new(&["beta"]);
    let client = site.client();
    for n in 0..count {
        let body = n.to_be_bytes().to_vec();
        let digest = BlobDigest(*blake3::hash(&body).as_bytes());
        let labels = (0..60).map(|l| (format!("l{l:02}"), "x".repeat(200))).collect();
        let meta = Meta { name: format!("n{n}"), labels, ..Meta::default() };
        let (id, size) = (segment_id(&meta, &digest), body.len() as u64);
        let handle = Handle { conn: client, number: n };
        site.store.request(client, StoreRequest::Park { handle, data: body.into() });
        let to = Destinations::named(vec!["beta".into()]).unwrap();
        let content = Content::Parked(handle);
        let submission =
            Box::new(Submission { meta, to, id, digest, size, content, watched: None });
        let event = SessionEvent::Submit { ticket: TransferNo(n), submission };
        site.input(Input::Session(client, event));
        if n % 64 == 0 {
            site.settle();
        }
    }
    site.settle();
    site.session("beta");
    while site.store.rows(Table::Deadletters) < count as usize {
        end_all(&mut site, &Site::rejected(Refusal::TooLarge));
    }
    site.take_told(client);
    site
}

#[test]
fn what_is_too_much_for_one_commit_takes_several_each_audited() {
    const COUNT: u32 = 1_200;
    let mut site = heavy(COUNT);
    let report = done(&mut site, act(Action::Purge, all()));
    assert_eq!(report.total().0, u64::from(COUNT));
    assert!(report.commits > 1, "{} commits", report.commits);
    let rows = audits(&site);
    assert_eq!(rows.len() as u64, report.commits);
    assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), u64::from(COUNT));
    assert_eq!(site.store.rows(Table::Deadletters), 0);
    site.audit();
}

#[test]
fn a_later_commit_that_fails_says_what_earlier_ones_have_done() {
    const COUNT: usize = 1_200;
    let mut site = heavy(COUNT as u32);
    let conn = ask(&mut site, act(Action::Purge, all()));
    while site.store.rows(Table::Audit) == 0 {
        site.turn();
        site.commit();
    }
    let left = site.store.rows(Table::Deadletters);
    assert!(left > 0 && left < COUNT, "{left}");
    while !site.has_batch() {
        site.turn();
    }
    site.store.fail_commit(1, CommitFault::Full("no space left on device".into()));
    site.settle();
    let (refusal, text) = told(&mut site, conn).unwrap_err();
    assert_eq!(refusal, Refusal::DiskFull);
    assert!(text.contains("1 earlier commits of this purge are done"), "{text}");
    assert_eq!((site.store.rows(Table::Deadletters), audits(&site).len()), (left, 1));
    site.audit();
    site.wait(Duration::from_secs(30));
    let report = done(&mut site, act(Action::Purge, all()));
    assert_eq!(report.total().0 as usize, left);
    site.audit();
}

#[test]
fn an_act_gets_a_batch_although_others_never_pause() {
    const COUNT: u32 = 400;
    let mut site = heavy(COUNT);
    // Bodies fill batch after batch up to their bytes.
    let client = site.client();
    for n in 0..600 {
        let name = format!("body-{n}");
        site.submit(client, n, &name, &["beta"], consign_core::segment::Class::Normal);
    }
    let conn = ask(&mut site, act(Action::Purge, all()));
    site.settle();
    assert_eq!(told(&mut site, conn).unwrap().total().0, u64::from(COUNT));
    end_all(&mut site, &Outcome::Acked);
    site.audit();
}
