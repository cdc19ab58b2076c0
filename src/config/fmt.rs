//! The file in its usual order and spacing. No comment is lost and no value is touched: text that would say something else
//! afterwards is given back as a fault instead.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Code, Faults};
use super::keys::{self, SECTIONS};
use super::walk;

/// Column at which comments behind values stand, as in the file that `init` writes.
const COMMENTS_AT: usize = 34;

/// Lays a file out: sections and keys in the order of the reference page, one blank line between sections, comments
/// with what they stand above or behind. A default that is commented out counts as the key that it shows.
///
/// # Errors
/// When the text is not TOML.
pub fn format(file: &Path, text: &str) -> Result<String, Faults> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let faults = errors.iter().map(walk::syntax).collect();
        return Err(Faults::new(file.into(), text.to_owned(), faults));
    }
    let mut leaves = Vec::new();
    collect(text, root.get_ref(), &mut leaves);
    leaves.sort_by_key(|leaf| leaf.key.start);
    let mut laid = Reader::read(text, &leaves);
    let before = laid.comments();
    laid.order();
    let out = laid.write();
    if same(text, &out) && comments(&out) == before {
        return Ok(out);
    }
    let message = "cannot be laid out without saying something else";
    let help = "write each section under a header of its own, `[section]`";
    Err(Faults::whole(file.into(), Code::Syntax, message, help))
}

fn same(before: &str, after: &str) -> bool {
    let parse = |text: &str| text.parse::<toml::Table>().ok();
    parse(before).is_some_and(|before| Some(before) == parse(after))
}

fn comments(text: &str) -> Vec<String> {
    let (root, _) = DeTable::parse_recoverable(text);
    let mut leaves = Vec::new();
    collect(text, root.get_ref(), &mut leaves);
    leaves.sort_by_key(|leaf| leaf.key.start);
    Reader::read(text, &leaves).comments()
}

/// A key with a value of its own.
struct Leaf {
    key: Range<usize>,
    value: Range<usize>,
}

fn collect(text: &str, table: &DeTable<'_>, into: &mut Vec<Leaf>) {
    for (key, value) in table {
        match value.get_ref() {
            DeValue::Table(inner) if !begins(text, value, "{") => collect(text, inner, into),
            DeValue::Array(items) if items.iter().any(|item| is_section(text, item)) => {
                for item in items {
                    if let DeValue::Table(inner) = item.get_ref() {
                        collect(text, inner, into);
                    }
                }
            }
            _ => into.push(Leaf { key: key.span(), value: value.span() }),
        }
    }
}

fn begins(text: &str, value: &Spanned<DeValue<'_>>, with: &str) -> bool {
    text.get(value.span()).is_some_and(|value| value.starts_with(with))
}

fn is_section(text: &str, item: &Spanned<DeValue<'_>>) -> bool {
    matches!(item.get_ref(), DeValue::Table(_)) && begins(text, item, "[[")
}

/// A key with its value, or one that is commented out, and what stands above it.
struct Entry {
    name: String,
    above: Vec<String>,
    line: String,
    behind: Option<String>,
}

/// A header and what is below it.
#[derive(Default)]
struct Block {
    above: Vec<String>,
    name: String,
    header: String,
    behind: Option<String>,
    entries: Vec<Entry>,
    /// What stands below the last entry.
    below: Vec<String>,
}

struct Reader {
    blocks: Vec<Block>,
    /// Comments and blank lines, which are empty, that belong to what comes next.
    waiting: Vec<String>,
}

impl Reader {
    fn read(text: &str, leaves: &[Leaf]) -> Reader {
        let mut reader = Reader { blocks: vec![Block::default()], waiting: Vec::new() };
        let mut leaves = leaves.iter().peekable();
        let mut from = 0;
        while from < text.len() {
            let end = line_end(text, from);
            if let Some(leaf) = leaves.next_if(|leaf| leaf.key.start < end) {
                let end = line_end(text, leaf.value.end);
                reader.entry(text, from, leaf, end);
                from = end + 1;
                continue;
            }
            reader.line(text, from..end);
            from = end + 1;
        }
        let rest = std::mem::take(&mut reader.waiting);
        reader.block().below = rest;
        reader
    }

    fn block(&mut self) -> &mut Block {
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        let last = self.blocks.len() - 1;
        &mut self.blocks[last]
    }

    fn entry(&mut self, text: &str, from: usize, leaf: &Leaf, end: usize) {
        let left = text.get(from..leaf.value.start).unwrap_or_default().trim();
        let name = left.strip_suffix('=').unwrap_or(left).trim().to_owned();
        let value = text.get(leaf.value.clone()).unwrap_or_default();
        let behind = comment(text.get(leaf.value.end..end).unwrap_or_default());
        let line = format!("{name} = {value}");
        let above = std::mem::take(&mut self.waiting);
        self.block().entries.push(Entry { name, above, line, behind });
    }

    fn line(&mut self, text: &str, range: Range<usize>) {
        let line = text.get(range.clone()).unwrap_or_default().trim();
        if line.starts_with('[') {
            return self.header(line);
        }
        let commented = commented_key(line, &self.block().name).map(str::to_owned);
        match commented.filter(|_| !shows_section(text, range.start)) {
            Some(name) => {
                let above = std::mem::take(&mut self.waiting);
                let line = line.to_owned();
                self.block().entries.push(Entry { name, above, line, behind: None });
            }
            None => self.waiting.push(line.to_owned()),
        }
    }

    /// The comments right above a header are its own; what comes before them belongs to the section before.
    fn header(&mut self, line: &str) {
        let mut below = std::mem::take(&mut self.waiting);
        let own = below.iter().rposition(String::is_empty).map_or(0, |at| at + 1);
        let above = below.split_off(own);
        self.block().below = below;
        let end = line.find('#').unwrap_or(line.len());
        let (header, rest) = line.split_at(end);
        let name = header.trim().trim_matches(['[', ']']).trim().to_owned();
        let many = header.starts_with("[[");
        let header = if many { format!("[[{name}]]") } else { format!("[{name}]") };
        self.blocks.push(Block { above, name, header, behind: comment(rest), ..Block::default() });
    }

    fn order(&mut self) {
        let place = |block: &Block| match SECTIONS.iter().position(|s| s.name == block.name) {
            _ if block.header.is_empty() => 0,
            Some(at) => at + 1,
            None => usize::MAX,
        };
        self.blocks.sort_by_key(place);
        for block in &mut self.blocks {
            let known: Vec<&str> = keys::of_section(&block.name).map(|k| k.name).collect();
            let place = |e: &Entry| known.iter().position(|k| *k == e.name).unwrap_or(usize::MAX);
            block.entries.sort_by_key(place);
        }
    }

    /// Every comment, sorted.
    fn comments(&self) -> Vec<String> {
        let mut all = Vec::new();
        for block in &self.blocks {
            all.extend(block.above.iter().chain(&block.below).cloned());
            all.extend(block.behind.clone());
            for entry in &block.entries {
                all.extend(entry.above.iter().cloned());
                all.extend(entry.behind.clone());
                all.extend(entry.line.starts_with('#').then(|| entry.line.clone()));
            }
        }
        all.retain(|comment| !comment.is_empty());
        all.sort();
        all
    }

    fn write(&self) -> String {
        let mut page = Page::default();
        for block in &self.blocks {
            page.blank();
            page.lines(&block.above);
            if !block.header.is_empty() {
                let behind = block.behind.as_ref().map(|c| format!("  {c}")).unwrap_or_default();
                page.line(&format!("{}{behind}", block.header));
                page.closed = true;
            }
            for entry in &block.entries {
                page.lines(&entry.above);
                page.line(&entry.text());
            }
            page.lines(&block.below);
        }
        page.out
    }
}

impl Entry {
    fn text(&self) -> String {
        match &self.behind {
            None => self.line.clone(),
            Some(behind) if self.line.contains('\n') => format!("{}  {behind}", self.line),
            Some(behind) => format!("{:<COMMENTS_AT$}  {behind}", self.line),
        }
    }
}

/// Lines with never more than one blank line between them, and none at the start, below a header or at the end.
#[derive(Default)]
struct Page {
    out: String,
    gap: bool,
    closed: bool,
}

impl Page {
    fn blank(&mut self) {
        self.closed = false;
        self.gap = true;
    }

    fn line(&mut self, line: &str) {
        if self.gap && !self.out.is_empty() {
            self.out.push('\n');
        }
        self.gap = false;
        self.closed = false;
        self.out += line;
        self.out.push('\n');
    }

    fn lines(&mut self, lines: &[String]) {
        for line in lines {
            match line.as_str() {
                "" if !self.closed => self.gap = true,
                "" => {}
                line => self.line(line),
            }
        }
    }
}

fn line_end(text: &str, from: usize) -> usize {
    text.get(from..).and_then(|rest| rest.find('\n')).map_or(text.len(), |at| from + at)
}

fn comment(rest: &str) -> Option<String> {
    let rest = rest.trim();
    rest.starts_with('#').then(|| rest.to_owned())
}

/// The key of that section that a comment shows, as `# max_bytes = "100GiB"` does.
fn commented_key<'a>(line: &'a str, section: &str) -> Option<&'a str> {
    let (name, _) = line.strip_prefix('#')?.split_once('=')?;
    let name = name.trim();
    keys::find(section, name).map(|_| name)
}

/// Whether the paragraph of comments around a place shows a section, with its header.
fn shows_section(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default().lines().rev();
    let paragraph = before.map(str::trim).take_while(|line| line.starts_with('#'));
    paragraph.map(|line| line.trim_start_matches(['#', ' '])).any(|line| line.starts_with('['))
}
