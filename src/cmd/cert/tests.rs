//! Tests of `cert`: what is made is what a start takes, and what is refused changes nothing.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::running::{Running, say, wait};
use super::*;
use crate::admin::reloads::Certificate;
use crate::admin::shapes::Status;
use crate::cmd::init::{InitArgs, make};
use crate::cmd::screen::said;
use crate::config::{self, Layers};

/// A site in `root`, signed by the authority of another one there or by its own.
fn site(root: &Path, name: &str, ca: Option<&str>) -> Settings {
    let dir = root.join(name);
    let args = InitArgs {
        dir: Some(dir.clone()),
        ca: ca.map(|ca| root.join(ca)),
        host: vec![format!("{name}.example"), "2001:db8::1".into()],
        ..InitArgs::default()
    };
    make(&args).expect("made");
    config::load(&dir.join("consign.toml"), &Layers::default()).expect("good")
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let files = entries.map(|e| e.path()).filter(|path| path.is_file());
    files.map(|path| (path.clone(), std::fs::read(&path).expect("readable"))).collect()
}

fn shown(settings: &Settings) -> Certificates {
    Certificates::read(settings, 0).expect("readable")
}

fn starts(settings: &Settings) -> tls::Loaded {
    Credentials::read(&settings.tls).and_then(|c| c.setup(&settings.node)).expect("it starts")
}

fn request(settings: &Settings) -> Result<PathBuf, Failure> {
    let args = RequestArgs { host: vec!["new.example".into()], ..RequestArgs::default() };
    let (result, _) = said(true, |screen| super::request::request(&args, settings, screen));
    result.map(|_| super::request::usual_place(settings))
}

fn sign(settings: &Settings, request: &Path) -> Result<(PathBuf, CertDone), Failure> {
    let args = SignArgs { request: request.into(), ..SignArgs::default() };
    let (result, heard) = said(true, |screen| super::request::sign(&args, settings, screen));
    result?;
    let done = serde_json::from_str(&heard.lines[0]).expect("an object");
    Ok((request.with_extension("pem"), done))
}

fn install(settings: &Settings, file: &Path, trust: Option<&str>) -> Result<CertDone, Failure> {
    let args = InstallArgs { file: file.into(), trust: trust.map(String::from) };
    super::install::install(&args, settings)
}

#[test]
fn what_is_there_is_shown_with_its_days_and_fingerprints() {
    let root = tempfile::tempdir().expect("a directory");
    let alpha = site(root.path(), "alpha", None);
    let all = shown(&alpha);
    let [own, authority] = all.certificates.as_slice() else { panic!("{all:?}") };
    assert_eq!((own.certificate.as_str(), own.name.as_str()), ("own", "alpha"));
    assert_eq!(own.fingerprint, worded(&starts(&alpha).shown.own.0));
    assert_eq!((own.issuer.as_str(), all.problem.as_str()), (authority.name.as_str(), ""));
    assert!(authority.name.starts_with("CN=consign authority "), "{authority:?}");
    assert_eq!(own.days_left, own.expires_seconds / 86_400);
    // A new certificate has 90 days, though some seconds of them are gone.
    let new = Certificates::read(&alpha, own.expires_seconds - 90 * 86_400 + 5).expect("readable");
    assert_eq!(new.certificates[0].days_left, 89);
    let (_, heard) = said(false, |screen| show::say(&new, screen));
    assert!(heard.lines[0].contains("  90 days  sha256:"), "{heard:?}");
    let later = Certificates::read(&alpha, own.expires_seconds + 1).expect("readable");
    assert_eq!(later.certificates[0].days_left, -1);
    let (_, heard) = said(false, |screen| show::say(&later, screen));
    assert!(heard.lines[0].contains("  over  sha256:"), "{heard:?}");
    // A key of something else is said and is no failure.
    let beta = site(root.path(), "beta", Some("alpha"));
    std::fs::copy(&beta.tls.key, &alpha.tls.key).expect("copied");
    assert!(shown(&alpha).problem.starts_with("CN0314: "), "{:?}", shown(&alpha));
}

#[test]
fn a_renewal_is_another_key_with_the_same_names() {
    let root = tempfile::tempdir().expect("a directory");
    let alpha = site(root.path(), "alpha", None);
    let before = shown(&alpha);
    let old_key = std::fs::read(&alpha.tls.key).expect("a key");
    std::fs::set_permissions(&alpha.tls.key, std::fs::Permissions::from_mode(0o640)).expect("set");
    let args = RenewArgs { signing: Signing { days: 30, ..Signing::default() } };
    let done = renew::renew(&args, &alpha).expect("renewed");
    let after = starts(&alpha);
    assert_eq!(done.fingerprint, Some(worded(&after.shown.own.0)));
    assert_ne!(done.fingerprint.as_ref(), Some(&before.certificates[0].fingerprint));
    assert_eq!(done.authority.as_ref(), Some(&before.certificates[1].fingerprint));
    assert_ne!(std::fs::read(&alpha.tls.key).expect("a key"), old_key);
    assert_eq!(after.own.hosts, before.certificates[0].hosts);
    let days =
        shown(&alpha).certificates[0].expires_seconds - before.certificates[0].expires_seconds;
    assert!((-61 * 86_400..-59 * 86_400).contains(&days), "{days}");
    let mode = alpha.tls.key.metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o640, "whoever could read it still can, and nobody else");
    // One that was cut off between key and certificate is mended by another.
    let other = crate::pki::Authority::new().expect("made").0;
    let stray = other.site("alpha", &[], Duration::from_secs(60)).expect("made");
    std::fs::write(&alpha.tls.key, stray.key).expect("written");
    assert!(shown(&alpha).problem.starts_with("CN0314"));
    renew::renew(&RenewArgs::default(), &alpha).expect("renewed");
    starts(&alpha);
}

#[test]
fn without_the_authority_that_signed_nothing_is_renewed() {
    let root = tempfile::tempdir().expect("a directory");
    let (alpha, beta) =
        (site(root.path(), "alpha", None), site(root.path(), "beta", Some("alpha")));
    let before = files(&root.path().join("beta"));
    let refused = renew::renew(&RenewArgs::default(), &beta).expect_err("no key of it here");
    assert_eq!(refused.code, "CN0326");
    assert!(refused.message.contains("ca.key") && refused.help.contains("cert request"));
    let by = |ca: &str| RenewArgs {
        signing: Signing { ca: Some(root.path().join(ca)), ..Signing::default() },
    };
    site(root.path(), "other", None);
    let refused = renew::renew(&by("other"), &beta).expect_err("another authority");
    assert_eq!(refused.code, "CN0326");
    assert!(refused.message.contains("is not the one that signed"), "{refused}");
    assert_eq!(files(&root.path().join("beta")), before);
    let done = renew::renew(&by("alpha"), &beta).expect("by the authority where it lies");
    assert_eq!(done.authority, Some(shown(&alpha).certificates[1].fingerprint.clone()));
    assert_eq!(starts(&beta).own.name, "beta");
}

#[test]
fn a_request_is_signed_there_and_installed_here() {
    let root = tempfile::tempdir().expect("a directory");
    // Each has an authority of its own, as on two machines.
    let (alpha, beta) = (site(root.path(), "alpha", None), site(root.path(), "beta", None));
    let alphas = shown(&alpha).certificates[1].fingerprint.clone();
    let csr = request(&beta).expect("made");
    let waiting = shown(&beta).requested.expect("a key that waits");
    let mode = Path::new(&waiting).metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(!std::fs::read_to_string(&csr).expect("there").contains("PRIVATE"));
    let again = request(&beta).expect_err("one waits already");
    assert_eq!(again.code, "CN0322");
    let (answer, signed) = sign(&alpha, &csr).expect("signed");
    assert_eq!((signed.name.as_str(), signed.authority.as_ref()), ("beta", Some(&alphas)));
    assert_eq!(sign(&alpha, &csr).expect_err("it is there").code, "CN0322");
    // An authority is not believed for coming along.
    let before = files(&root.path().join("beta"));
    let refused = install(&beta, &answer, None).expect_err("nobody knows that authority");
    assert_eq!(refused.code, "CN0327");
    assert!(refused.help.ends_with(&format!("--trust {alphas}")), "{refused}");
    let wrong = format!("sha256:{}", "0".repeat(64));
    let refused = install(&beta, &answer, Some(&wrong)).expect_err("another one");
    assert_eq!(refused.code, "CN0327");
    assert_eq!(files(&root.path().join("beta")), before);
    let done = install(&beta, &answer, Some(&alphas)).expect("installed");
    assert_eq!((done.fingerprint, &done.key), (signed.fingerprint, &signed.key));
    assert_eq!(done.files.len(), 3);
    let loaded = starts(&beta);
    assert!(loaded.own.hosts.iter().any(|h| h == "beta.example"), "{:?}", loaded.own.hosts);
    assert!(loaded.own.hosts.iter().any(|h| h == "new.example"), "{:?}", loaded.own.hosts);
    assert_eq!(loaded.shown.authorities.len(), 2);
    assert!(!csr.exists() && shown(&beta).requested.is_none(), "the next one has room");
    // Once more is the same again, as after a run that was cut off.
    let again = install(&beta, &answer, Some(&alphas)).expect("installed");
    assert_eq!(again.files, [beta.tls.cert.display().to_string()]);
    starts(&beta);
    // Its own authority is not whom anybody believes now: it signs nothing.
    let refused = renew::renew(&RenewArgs::default(), &beta).expect_err("the wrong authority");
    assert_eq!(refused.code, "CN0326");
}

#[test]
fn a_run_that_was_cut_off_between_key_and_certificate_is_finished_by_another() {
    let root = tempfile::tempdir().expect("a directory");
    let (alpha, beta) =
        (site(root.path(), "alpha", None), site(root.path(), "beta", Some("alpha")));
    let csr = request(&beta).expect("made");
    let (answer, signed) = sign(&alpha, &csr).expect("signed");
    let waiting = super::request::next_key(&beta);
    std::fs::copy(&waiting, &beta.tls.key).expect("copied");
    assert!(shown(&beta).problem.starts_with("CN0314"));
    let done = install(&beta, &answer, None).expect("finished");
    assert_eq!(done.fingerprint, signed.fingerprint);
    assert_eq!(worded(&starts(&beta).shown.own.0), signed.fingerprint.expect("one"));
    assert!(!waiting.exists());
}

#[test]
fn what_is_not_for_this_site_is_refused_and_changes_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    let (alpha, beta) =
        (site(root.path(), "alpha", None), site(root.path(), "beta", Some("alpha")));
    let gamma = site(root.path(), "gamma", Some("alpha"));
    let own = request(&alpha).expect("made");
    let refused = sign(&alpha, &own).expect_err("its own name");
    assert_eq!(refused.code, "CN0325");
    assert!(refused.message.contains("own name"), "{refused}");
    let refused = sign(&alpha, &alpha.tls.cert).expect_err("no request");
    assert_eq!(refused.code, "CN0325");
    let csr = request(&beta).expect("made");
    let refused = sign(&gamma, &csr).expect_err("no authority here");
    assert_eq!(refused.code, "CN0326");
    let (answer, _) = sign(&alpha, &csr).expect("signed");
    let before = files(&root.path().join("gamma"));
    assert_eq!(install(&gamma, &answer, None).expect_err("beta's").code, "CN0313");
    let nothing = root.path().join("nothing");
    std::fs::write(&nothing, "hello").expect("written");
    assert_eq!(install(&gamma, &nothing, None).expect_err("no certificate").code, "CN0312");
    let missing = root.path().join("missing");
    assert_eq!(install(&gamma, &missing, None).expect_err("no file").code, "CN0311");
    assert_eq!(files(&root.path().join("gamma")), before);
    // An answer to a request whose key is gone.
    std::fs::remove_file(super::request::next_key(&beta)).expect("removed");
    let before = files(&root.path().join("beta"));
    assert_eq!(install(&beta, &answer, None).expect_err("no key").code, "CN0314");
    assert_eq!(files(&root.path().join("beta")), before);
}

#[test]
fn the_running_site_is_believed_about_what_it_shows() {
    let status = |print: &str, problem: &str| {
        let own = Certificate {
            certificate: "own".into(),
            fingerprint: print.into(),
            ..Certificate::default()
        };
        let certificate_files = problem.into();
        Status { certificates: vec![own], certificate_files, ..Status::default() }
    };
    let away = || Failure::new(Exit::Unreachable, "CN0601", "nobody");
    let mut answers = vec![Ok(status("new", "")), Ok(status("old", "")), Ok(status("old", ""))];
    assert_eq!(wait("new", || (answers.pop().expect("asked too often"), false)), Running::Taken);
    assert_eq!(wait("new", || (Err(away()), false)), Running::Away);
    let why = Running::Waiting("CN0314: why".into());
    assert_eq!(wait("new", || (Ok(status("old", "CN0314: why")), true)), why);
    let done = CertDone { action: "renew".into(), name: "alpha".into(), ..CertDone::default() };
    let (_, heard) = said(false, |screen| say(&done, &why, screen));
    assert!(heard.lines[0].starts_with("Renewed the certificate of alpha"), "{heard:?}");
    assert_eq!(heard.notes[0], "warning: CN0314: why");
}

/// The card that `init` prints for a site at this address.
fn card(root: &Path, name: &str, listen: &str) -> String {
    let listen = Some(listen.parse().expect("an address"));
    let peer = vec!["delta=192.0.2.1:7400".into()];
    let args = InitArgs { dir: Some(root.join(name)), listen, peer, ..InitArgs::default() };
    let (plan, report) = make(&args).expect("made");
    let card = report.json(&plan)["card"].as_str().expect("a card").to_string();
    assert!(report.text(&plan).contains(&card), "people are told as well");
    card
}

#[test]
fn a_site_that_joins_by_a_card_believes_the_cards_authority_and_no_other() {
    let root = tempfile::tempdir().expect("a directory");
    let card = card(root.path(), "alpha", "127.0.0.1:7400");
    let load = |name: &str| {
        let file = root.path().join(name).join("consign.toml");
        config::load(&file, &Layers::default()).expect("good")
    };
    let alpha = load("alpha");
    let print = shown(&alpha).certificates[1].fingerprint.clone();
    assert_eq!(card, format!("consign:alpha@127.0.0.1:7400#{print}"));
    let args = InitArgs {
        dir: Some(root.path().join("beta")),
        join: Some(card.clone()),
        ..InitArgs::default()
    };
    let (plan, report) = make(&args).expect("made");
    assert_eq!(report.json(&plan)["certificate_expires_at"], serde_json::Value::Null);
    let beta = load("beta");
    assert_eq!((beta.node.peers.len(), beta.node.peers[0].name.as_str()), (1, "alpha"));
    let all = shown(&beta);
    assert_eq!(all.certificates.len(), 0);
    assert!(all.problem.starts_with("CN0311") && all.requested.is_some(), "{all:?}");
    let csr = super::request::usual_place(&beta);
    // Somebody in between answers with an authority of their own.
    let between = site(root.path(), "between", None);
    let before = files(&root.path().join("beta"));
    let (answer, _) = sign(&between, &csr).expect("signed");
    let refused = install(&beta, &answer, None).expect_err("not the card's");
    assert_eq!(refused.code, "CN0327");
    assert!(refused.message.contains(&print), "{refused}");
    std::fs::remove_file(&answer).expect("removed");
    assert_eq!(files(&root.path().join("beta")), before);
    let (answer, _) = sign(&alpha, &csr).expect("signed");
    install(&beta, &answer, None).expect("installed");
    let loaded = starts(&beta);
    assert_eq!((loaded.own.name.as_str(), loaded.shown.authorities.len()), ("beta", 1));
    let mode = beta.tls.key.metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let left: Vec<_> = files(&root.path().join("beta")).into_keys().collect();
    let names = ["beta.pem", "ca.pem", "consign.toml", "node.key", "node.pem"];
    assert_eq!(left, names.map(|name| root.path().join("beta").join(name)));
}

#[test]
fn a_card_that_is_none_and_ones_own_make_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    let card = card(root.path(), "alpha", "127.0.0.1:7400");
    let dir = root.path().join("x");
    for (name, card) in [("beta", "consign:alpha"), ("alpha", card.as_str())] {
        let args = InitArgs {
            dir: Some(dir.clone()),
            name: Some(name.into()),
            join: Some(card.into()),
            ..InitArgs::default()
        };
        let refused = make(&args).map(|_| ()).expect_err("no such site");
        assert_eq!((refused.exit, refused.code), (Exit::Usage, "CN0002"), "{refused}");
        assert!(!dir.exists());
    }
}
