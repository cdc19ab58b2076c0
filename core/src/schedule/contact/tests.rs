//! Windows as people write them, and the minutes they open and close at.

use alloc::format;

use quickcheck::quickcheck;

use super::{Contact, MINUTE_MS, WEEK};
use crate::time::UnixMillis;

/// A time in the week of Monday 2027-01-04: day 0 is Monday.
fn at(day: u64, hour: u64, minute: u64) -> UnixMillis {
    const MONDAY: u64 = 1_799_020_800_000;
    UnixMillis(MONDAY + ((day * 24 + hour) * 60 + minute) * MINUTE_MS)
}

fn contact(windows: &[&str]) -> Contact {
    Contact::parse(windows).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn no_window_is_always() {
    let always = contact(&[]);
    assert!(always.is_always() && always.is_open(at(3, 4, 5)));
    assert_eq!(always.opens_at(at(3, 4, 5)), None);
    assert!(contact(&["Mon-Sun"]).is_always());
    assert!(contact(&["Mon-Wed", "Thu-Sun 00:00-24:00"]).is_always());
}

#[test]
fn nights_belong_to_the_day_they_begin_on() {
    let nights = contact(&["Mon-Fri 22:00-06:00"]);
    let table = [
        (at(0, 0, 0), false),
        (at(0, 5, 59), false),
        (at(0, 21, 59), false),
        (at(0, 22, 0), true),
        (at(1, 5, 59), true),
        (at(1, 6, 0), false),
        (at(4, 23, 0), true),
        (at(5, 5, 59), true),
        (at(5, 6, 0), false),
        (at(5, 22, 0), false),
        (at(6, 23, 59), false),
    ];
    for (time, open) in table {
        assert_eq!(nights.is_open(time), open, "{time:?}");
    }
    assert_eq!(nights.opens_at(at(0, 19, 0)), Some(at(0, 22, 0)));
    assert_eq!(nights.opens_at(at(5, 6, 0)), Some(at(7, 22, 0)), "over the end of the week");
    assert_eq!(nights.opens_at(at(4, 23, 0)), None, "open");
}

#[test]
fn days_hours_and_zones_as_people_write_them() {
    let table = [
        ("Sat", at(5, 0, 0), at(6, 0, 0)),
        ("sat,SUN", at(5, 0, 0), at(7, 0, 0)),
        ("Sat-Mon 08:00-09:30", at(5, 8, 0), at(5, 9, 30)),
        ("Tue,Thu-Fri 10:00-24:00", at(1, 10, 0), at(2, 0, 0)),
        ("Wed 12:00-13:00 UTC", at(2, 12, 0), at(2, 13, 0)),
        ("Wed 12:00-13:00 +02:00", at(2, 10, 0), at(2, 11, 0)),
        ("Wed 22:00-02:00 -05:30", at(3, 3, 30), at(3, 7, 30)),
        ("Sat UTC", at(5, 0, 0), at(6, 0, 0)),
    ];
    for (text, from, to) in table {
        let contact = contact(&[text]);
        let before = UnixMillis(from.0 - 1);
        assert!(!contact.is_open(before), "{text} before");
        assert_eq!(contact.opens_at(before), Some(from), "{text}");
        assert!(contact.is_open(from), "{text} from");
        assert!(contact.is_open(UnixMillis(to.0 - 1)), "{text} to");
        assert!(!contact.is_open(to), "{text} after");
    }
    let every_day = contact(&["22:00-06:00"]);
    assert!(
        (0..7).all(|day| every_day.is_open(at(day, 23, 0)) && !every_day.is_open(at(day, 7, 0)))
    );
    assert!(contact(&["Sun 23:00-01:00"]).is_open(at(0, 0, 30)), "over the end of the week");
    assert!(contact(&["Mon 00:30-01:00 +02:00"]).is_open(at(6, 22, 45)), "the week before, in UTC");
}

#[test]
fn what_cannot_be_read_is_named() {
    let table = [
        ("", "", "missing"),
        ("UTC", "", "missing"),
        ("Mon-Fry 22:00-06:00", "Fry", "not a day"),
        ("Mon,,Tue", "", "not a day"),
        ("Monday", "Monday", "not a day"),
        ("Mon 22-06", "22-06", "HH:MM"),
        ("Mon 22:00", "22:00", "HH:MM"),
        ("Mon 22:00-25:00", "22:00-25:00", "HH:MM"),
        ("Mon 22:60-23:00", "22:60-23:00", "HH:MM"),
        ("Mon 24:00-01:00", "24:00-01:00", "write 00:00"),
        ("Mon 1:00-2:00", "1:00-2:00", "HH:MM"),
        ("Mon 10:00-10:00", "10:00-10:00", "the same"),
        ("Mon 10:00-11:00 CET", "CET", "zone"),
        ("Mon 10:00-11:00 +15:00", "+15:00", "zone"),
        ("Mon 10:00-11:00 UTC UTC", "UTC", "one too many"),
        ("10:00-11:00 Mon", "Mon", "zone"),
    ];
    for (text, word, problem) in table {
        let fault = Contact::parse(&[text]).expect_err(text);
        assert_eq!((fault.text.as_str(), fault.word.as_str()), (text, word));
        assert!(fault.problem.contains(problem), "{text}: {fault}");
    }
}

quickcheck! {
    /// Whatever the window, it opens exactly when it says it will, and not a minute before.
    fn it_opens_when_it_says(day: u8, from: u16, len: u16, offset: i8, minute: u32) -> bool {
        let day = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][usize::from(day % 7)];
        let (from, len) = (u32::from(from) % 1440, u32::from(len) % 1439 + 1);
        let to = (from + len) % 1440;
        let (sign, hours) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs() % 15);
        let clock = |m: u32| format!("{:02}:{:02}", m / 60, m % 60);
        let text = format!("{day} {}-{} {sign}{hours:02}:00", clock(from), clock(to));
        let contact = Contact::parse(&[text]).unwrap();
        let open: u32 = contact.spans.iter().map(|(from, to)| to - from).sum();
        let now = UnixMillis(at(0, 0, 0).0 + u64::from(minute % WEEK) * MINUTE_MS + 12_345);
        let right = match contact.opens_at(now) {
            None => contact.is_open(now),
            Some(then) => {
                !contact.is_open(now)
                    && contact.is_open(then)
                    && !contact.is_open(UnixMillis(then.0 - 1))
                    && then.0 - now.0 <= u64::from(WEEK) * MINUTE_MS
            }
        };
        open == len && right
    }
}
