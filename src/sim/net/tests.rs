//! Each way of a link, one by one. The storm of everything at once is in `storm`.

mod rig;
mod storm;

use std::time::Duration;

use self::rig::Rig;
use super::*;

const A: SiteIx = 0;
const B: SiteIx = 1;

fn secs(n: u64) -> Micros {
    Micros(n * 1_000_000)
}

fn slow(bandwidth: u64, latency: Duration) -> LinkSpec {
    LinkSpec { latency, jitter: Duration::ZERO, bandwidth, ..LinkSpec::default() }
}

#[test]
fn bytes_arrive_in_order_at_any_split() {
    for (seed, bandwidth) in [(1, 0), (2, 3_000), (3, 100_000), (4, 1_000_000_000)] {
        let mut rig = Rig::new(seed, 2);
        rig.net.set_link(A, B, LinkSpec { bandwidth, ..LinkSpec::default() });
        let (a, b) = rig.connect(A, B);
        let mut rng = Rng::new(seed);
        let text: Vec<u8> = (0..40_000u32).map(|i| (i * i / 7) as u8).collect();
        let (mut sent, mut got) = (0, Vec::new());
        while got.len() < text.len() {
            let n = rng.between(1, 3_000) as usize;
            let end = text.len().min(sent + n);
            if let Written::Took(n) = rig.net.write(rig.now, a, &text[sent..end]) {
                sent += n;
            }
            rig.pass(Duration::from_micros(rng.below(20_000)));
            rig.net.read(rig.now, b, &mut got, rng.between(1, 4_000) as usize);
        }
        assert!(got == text, "bandwidth {bandwidth}");
    }
}

#[test]
fn latency_and_bandwidth_are_what_the_link_says_and_connections_share_it() {
    let mut rig = Rig::new(1, 2);
    rig.net.set_link(A, B, slow(100_000, Duration::from_millis(50)));
    let (a, b) = rig.connect(A, B);
    let (c, d) = rig.connect(A, B);
    let begin = rig.now;
    assert_eq!(rig.net.write(rig.now, a, &[1; 100_000]), Written::Took(100_000));
    assert_eq!(rig.net.write(rig.now, c, &[2; 100_000]), Written::Took(100_000));
    rig.run_to(begin.plus(50_000));
    assert_eq!(
        rig.drain(b),
        (vec![], Got::Nothing),
        "the first packet needs more than the latency"
    );
    rig.run_to(begin.plus(550_000));
    let half = rig.drain(b).0.len();
    assert!((40_000..=50_000).contains(&half), "{half} in half a second");
    rig.run_to(begin.plus(1_050_000));
    assert_eq!(half + rig.drain(b).0.len(), 100_000);
    assert_eq!(rig.drain(d).0.len(), 0, "the other came second");
    rig.run_to(begin.plus(2_050_000));
    assert_eq!(rig.drain(d).0.len(), 100_000);
}

#[test]
fn small_writes_make_few_events() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    rig.seen.clear();
    for _ in 0..1000 {
        rig.net.write(rig.now, a, &[7; 20]);
    }
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.drain(b).0.len(), 20_000);
    assert!(rig.seen.len() <= 2, "{:?}", rig.seen);
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer_until_it_does() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    let (mut sent, text) = (0, vec![5; 100_000]);
    for _ in 0..50 {
        if let Written::Took(n) = rig.net.write(rig.now, a, &text) {
            sent += n;
        }
        rig.pass(Duration::from_secs(1));
    }
    assert_eq!(sent, 512 << 10, "a send buffer and a window");
    rig.seen.clear();
    rig.pass(Duration::from_secs(100));
    assert_eq!(rig.seen, [], "nobody is bothered");
    let mut got = rig.drain(b).0.len();
    assert_eq!(got, 256 << 10);
    rig.pass(Duration::from_secs(1));
    assert!(rig.seen.contains(&NetEvent::Ready { site: A, sock: a }), "there is room again");
    got += rig.drain(b).0.len();
    assert_eq!(got, sent);
}

#[test]
fn a_reset_at_any_offset_loses_the_tail_and_nothing_else() {
    for offset in 0..=100 {
        let mut rig = Rig::new(offset, 2);
        let (a, b) = rig.connect(A, B);
        rig.net.reset_after(a, offset);
        let text: Vec<u8> = (0..100).collect();
        for part in text.chunks(33) {
            rig.net.write(rig.now, a, part);
        }
        rig.pass(Duration::from_secs(1));
        assert_eq!(rig.drain(b), (text[..offset as usize].to_vec(), Got::Reset));
        assert_eq!(rig.net.write(rig.now, b, b"x"), Written::Reset);
        assert_eq!(rig.net.write(rig.now, a, b"x"), Written::Reset);
        assert_eq!(rig.drain(a), (vec![], Got::Reset));
        for sock in [a, b] {
            let site = rig.site(sock);
            assert!(rig.seen.contains(&NetEvent::Ready { site, sock }), "both are told");
        }
        rig.net.close(rig.now, a);
        rig.net.close(rig.now, b);
        assert_eq!(rig.net.connections(), 0);
    }
}

#[test]
fn a_reset_may_take_along_what_was_not_read() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    rig.net.faults.reset_drops = 1_000_000;
    rig.net.reset_after(a, 50);
    rig.net.write(rig.now, a, &[1; 100]);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.drain(b), (vec![], Got::Reset));
}

#[test]
fn a_silent_connection_tells_nobody_until_somebody_sends() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    rig.net.silence_after(a, 10);
    rig.net.write(rig.now, a, &[1; 10]);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.drain(b), (vec![1; 10], Got::Nothing));
    rig.seen.clear();
    rig.pass(Duration::from_secs(3600));
    assert_eq!(rig.seen, []);
    let begin = rig.now;
    assert_eq!(rig.net.write(begin, b, b"hello?"), Written::Took(6));
    rig.run_until_seen(NetEvent::Ready { site: B, sock: b });
    let waited = rig.now.since(begin);
    assert!((Duration::from_secs(30)..=Net::GIVE_UP).contains(&waited), "{waited:?}");
    assert_eq!(rig.drain(b), (vec![], Got::Reset));
    rig.net.heal(rig.now);
    rig.pass(Duration::from_secs(3600));
    assert_eq!(rig.drain(a), (vec![], Got::Nothing), "it is silent for ever");
    rig.net.close(rig.now, a);
    rig.net.close(rig.now, b);
    rig.pass(Net::GIVE_UP);
    assert_eq!(rig.net.connections(), 0);
}

#[test]
fn what_a_closed_socket_wrote_arrives_before_its_end() {
    let mut rig = Rig::new(1, 2);
    rig.net.set_link(A, B, slow(10_000, Duration::from_millis(10)));
    let (a, b) = rig.connect(A, B);
    rig.net.write(rig.now, a, &[3; 50_000]);
    rig.net.close(rig.now, a);
    assert_eq!(rig.net.write(rig.now, a, b"x"), Written::Reset);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.drain(b).1, Got::Nothing, "five seconds' worth of bytes");
    rig.pass(Duration::from_secs(10));
    let (rest, end) = rig.drain(b);
    assert_eq!((rest.last(), end), (Some(&3), Got::Eof));
    rig.net.close(rig.now, b);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.net.connections(), 0);
}

#[test]
fn half_a_connection_can_be_shut_and_the_other_half_goes_on() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    rig.net.write(rig.now, a, b"that is all");
    rig.net.shut(rig.now, a);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.drain(b), (b"that is all".to_vec(), Got::Eof));
    rig.net.write(rig.now, b, b"thank you");
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.drain(a), (b"thank you".to_vec(), Got::Nothing));
}

#[test]
fn whoever_writes_to_a_closed_socket_or_leaves_something_unread_causes_a_reset() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    rig.net.close(rig.now, b);
    rig.net.write(rig.now, a, b"too late");
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.drain(a), (vec![], Got::Reset));
    let (c, d) = rig.connect(A, B);
    rig.net.write(rig.now, c, b"unread");
    rig.pass(Duration::from_secs(1));
    rig.net.close(rig.now, d);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.drain(c), (vec![], Got::Reset));
    rig.net.close(rig.now, a);
    rig.net.close(rig.now, c);
    assert_eq!(rig.net.connections(), 0);
}

#[test]
fn the_kernel_of_a_killed_process_ends_its_connections() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    let attempt = rig.net.dial(rig.now, A, B);
    rig.net.write(rig.now, a, b"last words");
    rig.net.host_down(rig.now, A, false);
    rig.seen.clear();
    rig.pass(Duration::from_secs(20));
    assert_eq!(rig.drain(b), (b"last words".to_vec(), Got::Eof));
    assert!(rig.seen.iter().all(|e| e.site() == B), "{attempt}: {:?}", rig.seen);
    assert_eq!(rig.dial(B, A), Err("connection refused"));
}

#[test]
fn after_a_power_cut_nobody_is_told_until_somebody_sends_and_the_host_is_back() {
    let mut rig = Rig::new(1, 2);
    rig.net.set_link(A, B, slow(10_000, Duration::from_millis(1)));
    let (a, b) = rig.connect(A, B);
    rig.net.write(rig.now, a, &[9; 5_000]);
    rig.pass(Duration::from_millis(200));
    rig.net.host_down(rig.now, A, true);
    rig.pass(Duration::from_secs(10));
    let (got, end) = rig.drain(b);
    assert!(!got.is_empty() && got.len() < 2_500, "what had left arrives: {}", got.len());
    assert_eq!(end, Got::Nothing);
    assert_eq!(rig.dial(B, A), Err("timed out"));
    rig.seen.clear();
    rig.net.write(rig.now, b, b"still there?");
    rig.pass(Duration::from_secs(8));
    assert_eq!(rig.seen, []);
    rig.net.listen(A, true);
    rig.run_until_seen(NetEvent::Ready { site: B, sock: b });
    assert_eq!(rig.drain(b), (vec![], Got::Reset));
    rig.net.close(rig.now, b);
    assert_eq!(rig.net.connections(), 0);
}

#[test]
fn a_writer_before_a_shut_window_learns_that_its_reader_is_gone_and_only_then() {
    for power in [false, true] {
        let mut rig = Rig::new(1, 2);
        let (a, b) = rig.connect(A, B);
        rig.net.write(rig.now, a, &[1; 256 << 10]);
        rig.pass(Duration::from_secs(1));
        rig.net.write(rig.now, a, &[1; 1000]);
        rig.pass(Duration::from_secs(3600));
        assert_eq!(rig.drain(a), (vec![], Got::Nothing), "its kernel answers for a slow reader");
        rig.net.host_down(rig.now, B, power);
        rig.net.listen(B, true);
        rig.pass(Duration::from_secs(60));
        assert_eq!(rig.drain(a), (vec![], Got::Reset), "{b:?}");
    }
}

#[test]
fn a_host_without_power_does_not_end_what_it_had_begun_to_end() {
    let mut rig = Rig::new(1, 2);
    rig.net.set_link(A, B, slow(1_000, Duration::from_millis(1)));
    let (a, b) = rig.connect(A, B);
    rig.net.write(rig.now, a, &[1; 300 << 10]);
    rig.net.shut(rig.now, a);
    rig.pass(Duration::from_secs(1));
    rig.net.host_down(rig.now, A, true);
    for _ in 0..100 {
        rig.pass(Duration::from_secs(1));
        assert_ne!(rig.drain(b).1, Got::Eof);
    }
}

#[test]
fn a_window_that_opens_while_something_is_lost_is_used_afterwards() {
    let mut rig = Rig::new(1, 2);
    rig.net.set_link(A, B, LinkSpec { window: 100, ..LinkSpec::default() });
    let (a, b) = rig.connect(A, B);
    rig.net.write(rig.now, a, &[1; 60]);
    rig.pass(Duration::from_secs(1));
    rig.net.write(rig.now, a, &[1; 100]);
    rig.net.one_way(rig.now, A, B);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.drain(b).0.len(), 60, "40 fitted the window and were lost");
    rig.pass(Duration::from_secs(1));
    rig.net.restore(rig.now, A, B);
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.drain(b).0.len(), 100);
}

#[test]
fn a_link_that_is_down_one_way_carries_bytes_but_no_acks() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    rig.net.one_way(rig.now, A, B);
    assert_eq!(rig.dial(A, B), Err("timed out"));
    assert_eq!(rig.dial(B, A), Err("timed out"));
    rig.net.write(rig.now, b, b"from b");
    rig.net.write(rig.now, a, b"from a");
    rig.pass(Duration::from_secs(20));
    assert_eq!(rig.drain(a), (b"from b".to_vec(), Got::Nothing));
    assert_eq!(rig.drain(b), (vec![], Got::Nothing));
    rig.net.restore(rig.now, A, B);
    rig.pass(Duration::from_secs(60));
    assert_eq!(rig.drain(b), (b"from a".to_vec(), Got::Nothing), "once, and nothing is reset");
    rig.net.one_way(rig.now, A, B);
    rig.net.write(rig.now, b, b"again");
    rig.pass(Net::GIVE_UP);
    assert_eq!(rig.drain(a), (b"again".to_vec(), Got::Nothing), "no reset crosses");
    assert_eq!(rig.drain(b), (vec![], Got::Reset), "no ack either");
}

#[test]
fn a_clog_holds_everything_up_and_lets_it_out_at_once() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    rig.net.clog(rig.now, A, B);
    rig.net.write(rig.now, a, b"one ");
    rig.pass(Duration::from_secs(5));
    rig.net.write(rig.now, a, b"two");
    rig.net.write(rig.now, b, b"three");
    rig.pass(Duration::from_secs(5));
    assert_eq!((rig.drain(a).0, rig.drain(b).0), (vec![], vec![]));
    rig.net.unclog(rig.now, A, B);
    rig.pass(Duration::ZERO);
    assert_eq!((rig.drain(a).0, rig.drain(b).0), (b"three".to_vec(), b"one ".to_vec()));
    rig.pass(Duration::from_millis(2));
    assert_eq!(rig.drain(b).0, b"two", "a kernel without acks had not sent it");
    assert_eq!(rig.dial(A, B).err(), None);
}

#[test]
fn sites_reach_each_other_during_contacts_only() {
    let mut rig = Rig::new(1, 2);
    let (window, every) = (Duration::from_secs(20), Duration::from_secs(60));
    rig.net.contacts(A, B, Some(Contacts { first: secs(100), window, every }));
    assert_eq!(rig.dial(A, B), Err("timed out"));
    rig.run_to(secs(100));
    let (a, b) = rig.connect(A, B);
    rig.run_to(secs(121));
    rig.net.write(rig.now, a, b"next time");
    rig.run_to(secs(130));
    assert_eq!(rig.drain(b).0, b"");
    rig.net.heal(rig.now);
    rig.run_to(secs(140));
    assert_eq!(rig.drain(b).0, b"", "contacts are no fault");
    rig.net.contacts(A, B, None);
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.drain(b).0, b"next time");
}

#[test]
fn a_connect_fails_in_each_of_its_ways() {
    let mut rig = Rig::new(1, 2);
    assert!(rig.dial(A, B).is_ok());
    rig.net.faults.refused = 1_000_000;
    assert_eq!(rig.dial(A, B), Err("connection refused"));
    rig.net.faults = NetFaults { unanswered: 1_000_000, ..NetFaults::NONE };
    let begin = rig.now;
    assert_eq!(rig.dial(A, B), Err("timed out"));
    assert_eq!(rig.now.since(begin), Duration::from_secs(10));
    rig.net.faults = NetFaults { unroutable: 1_000_000, ..NetFaults::NONE };
    assert_eq!(rig.dial(A, B), Err("no route to host"));
    rig.net.faults = NetFaults::NONE;
    rig.net.listen(B, false);
    assert_eq!(rig.dial(A, B), Err("connection refused"));
    rig.net.listen(B, true);
    rig.net.cut(rig.now, A, B);
    let attempt = rig.net.dial(rig.now, A, B);
    rig.pass(Duration::from_secs(2));
    rig.net.restore(rig.now, A, B);
    rig.pass(Duration::from_secs(2));
    let connected =
        |e: &NetEvent| matches!(e, NetEvent::Connected { attempt: n, .. } if *n == attempt);
    assert!(rig.seen.iter().any(connected), "the connect was sent again");
}

#[test]
fn a_dripping_connection_carries_one_byte_a_second() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    rig.net.drip(a);
    rig.net.write(rig.now, a, &[1; 1000]);
    rig.pass(Duration::from_millis(30_500));
    let got = rig.drain(b).0.len();
    assert_eq!(got, 30);
    rig.net.heal(rig.now);
    rig.pass(Duration::from_secs(2));
    assert_eq!(got + rig.drain(b).0.len(), 1000);
}

#[test]
fn a_burst_makes_everything_late_and_keeps_order() {
    let mut rig = Rig::new(1, 2);
    let (a, b) = rig.connect(A, B);
    rig.net.faults.losses = 500_000;
    let mut late = 0;
    for n in 0..200u8 {
        rig.net.write(rig.now, a, &[n]);
        rig.pass(Duration::from_millis(10));
        late += u32::from(rig.net.wires.values().any(|w| w.pipes[0].front().is_some()));
    }
    assert!(late > 50, "{late} were late");
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.drain(b).0, (0..200).collect::<Vec<u8>>());
}

#[test]
fn the_weather_cuts_clogs_and_delays_links_and_they_recover() {
    let mut rig = Rig::new(1, 4);
    rig.net.faults =
        NetFaults { cuts: 500_000, clogs: 500_000, bursts: 500_000, ..NetFaults::NONE };
    let (mut down, mut one_way, mut clogged, mut late, mut open) = (0, 0, 0, 0, 0);
    for _ in 0..3600 {
        rig.pass(Duration::from_secs(1));
        let lane = |a, b| rig.net.roads.lane(a, b);
        let (there, back) = (lane(0, 1).passage(rig.now), lane(1, 0).passage(rig.now));
        down += u32::from(there == link::Passage::Down);
        one_way += u32::from(there != back);
        clogged += u32::from(there == link::Passage::Clogged);
        open += u32::from(there == link::Passage::Open);
        late += u32::from(lane(0, 1).delay(rig.now) > 100_000);
    }
    let all = [down, one_way, clogged, late, open];
    assert!(all.iter().all(|n| *n > 100), "{all:?}");
    rig.net.heal(rig.now);
    assert!(rig.dial(0, 1).is_ok());
    rig.pass(Duration::from_secs(100));
    assert_eq!(rig.net.next(), None, "no weather any more");
}
