//! Every row as bytes.

use consign_core::id::hex;
use consign_core::ledger::{Table, codec};

use crate::examples::{self, Visit};
use crate::snapshot;

#[derive(Default)]
struct Lines(Vec<String>, Vec<Table>);

impl Visit for Lines {
    fn row<R>(&mut self, table: Table, name: &str, key: &[u8], row: &R)
    where
        R: minicbor::Encode<()> + for<'b> minicbor::Decode<'b, ()> + PartialEq + std::fmt::Debug,
    {
        let mut value = Vec::new();
        codec::encode(table, key, row, &mut value);
        let back: R = codec::decode(table, key, &value).expect("what was encoded decodes");
        assert_eq!(&back, row);
        self.0.push(format!("{table} {name} {} {}", hex(key), hex(&value)));
        self.1.push(table);
    }
}

#[test]
fn rows_are_the_same_bytes_for_ever() {
    let mut lines = Lines::default();
    examples::each(&mut lines);
    snapshot::check("ledger.txt", &lines.0);
}

#[test]
fn every_table_with_rows_has_an_example() {
    let mut lines = Lines::default();
    examples::each(&mut lines);
    // Bodies are raw; the others are indexes whose keys say everything.
    let bare = [
        Table::Bodies,
        Table::Due,
        Table::Owed,
        Table::Handed,
        Table::Expiry,
        Table::Unmet,
        Table::RememberedAge,
        Table::Owners,
        Table::ByNode,
        Table::ShardDeadlines,
        Table::PassBack,
    ];
    for table in Table::ALL {
        let shown = lines.1.contains(table);
        assert_eq!(shown, !bare.contains(table), "{table}");
    }
}

#[test]
fn the_snapshot_itself_decodes() {
    // The file is what an older build wrote: each line must be readable as it stands there.
    struct Read(Vec<(String, Vec<u8>)>, usize);
    impl Visit for Read {
        fn row<R>(&mut self, table: Table, name: &str, key: &[u8], row: &R)
        where
            R: minicbor::Encode<()>
                + for<'b> minicbor::Decode<'b, ()>
                + PartialEq
                + std::fmt::Debug,
        {
            let (head, value) = &self.0[self.1];
            assert_eq!(*head, format!("{table} {name} {}", hex(key)));
            let old: R = codec::decode(table, key, value).expect("an old row decodes");
            assert_eq!(&old, row);
            self.1 += 1;
        }
    }
    let Some(text) = snapshot::read("ledger.txt") else { return };
    let mut read = Read(Vec::new(), 0);
    for line in text.lines() {
        let (head, value) = line.rsplit_once(' ').expect("table, type, key, value");
        read.0.push((head.to_string(), unhex(value)));
    }
    examples::each(&mut read);
    assert_eq!(read.1, read.0.len());
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}
