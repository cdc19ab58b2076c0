//! What comes after `init --pickup`: a client that may upload, a node that picks up.

use std::fmt::Write as _;

use super::{Plan, machine_name, reached_as};

/// The steps to the first shard, as they can be pasted.
pub(super) fn steps(plan: &Plan, dir: &str, out: &mut String) {
    let Some(pickup) = plan.pickup else { return };
    // Loopback is plain; anything else speaks TLS with the certificate that `init` has made.
    let (url, trust) = if pickup.ip().is_loopback() {
        (format!("http://{pickup}"), String::new())
    } else {
        let host = plan.host.clone().unwrap_or_else(|| match pickup.ip().is_unspecified() {
            true => machine_name(),
            false => pickup.ip().to_string(),
        });
        (format!("https://{}", reached_as(&host, pickup.port())), format!(" --ca {dir}/ca.pem"))
    };
    let _ = write!(
        out,
        "\nNext, run it:\n  consign serve -c {dir}\n\
         then a client that may upload, and a node that picks up (`node init` prints its KEY):\n  \
         (umask 077; consign -c {dir} pickup clients enrol app > app.token)\n  \
         consign node init edge --id edge-7 --relay {url}{trust}\n  \
         consign -c {dir} pickup nodes enrol edge-7 --key KEY\n\
         and a shard on its way:\n  \
         consign pickup upload FILE --to {url}{trust} --node edge-7 --file-id film --version 1 --token-file app.token\n  \
         consign node run edge\n"
    );
}
