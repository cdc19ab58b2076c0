//! The process: which it is, what it says, what it uses.

use consign_core::node::Status;

use super::page::{Kind::Counter, Kind::Gauge, Page, Seconds};
use crate::admin::AdminContext;
use crate::{log, meters};

/// What it is and what is wrong with it.
pub(super) fn site(page: &mut Page, status: &Status, context: &AdminContext) {
    let name = "consign_build_info";
    page.family(name, Gauge, "Version, commit it was built from, and runtime; always 1.");
    let (version, revision) = context.version.split_once('+').unwrap_or((&context.version, ""));
    let labels = [("version", version), ("revision", revision), ("runtime", &context.runtime)];
    page.sample(name, &labels, 1);
    page.one("consign_boots", Gauge, "How often the site was started.", status.boot);
    page.labelled(
        "consign_log_messages_total",
        Counter,
        "Lines of the log since the start, at the levels that are written.",
        "level",
        log::counts(),
    );
    page.one(
        "consign_invariant_violations_total",
        Counter,
        "Rows, content and partial uploads found unreadable, damaged or gone since the start.",
        context.meters.violations().saturating_add(status.scrub.corrupt),
    );
    let help = "Whether nothing expires because a step of the clock is not confirmed.";
    page.one("consign_clock_held", Gauge, help, status.clock_held.into());
    let help = "Whether the check of what is stored at the start is still under way.";
    page.one("consign_reconciling", Gauge, help, status.reconciling.into());
}

/// What the kernel tells of it.
pub(super) fn process(page: &mut Page) {
    let process = meters::process::read();
    let name = "process_cpu_seconds_total";
    page.family(name, Counter, "Total user and system CPU time spent in seconds.");
    page.sample(name, &[], Seconds(process.cpu_micros));
    let gauges = [
        ("process_open_fds", "Number of open file descriptors.", process.open_files),
        ("process_max_fds", "Maximum number of open file descriptors.", process.max_files),
        ("process_virtual_memory_bytes", "Virtual memory size in bytes.", process.virtual_memory),
        ("process_resident_memory_bytes", "Resident memory size in bytes.", process.resident),
    ];
    for (name, help, value) in gauges {
        page.one(name, Gauge, help, value);
    }
    let name = "process_start_time_seconds";
    page.family(name, Gauge, "Start time of the process since unix epoch in seconds.");
    page.sample(name, &[], Seconds(process.started_micros));
}
