//! One flat JSON object a line: `timestamp`, `level`, `target`, `message`, `node`, then what the line has besides.

use std::fmt;
use std::sync::OnceLock;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The site whose lines these are, where a line does not say another.
static NODE: OnceLock<String> = OnceLock::new();

/// Lines of this process are this site's from now on.
pub fn of_node(name: &str) {
    let _ = NODE.set(name.to_owned());
}

/// The format.
pub(super) struct Flat;

impl<S, N> FormatEvent<S, N> for Flat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (level, target) = (event.metadata().level().as_str(), event.metadata().target());
        writeln!(writer, "{}", line(&time, level, target, fields))
    }
}

/// A line of the log about itself.
pub(super) fn warning(text: &str) -> String {
    let mut time = String::new();
    // Writing to a String does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let rest = [("code".to_owned(), Value::from("CN0567"))].into_iter().collect();
    let fields = Fields { message: text.to_owned(), node: None, rest };
    line(&time, "WARN", "consign::log", fields)
}

fn line(time: &str, level: &str, target: &str, fields: Fields) -> String {
    let Fields { message, mut node, rest } = fields;
    if node.is_none() {
        node = NODE.get().map(|name| name.as_str().into());
    }
    let heads: [(&str, Value); 4] = [
        ("timestamp", time.into()),
        ("level", level.into()),
        ("target", target.into()),
        ("message", message.into()),
    ];
    let heads = heads.into_iter().chain(node.map(|node| ("node", node)));
    let mut text = String::from("{");
    for (key, value) in heads.chain(rest.iter().map(|(key, value)| (key.as_str(), value.clone()))) {
        let comma = if text.len() > 1 { "," } else { "" };
        text += &format!("{comma}{}:{value}", Value::from(key));
    }
    text + "}"
}

/// What an event carries.
#[derive(Default)]
struct Fields {
    message: String,
    node: Option<Value>,
    rest: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("node", value) => self.node = Some(value),
            (name, value) => {
                // `%why` and `?why` are fields of that name; a raw name has `r#` before it.
                self.rest.insert(name.trim_start_matches("r#").to_owned(), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(log: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let layer =
            tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).event_format(Flat);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        String::from_utf8(kept.0.lock().unwrap().clone()).expect("text")
    }

    #[test]
    fn a_line_is_one_flat_object_whose_heads_come_first() {
        let why = "a \"b\"\nc";
        let text = logged(|| {
            tracing::warn!(node = "alpha", bytes = 7_u64, up = true, %why, code = "CN0503", "{why}");
        });
        let (line, rest) = text.split_once('\n').expect("a line");
        assert_eq!(rest, "");
        let object: Value = serde_json::from_str(line).expect("JSON");
        let heads = ["timestamp", "level", "target", "message", "node"];
        let at = heads.map(|head| line.find(&format!("\"{head}\":")).expect(head));
        assert!(at.is_sorted(), "{line}");
        assert_eq!((&object["level"], &object["node"]), (&"WARN".into(), &"alpha".into()));
        assert_eq!((&object["message"], &object["why"]), (&why.into(), &why.into()));
        assert_eq!((&object["bytes"], &object["up"]), (&7.into(), &true.into()));
        assert_eq!(
            (&object["code"], object.as_object().map(Map::len)),
            (&"CN0503".into(), Some(9))
        );
    }

    #[test]
    fn a_line_without_a_site_is_the_sites_of_the_process() {
        of_node("alpha");
        let text = logged(|| tracing::error!(code = "CN0566", left = -3_i64, "x"));
        assert!(
            text.contains("\"message\":\"x\",\"node\":\"alpha\",\"code\":\"CN0566\",\"left\":-3}"),
            "{text}"
        );
    }
}
