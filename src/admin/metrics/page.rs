//! The text format itself.

use std::fmt::{self, Write as _};

use consign_core::histogram::Histogram;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Bounds, in microseconds, that are told of what takes up to a day.
pub(super) const LONG: fn(u64) -> bool = |bound| bound >= 5_000;
/// … of what should take moments.
pub(super) const SHORT: fn(u64) -> bool = |bound| bound <= 10_000_000;
/// … where there are many series: every third or so.
pub(super) const FEW: fn(u64) -> bool = |bound| {
    matches!(bound, 5_000 | 25_000 | 100_000 | 500_000 | 2_500_000 | 10_000_000 | 60_000_000)
};

/// Microseconds as seconds in decimals.
pub(super) struct Seconds(pub u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        let text = format!("{whole}.{part:06}");
        f.write_str(text.trim_end_matches('0'))
    }
}

/// A page in the making.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// A family begins; its samples follow.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", kind.word());
    }

    /// A family with one sample.
    pub(super) fn one(&mut self, name: &str, kind: Kind, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A family with a sample for each word of one label.
    pub(super) fn labelled<'w>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'w str, u64)>,
    ) {
        self.family(name, kind, help);
        for (word, value) in values {
            self.sample(name, &[(label, word)], value);
        }
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
        self.0.push_str(name);
        for (i, (key, text)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{open}{key}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// The samples of a histogram, with those of its bounds that `told` picks.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        histogram: &Histogram,
        told: fn(u64) -> bool,
    ) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.within().filter(|(bound, _)| told(*bound)) {
            let le = Seconds(bound).to_string();
            self.sample(&bucket, &[labels, &[("le", &*le)]].concat(), count);
        }
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), histogram.count());
        self.sample(&format!("{name}_sum"), labels, Seconds(histogram.sum()));
        self.sample(&format!("{name}_count"), labels, histogram.count());
    }
}
