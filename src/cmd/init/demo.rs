//! `consign init --demo`: two sites that know each other, with names for both, and nothing to edit.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{InitArgs, PORT, PORT_STEP, Plan, WEB_ABOVE, shown, usage};
use crate::cmd::demo::pair::{self, SITES};
use crate::contexts::{self, Contexts};
use crate::exit::{Failure, Global};
use crate::out;

/// Where they are made when nothing is said.
pub(crate) const DEMO_DIR: &str = "consign-demo";
/// Days for which the authority and the certificates of a demo are valid: nobody is to stay with them.
const DAYS: u64 = 30;

/// Makes both and says so.
///
/// # Errors
/// When there is something in the directory, a name is taken, or anything cannot be made.
pub(super) fn run(args: &InitArgs, global: &Global) -> Result<(), Failure> {
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(DEMO_DIR));
    let at = addresses(args.listen)?;
    let names = contexts::needed_file()?;
    // Names that are taken are found before anything is made.
    let mut taken = Contexts::read(&names).map_err(|faults| faults.failure())?;
    add(&mut taken, &std::path::absolute(&dir).unwrap_or_else(|_| dir.clone()))?;
    let whole = pair::directory(&dir)?;
    let lasts = Duration::from_secs(DAYS * 86_400);
    let made = pair::make(&dir, at, Some(lasts))?;
    contexts::change(&names, |contexts| add(contexts, &whole))
        .inspect_err(|_| pair::unmake(&whole))?;
    if global.json {
        for ((plan, report), (name, _)) in made.iter().zip(SITES) {
            let mut object = report.json(plan);
            object["context"] = name.into();
            out::line(&object.to_string());
        }
    } else {
        out::line(&text(&dir, made.each_ref().map(|(plan, _)| plan)));
    }
    Ok(())
}

/// Where alpha listens, and beta beside it; there is room for their pages.
fn addresses(alpha: Option<SocketAddr>) -> Result<[SocketAddr; 2], Failure> {
    let alpha = alpha.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)));
    let most = u16::MAX - PORT_STEP - WEB_ABOVE;
    if !(1..=most).contains(&alpha.port()) {
        let message = format!("--listen {alpha}: with --demo the port is 1 to {most}");
        return Err(usage(message).help(format!("beta listens {PORT_STEP} above it")));
    }
    let mut beta = alpha;
    beta.set_port(alpha.port() + PORT_STEP);
    Ok([alpha, beta])
}

fn add(contexts: &mut Contexts, dir: &Path) -> Result<(), Failure> {
    SITES.iter().try_for_each(|(name, _)| contexts.add(name, &dir.join(name)))
}

fn text(dir: &Path, plans: [&Plan; 2]) -> String {
    let shown = shown(dir);
    let names = SITES.map(|(name, _)| name).join(" and ");
    let mut text = format!(
        "Created {shown}/  (demo CA, valid {DAYS} days, not for production; contexts {names} saved)\n"
    );
    for plan in plans {
        let Some(listen) = plan.listen else { continue };
        let (name, page) = (&plan.name, Plan::page(listen));
        text.push_str(&format!("  {name:<5}  peers {listen}   page http://{page}\n"));
    }
    let dir = if dir == Path::new(DEMO_DIR) { String::new() } else { format!(" -c {shown}") };
    text.push_str(&format!(
        "Next: consign serve --demo{dir}       then, in a second terminal: \
         consign --context alpha send README.md --to beta --wait"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_beside_each_other_and_there_is_room_for_all_of_them() {
        let at = |text: &str| addresses(Some(text.parse().expect("an address")));
        let [alpha, beta] = addresses(None).expect("the usual ones");
        assert_eq!((alpha.to_string().as_str(), beta.port()), ("127.0.0.1:7400", 7500));
        assert_eq!(at("127.0.0.2:65424").expect("the last")[1].to_string(), "127.0.0.2:65524");
        for wrong in ["127.0.0.1:0", "127.0.0.1:65425"] {
            assert_eq!(at(wrong).expect_err("no room").code, "CN0002");
        }
    }
}
