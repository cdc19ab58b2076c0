//! What Prometheus reads: text format 0.0.4, base units, every series there from the start. Labels are
//! peers and directories of the configuration and words of tables, so their number is bounded. docs/METRICS.md tells every
//! family; counters begin at 0 with the process.

mod page;
mod peers;
mod pickup;
mod process;
mod rules;
mod served;
#[cfg(test)]
mod tests;

use consign_core::act::Action;
use consign_core::code::Refusal;
use consign_core::node::{Operation, Source, Status};

use super::AdminContext;
use page::{Kind::Counter, Kind::Gauge, Kind::Histogram, LONG, Page, SHORT};

/// The content type of the format.
pub(super) const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The whole page.
pub(super) fn text(status: &Status, context: &AdminContext) -> String {
    let mut page = Page::default();
    process::site(&mut page, status, context);
    configuration(&mut page, context);
    accepted(&mut page, status);
    store(&mut page, status, context);
    refusals(&mut page, status);
    peers::peers(&mut page, status, context);
    deliveries(&mut page, status);
    rules::rules(&mut page, &context.inbox_now(status), &context.watch.all());
    pickup::pickup(&mut page, &status.pickup, &status.tallied);
    served::served(&mut page, context);
    process::process(&mut page);
    page.into_text()
}

fn configuration(page: &mut Page, context: &AdminContext) {
    let (ok, success) = context.reloads.numbers();
    page.one(
        "consign_config_last_reload_successful",
        Gauge,
        "Whether the last reading of the configuration was taken; the start counts as one.",
        ok.into(),
    );
    page.one(
        "consign_config_last_reload_success_timestamp_seconds",
        Gauge,
        "When a reading was taken last.",
        success / 1000,
    );
    let (certificates, problem) = context.reloads.certificates_now();
    let name = "consign_certificate_expiry_timestamp_seconds";
    page.family(name, Gauge, "Last second of a certificate's validity.");
    for one in &certificates {
        let seconds = u64::try_from(one.expires_seconds).unwrap_or(0);
        page.sample(name, &[("certificate", &one.certificate)], seconds);
    }
    page.one(
        "consign_certificate_files_usable",
        Gauge,
        "Whether certificate and key can be used as they lie there.",
        problem.is_empty().into(),
    );
}

fn accepted(page: &mut Page, status: &Status) {
    let sources = || Source::ALL.iter().zip(status.tallied.accepted);
    page.labelled(
        "consign_segments_accepted_total",
        Counter,
        "Segments accepted that were new here, since the start.",
        "source",
        sources().map(|(source, row)| (source.word(), row.count)),
    );
    page.labelled(
        "consign_segments_accepted_bytes_total",
        Counter,
        "Their bytes.",
        "source",
        sources().map(|(source, row)| (source.word(), row.bytes)),
    );
}

fn store(page: &mut Page, status: &Status, context: &AdminContext) {
    let space = status.space;
    let gauges: [(&str, &str, u64); 11] = [
        ("consign_segments_stored", "Segments held.", status.segments),
        ("consign_segments_unplaced", "Segments that nobody is left to have.", status.unplaced),
        ("consign_storage_used_bytes", "Bytes charged to content.", status.used),
        ("consign_storage_limit_bytes", "What storage.max_bytes allows.", status.limit),
        ("consign_storage_free_bytes", "Bytes free on the disk.", space.free),
        (
            "consign_storage_full",
            "Whether new segments are refused for want of space.",
            status.full.into(),
        ),
        ("consign_ledger_used_bytes", "Bytes in live pages of the ledger.", space.ledger),
        (
            "consign_ledger_limit_bytes",
            "What storage.ledger_max allows.",
            context.reloads.ledger_max(),
        ),
        (
            "consign_ballast_whole",
            "Whether the reserve for a full disk is whole.",
            space.ballast_whole.into(),
        ),
        ("consign_quarantined_rows", "Rows set aside that cannot be read.", status.quarantined),
        (
            "consign_scrub_last_timestamp_seconds",
            "End of the last pass over all content; 0 before the first.",
            status.scrub.last.map_or(0, |at| at.0 / 1000),
        ),
    ];
    for (name, help, value) in gauges {
        page.one(name, Gauge, help, value);
    }
    let counters = [
        ("consign_commits_total", "Commits of the ledger since the start.", status.commits.0),
        ("consign_commit_rows_total", "Rows they wrote or removed.", status.commits.1),
        (
            "consign_scrubbed_bytes_total",
            "Content compared with its digests since the start.",
            status.scrub.bytes,
        ),
    ];
    for (name, help, value) in counters {
        page.one(name, Counter, help, value);
    }
    let name = "consign_ledger_commit_duration_seconds";
    page.family(
        name,
        Histogram,
        "From handing a batch to the ledger to hearing that it is durable.",
    );
    page.histogram(name, &[], &status.tallied.commits, SHORT);
}

fn refusals(page: &mut Page, status: &Status) {
    page.labelled(
        "consign_refusals_total",
        Counter,
        "Offers, submissions and acts refused since the start.",
        "code",
        Refusal::ALL.iter().map(|refusal| refusal.word()).zip(status.refusals),
    );
    page.labelled(
        "consign_acts_total",
        Counter,
        "Acts of operators since the start.",
        "action",
        Action::ALL.iter().map(|action| action.word()).zip(status.acts),
    );
    page.labelled(
        "consign_deadletter_operations_total",
        Counter,
        "Dead letters that operators queued again or struck, since the start.",
        "operation",
        Operation::ALL.iter().map(|operation| operation.word()).zip(status.tallied.deadletters),
    );
}

fn deliveries(page: &mut Page, status: &Status) {
    let histograms = [
        (
            "consign_delivery_latency_seconds",
            "From accepting a segment here to the durable acknowledgement, or the receipt by way of a hop.",
            &status.tallied.latency,
        ),
        (
            "consign_delivery_attempt_duration_seconds",
            "From a claim to what the attempt came to.",
            &status.tallied.attempts,
        ),
    ];
    for (name, help, histogram) in histograms {
        page.family(name, Histogram, help);
        page.histogram(name, &[], histogram, LONG);
    }
}
