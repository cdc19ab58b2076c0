//! The small worlds themselves: steps that do not race lead to one world, and what is broken is
//! found.

use consign_core::ledger::Table;

use super::*;

fn rules() -> Rules {
    Rules { fine: false, crashes: 0, waits: 1, plant: None }
}

fn bounds() -> Bounds {
    Bounds { rules: rules(), turns: None, cold: false, audited: false }
}

fn warm(workload: &[Op]) -> World {
    World::warm(workload, rules()).unwrap_or_else(|broken| panic!("{broken}"))
}

/// Takes what is next, when nothing races, until `enough`.
fn go(world: &mut World, enough: impl Fn(&World) -> bool) {
    while !enough(world) {
        let next = *world.choices().first().unwrap_or_else(|| panic!("it never comes to that"));
        world.take(next).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

#[test]
fn workloads_are_every_sequence_but_for_exchanged_twins() {
    assert_eq!(workloads(&[Op::Cut, Op::Crash(0), Op::Crash(1)], 3).len(), 27);
    let (one, twin) = (Op::Send(0, What::Small), Op::Send(0, What::SmallTwin));
    let both = workloads(&[one, twin], 2);
    assert_eq!(both, [vec![one, one], vec![one, twin]]);
    assert_eq!(workloads(&Op::ALL, 0), [Vec::<Op>::new()]);
}

#[test]
fn steps_of_two_sites_that_do_not_meet_lead_to_the_same_world() {
    let ops = [Op::Send(0, What::Small), Op::Send(1, What::Back)];
    let mut world = warm(&ops);
    world.take(Choice::Next).expect("a client comes");
    world.take(Choice::Next).expect("another comes");
    let mut other = world.clone();
    for (world, order) in [(&mut world, [0, 1]), (&mut other, [1, 0])] {
        for site in order {
            world.take(Choice::Turn(site)).expect("a turn");
        }
    }
    assert_eq!(world.print(), other.print());
    world.take(Choice::Answers(0)).expect("an answer");
    assert_ne!(world.print(), other.print());
}

#[test]
fn a_copy_goes_its_own_way() {
    let mut world = warm(&[Op::Send(0, What::File)]);
    let before = world.print();
    let mut copy = world.clone();
    copy.rest(&mut Vec::new()).unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(world.print(), before);
    world.rest(&mut Vec::new()).unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(world.print(), copy.print());
}

#[test]
fn a_path_is_replayed_to_the_same_world() {
    let ops = [Op::Send(0, What::Small)];
    let mut world = warm(&ops);
    let mut path = Vec::new();
    world.rest(&mut path).unwrap_or_else(|broken| panic!("{broken}"));
    let rules = Rules { crashes: 0, waits: u8::MAX, ..rules() };
    let again =
        replay(&ops, &Bounds { rules, ..bounds() }, &path).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(again.print(), world.print());
}

#[test]
fn a_fault_is_offered_as_often_as_it_may_come() {
    let rules = Rules { crashes: 1, ..rules() };
    let mut world = World::warm(&[], rules).unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(world.choices(), [Choice::PowerCut(0), Choice::PowerCut(1)]);
    world.take(Choice::PowerCut(0)).expect("a crash");
    assert!(world.choices().iter().all(|choice| !choice.is_fault()));
}

#[test]
fn a_content_that_is_lost_after_its_ack_is_a_broken_promise() {
    let mut world = warm(&[Op::Send(0, What::File)]);
    world.rest(&mut Vec::new()).unwrap_or_else(|broken| panic!("{broken}"));
    let blob = world.sites[1].store.files().next().map(|(blob, _)| blob).expect("a file");
    world.sites[1].store.lose_file(blob);
    let broken = world.check.durable(1, &world.sites[1].store).expect_err("it is gone");
    assert!(broken.promise.contains("(I1)") && broken.found.contains("no file"), "{broken}");
}

#[test]
fn an_acked_row_that_nobody_acknowledged_is_a_broken_promise() {
    let mut world = warm(&[Op::Send(0, What::Small)]);
    world.rest(&mut Vec::new()).unwrap_or_else(|broken| panic!("{broken}"));
    let broken = Check::default().durable(0, &world.sites[0].store).expect_err("never said");
    assert!(broken.promise.contains("(I3)"), "{broken}");
}

#[test]
fn an_offer_without_a_durable_claim_is_a_broken_promise() {
    let world = warm(&[]);
    let id = What::Small.id();
    let sent = Check::default().offer_sent(0, id, Default::default(), &world.sites[0].store);
    assert!(sent.expect_err("no claim").promise.contains("(I7, I8)"));
}

#[test]
fn a_row_that_does_not_count_is_a_broken_promise() {
    let mut world = warm(&[Op::Send(0, What::Small)]);
    go(&mut world, |world| world.sites[0].store.rows(Table::Owed) > 0);
    let site = &mut world.sites[0];
    let mut batch = consign_core::store::Batch::new(consign_core::id::BatchNo(99));
    let number = consign_core::ledger::rows::MetaRow { value: 99 };
    batch.put(Table::Meta, consign_core::ledger::rows::MetaName::Batch.key(), &number);
    let owed =
        consign_core::ledger::keys::peer_seq(consign_core::id::SiteNo(1), consign_core::id::Seq(1));
    batch.del(Table::Owed, &owed);
    site.store.commit(&batch);
    let broken = world.check.durable(0, &world.sites[0].store).expect_err("not owed any more");
    assert!(broken.promise.contains("(I10)") && broken.found.contains("owed"), "{broken}");
}

#[test]
fn what_has_not_crossed_is_not_at_rest() {
    let mut world = warm(&[Op::Send(0, What::Small)]);
    go(&mut world, |world| world.sites[0].store.rows(Table::Owed) > 0);
    let broken = world.check.at_rest(0, &world.sites[0].store).expect_err("it is owed");
    assert!(broken.promise.contains("(I28)"), "{broken}");
}

#[test]
fn the_same_bounds_give_the_same_report_and_every_end_is_judged() {
    let ops = [Op::Send(0, What::File)];
    let first = explore(&ops, bounds()).unwrap_or_else(|f| panic!("{f}"));
    let second = explore(&ops, bounds()).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(first, second);
    assert!(first.states > 300 && first.ends > 0 && first.steps > first.states, "{first}");
    let narrow = Bounds { turns: Some(0), ..bounds() };
    let narrow = explore(&ops, narrow).unwrap_or_else(|f| panic!("{f}"));
    assert!(narrow.states < first.states && narrow.ends == 1, "{narrow}");
}

#[test]
fn a_file_is_not_made_after_its_removal() {
    // The session that was replaced hears ACCEPT, or the store its request, after the node has given
    // the content up and the store has found nothing to remove: the file then belongs to nobody.
    let rules = Rules { fine: true, crashes: 1, ..rules() };
    let world = World::warm(&[Op::Send(0, What::File)], rules);
    let mut world = world.unwrap_or_else(|broken| panic!("{broken}"));
    go(&mut world, |world| world.sites[1].ends.values().any(|end| !end.calls.is_empty()));
    let old = *world.sites[1].ends.keys().next().expect("a session");
    world.take(Choice::PowerCut(0)).expect("a crash");
    let late = |choice: &Choice| {
        let unheard = matches!(choice, Choice::Notice(1, _) | Choice::File(1, _));
        unheard || *choice == Choice::Word(1, old) || choice.is_fault()
    };
    let mut removed = false;
    while !removed {
        let choices = world.choices();
        let next = *choices.iter().find(|choice| !late(choice)).expect("a removal comes");
        world.take(next).unwrap_or_else(|broken| panic!("{broken}"));
        removed = next == Choice::Unlink(1);
    }
    world.take(Choice::Word(1, old)).unwrap_or_else(|broken| panic!("{broken}"));
    world.rest(&mut Vec::new()).unwrap_or_else(|broken| panic!("{broken}"));
}
