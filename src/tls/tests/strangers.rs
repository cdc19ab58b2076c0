//! Who knocks and is not known.

use super::*;

#[test]
fn a_site_that_is_not_known_is_remembered_until_it_is_let_in() {
    let ours = authority();
    let alpha = site(&ours, "alpha", &[("beta", None)]);
    let gamma = site(&ours, "gamma", &[("alpha", None)]);
    let theirs = site(&authority(), "delta", &[("alpha", None)]);
    for _ in 0..2 {
        assert!(meet(&gamma, &alpha).is_err());
    }
    assert!(meet(&theirs, &alpha).is_err());
    let list = alpha.live.strangers().list();
    let seen: Vec<_> = list.iter().map(|s| (s.name.as_str(), s.code, s.knocks)).collect();
    assert_eq!(seen, [("gamma", "CN0305", 2)], "whom none of ours has signed is nobody");
    assert_eq!(list[0].fingerprint, gamma.shown.own.0);
    // Pinned to another certificate it stays one; to its own, it is one no more.
    for (pin, left) in [([1; 32], 1), (list[0].fingerprint, 0)] {
        let pair = ours.site("alpha", &[], SITE_LASTS).expect("signed");
        let config = config("alpha", &[("gamma", Some(pin))]);
        credentials(&ours, &pair).judge(&config).expect("judged").replace(&alpha.live);
        assert_eq!(alpha.live.strangers().list().len(), left);
    }
}
