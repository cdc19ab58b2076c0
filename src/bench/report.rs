//! The figures as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Raw;
use crate::config::Runtime;

/// What one load came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Runtime of both sites.
    pub runtime: Runtime,
    /// Length of each segment in bytes.
    pub size: u64,
    /// How many.
    pub count: u64,
    /// Seconds it took to queue them at the sender, each durable before the answer.
    pub queued: f64,
    /// Seconds from the start of the receiver to the sender's commit of the last acknowledgement.
    pub seconds: f64,
    /// Rows per commit at the sender.
    pub batch_out: f64,
    /// Rows per commit at the receiver.
    pub batch_in: f64,
    /// Peak anonymous memory in bytes: of sender and receiver, or of the one process with both.
    pub rss_anon: Vec<u64>,
    /// Processor seconds of both sites, in that time.
    pub processor: f64,
}

impl Row {
    /// Segments a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }

    /// Bytes of content a second.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        (self.count * self.size) as f64 / self.seconds
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What the machine can do.
    pub raw: Raw,
    /// What the sites did.
    pub rows: Vec<Row>,
    /// Whether each site was a process of its own.
    pub processes: bool,
}

/// The column of [`Raw::copied`], which only large segments have.
const COPIED: &str = ": copied";
const HEADS: [&str; 13] = [
    "runtime",
    "size",
    "count",
    "seconds",
    "seg/s",
    "MB/s",
    ": TLS",
    ": synced",
    COPIED,
    "rows/commit",
    "queued/s",
    "cpu/seg",
    "RssAnon",
];

impl Report {
    /// The table, with a line of what it means.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = vec![HEADS.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(|row| self.cells(row)));
        let copies = !self.raw.copied.is_empty();
        if let Some(column) = HEADS.iter().position(|head| !copies && *head == COPIED) {
            lines.iter_mut().for_each(|line| drop(line.remove(column)));
        }
        let width = |column: usize| {
            lines.iter().filter_map(|l| l.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
        };
        let columns = lines.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        let _ = write!(out, "raw: TLS on loopback {:.0} MB/s", self.raw.tls / 1e6);
        let _ = write!(out, "; synced writes {}", rates(&self.raw.synced));
        if copies {
            let _ = write!(out, "; written while as much is read {}", rates(&self.raw.copied));
        }
        out.push_str("\n\n");
        for line in &lines {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
        out.push_str(
            "\nEverything is queued before the receiver starts; the clock runs from its start until the\n\
             sender has committed the last acknowledgement. \": TLS\" and \": synced\" are ratios to the raw\n\
             figures. rows/commit and RssAnon (peak): sender, receiver; cpu/seg: processor time of both",
        );
        out.push_str(if self.processes {
            ".\n"
        } else {
            "; RssAnon is of one process with both\nsites and the client in it.\n"
        });
        if copies {
            out.push_str(
                "Both sites are on one disk: what a large segment can reach there is what is written while as\n\
                 much is read, \": copied\".\n",
            );
        }
        out
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let synced = self.raw.synced(row.size);
        vec![
            row.runtime.word().to_owned(),
            bytes(row.size),
            row.count.to_string(),
            format!("{:.2}", row.seconds),
            figure(row.rate()),
            figure(row.bytes() / 1e6),
            format!("{:.2}", row.bytes() / self.raw.tls),
            format!("{:.2}", row.bytes() / synced),
            self.raw
                .copied(row.size)
                .map_or_else(|| "-".to_owned(), |copied| format!("{:.2}", row.bytes() / copied)),
            format!("{:.0} {:.0}", row.batch_out, row.batch_in),
            figure(row.count as f64 / row.queued),
            duration(row.processor / row.count as f64),
            row.rss_anon.iter().map(|b| bytes(*b)).collect::<Vec<_>>().join(" "),
        ]
    }

    /// The same as JSON: `consign.bench/1`.
    #[must_use]
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "runtime": row.runtime.word(),
                "size": row.size,
                "count": row.count,
                "seconds": row.seconds,
                "segments_per_second": row.rate(),
                "bytes_per_second": row.bytes(),
                "ratio_to_tls": row.bytes() / self.raw.tls,
                "ratio_to_synced": row.bytes() / self.raw.synced(row.size),
                "ratio_to_copied": self.raw.copied(row.size).map(|copied| row.bytes() / copied),
                "rows_per_commit": { "sender": row.batch_out, "receiver": row.batch_in },
                "queue_seconds": row.queued,
                "processor_seconds": row.processor,
                "peak_rss_anon": row.rss_anon,
            })
        });
        let by_size = |figures: &[(u64, f64)]| {
            let rate =
                |(size, rate): &(u64, f64)| json!({ "size": size, "bytes_per_second": rate });
            figures.iter().map(rate).collect::<Vec<_>>()
        };
        json!({
            "schema": "consign.bench/1",
            "processes": self.processes,
            "raw": {
                "tls_bytes_per_second": self.raw.tls,
                "synced": by_size(&self.raw.synced),
                "copied": by_size(&self.raw.copied),
            },
            "rows": rows.collect::<Vec<_>>(),
        })
    }
}

/// Rates by size.
fn rates(figures: &[(u64, f64)]) -> String {
    let rate = |(size, rate): &(u64, f64)| format!("{} {:.1} MB/s", bytes(*size), rate / 1e6);
    figures.iter().map(rate).collect::<Vec<_>>().join("  ")
}

/// Seconds with as many digits as mean something.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

/// A rate with as many digits as mean something.
fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn bytes(size: u64) -> String {
    match size {
        0..1024 => format!("{size} B"),
        1024..0x10_0000 => format!("{} KiB", size >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", size >> 20),
        _ => format!("{:.1} GiB", size as f64 / (1u64 << 30) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_every_row_and_ratios_of_the_same_run() {
        let row = Row {
            runtime: Runtime::Std,
            size: 1_024,
            count: 20_000,
            queued: 4.0,
            seconds: 2.0,
            batch_out: 512.4,
            batch_in: 700.0,
            rss_anon: vec![12 << 20, 13 << 20],
            processor: 0.9,
        };
        let raw = Raw { tls: 1_024e6, synced: vec![(1_024, 5.12e6)], copied: Vec::new() };
        let mut report = Report { raw, rows: vec![row], processes: true };
        let text = report.text();
        let line = text.lines().find(|l| l.contains("std")).expect("its line");
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let expected = [
            "std",
            "1 KiB",
            "20000",
            "2.00",
            "10000",
            "10.2",
            "0.01",
            "2.00",
            "512 700",
            "5000",
            "45.0 us",
            "12 MiB 13 MiB",
        ];
        assert_eq!(cells, expected);
        let json = report.json();
        assert_eq!(json["rows"][0]["ratio_to_copied"], Value::Null);
        assert_eq!(json["rows"][0]["ratio_to_synced"], 2.0);
        assert_eq!(json["schema"], "consign.bench/1");

        // A large one beside it has a limit of its own.
        report.rows.push(Row { size: 1 << 30, count: 1, seconds: 1.0, ..report.rows[0].clone() });
        report.raw.synced.push((1 << 30, 1e9));
        report.raw.copied.push((1 << 30, 2.147_483_648e9));
        let text = report.text();
        let cell = |size: &str| {
            let mut lines = text.lines().filter(|line| line.contains("std"));
            let line = lines.find(|line| line.contains(size)).expect("its line");
            line.split_whitespace().nth(9).map(str::to_owned)
        };
        assert_eq!(cell("1 KiB"), Some("-".to_owned()), "{text}");
        assert_eq!(cell("1.0 GiB      1"), Some("0.50".to_owned()), "{text}");
        assert!(text.starts_with("raw: ") && text.contains("read 1.0 GiB 2147.5 MB/s"), "{text}");
        assert_eq!(report.json()["rows"][1]["ratio_to_copied"], 0.5);
    }
}
