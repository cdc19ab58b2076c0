//! `docs/LEDGER.md` says what is on disk.

use consign_core::id::{BodyNo, Seq, SiteNo, hex};
use consign_core::ledger::rows::{Body, IdRow, MetaName, MetaRow};
use consign_core::ledger::{Table, codec, keys};
use consign_core::segment::Destinations;

const PAGE: &str = include_str!("../../../docs/LEDGER.md");

fn shown(key: &[u8], value: &[u8]) -> bool {
    PAGE.contains(&format!("`{}`", hex(key))) && PAGE.contains(&format!("`{}`", hex(value)))
}

#[test]
fn the_examples_are_what_is_written() {
    let mut value = Vec::new();
    let key = MetaName::Batch.key();
    codec::encode(Table::Meta, key, &MetaRow { value: 1 }, &mut value);
    assert!(shown(key, &value), "{} {}", hex(key), hex(&value));

    let mut value = Vec::new();
    let key = [0x11; 32];
    codec::encode(Table::Ids, &key, &IdRow { seq: Seq(258) }, &mut value);
    assert!(PAGE.contains(&format!("`{}`", hex(&value))), "{}", hex(&value));

    let key = keys::delivery(Seq(258), SiteNo(3));
    assert!(PAGE.contains(&format!("`{}`", hex(&key))), "{}", hex(&key));

    let body = minicbor::to_vec(Body::Inline(BodyNo(7))).expect("it is encoded");
    assert!(PAGE.contains(&format!("`{}`", hex(&body))), "{}", hex(&body));
    // `[0, []]` and `[1, [["a"]]]`.
    let all = minicbor::to_vec(Destinations::All).expect("it is encoded");
    assert_eq!(hex(&all), "820080");
    let named = Destinations::Named(vec!["a".to_owned()]);
    assert_eq!(hex(&minicbor::to_vec(named).expect("it is encoded")), "820181816161");
}

#[test]
fn every_table_is_on_the_page() {
    for table in Table::ALL {
        let row = format!("| {} | {} |", table.number(), table.word());
        assert!(PAGE.contains(&row), "{row}");
    }
    for name in MetaName::ALL {
        let word = std::str::from_utf8(name.key()).expect("a word");
        assert!(PAGE.contains(&format!("`{word}`")), "{word}");
    }
}
