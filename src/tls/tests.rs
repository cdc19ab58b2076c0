//! Tests of who is met and who is turned away, with handshakes in memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use consign_core::config::{Config, PeerConfig};
use consign_core::id::hex;
use consign_core::session::Identity;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, SanType, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, ProtocolVersion,
    RootCertStore, ServerConnection,
};

use super::identity::{Rules, Site, Unwelcome};
use super::{ALPN, Credentials, Loaded, now, provider, sha256};
use crate::config::TlsFiles;
use crate::pki::{Authority, Pair, SITE_LASTS, site_params};

fn authority() -> Authority {
    Authority::new().expect("an authority").0
}

fn credentials(authority: &Authority, pair: &Pair) -> Credentials {
    Credentials {
        roots: vec![
            CertificateDer::from_pem_slice(authority.certificate().as_bytes()).expect("ca"),
        ],
        chain: vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("cert")],
        key: PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("key"),
    }
}

fn config(name: &str, peers: &[(&str, Option<[u8; 32]>)]) -> Config {
    let peers =
        peers.iter().map(|(name, pin)| PeerConfig { pin: *pin, ..PeerConfig::new(*name, "h:1") });
    Config { name: name.into(), peers: peers.collect(), ..Config::default() }
}

/// A site that knows these peers, with a certificate of that authority.
fn site(authority: &Authority, name: &str, peers: &[(&str, Option<[u8; 32]>)]) -> Loaded {
    let pair = authority.site(name, &[], SITE_LASTS).expect("signed");
    credentials(authority, &pair).setup(&config(name, peers)).expect("set up")
}

mod strangers;

type Judged = Result<Identity, String>;

fn ends(client: &Loaded, server: &Loaded) -> (ClientConnection, ServerConnection) {
    let name = ServerName::try_from("site.invalid").expect("a name");
    let c = ClientConnection::new(client.setup.client.clone(), name).expect("client");
    (c, ServerConnection::new(server.setup.server.clone()).expect("server"))
}

/// Shakes hands; who each side says the other is, or why TLS itself refused, client first.
fn meet(client: &Loaded, server: &Loaded) -> Result<(Judged, Judged), Error> {
    let (mut c, mut s) = ends(client, server);
    shake(&mut c, &mut s)?;
    let identify = |loaded: &Loaded, chain: Option<&[CertificateDer<'_>]>| {
        (loaded.setup.identify)(chain.unwrap_or_default())
    };
    assert_eq!(c.alpn_protocol(), Some(ALPN));
    assert_eq!(c.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(c.tls13_tickets_received(), 0);
    Ok((identify(client, c.peer_certificates()), identify(server, s.peer_certificates())))
}

fn shake(c: &mut ClientConnection, s: &mut ServerConnection) -> Result<(), Error> {
    for _ in 0..8 {
        let mut wire = Vec::new();
        while c.wants_write() {
            c.write_tls(&mut wire).expect("memory");
        }
        let mut from = wire.as_slice();
        while !from.is_empty() {
            s.read_tls(&mut from).expect("memory");
            s.process_new_packets()?;
        }
        let mut wire = Vec::new();
        while s.wants_write() {
            s.write_tls(&mut wire).expect("memory");
        }
        let mut from = wire.as_slice();
        while !from.is_empty() {
            c.read_tls(&mut from).expect("memory");
            c.process_new_packets()?;
        }
    }
    assert!(!c.is_handshaking() && !s.is_handshaking(), "the handshake stands still");
    Ok(())
}

fn judge(pair: &Pair, peers: &[(&str, Option<[u8; 32]>)]) -> Result<Identity, Unwelcome> {
    let own = Site { name: "alpha".into(), not_before: 0, not_after: i64::MAX, hosts: Vec::new() };
    let leaf = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("a certificate");
    Rules::new(own, &config("alpha", peers), sha256).judge(&[leaf], now())
}

/// A certificate that a site would have, changed.
fn odd(change: impl FnOnce(&mut CertificateParams)) -> Pair {
    let mut params = site_params("beta").expect("parameters");
    change(&mut params);
    authority().odd(&params)
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().expect("ascii"))
}

#[test]
fn known_sites_meet_and_know_each_other() {
    let ours = authority();
    let alpha = site(&ours, "alpha", &[("beta", None)]);
    let beta = site(&ours, "beta", &[("alpha", None)]);
    assert_eq!(alpha.warning, None);
    let (seen_by_client, seen_by_server) = meet(&alpha, &beta).expect("TLS");
    let (b, a) = (seen_by_client.expect("welcome"), seen_by_server.expect("welcome"));
    assert_eq!((a.name.as_str(), b.name.as_str()), ("alpha", "beta"));
    assert_ne!(a.fingerprint, b.fingerprint);
    let lasts = b.not_after / 1_000 - u64::try_from(now()).expect("after 1970");
    assert!(lasts.abs_diff(SITE_LASTS.as_secs()) < 120, "{lasts}");
}

#[test]
fn a_second_meeting_is_a_full_handshake_again() {
    let ours = authority();
    let alpha = site(&ours, "alpha", &[("beta", None)]);
    let beta = site(&ours, "beta", &[("alpha", None)]);
    for _ in 0..2 {
        let (mut c, mut s) = ends(&alpha, &beta);
        shake(&mut c, &mut s).expect("TLS");
        assert_eq!(c.handshake_kind(), Some(rustls::HandshakeKind::Full));
        assert!(c.early_data().is_none());
    }
}

/// What ends a handshake: the sentence, and what the other side is told.
fn turned_away(client: &Loaded, server: &Loaded, by_client: bool) -> (String, Error) {
    let (mut c, mut s) = ends(client, server);
    let error = shake(&mut c, &mut s).expect_err("turned away");
    let Error::InvalidCertificate(CertificateError::Other(why)) = error else {
        panic!("{error}");
    };
    let mut alert = Vec::new();
    let told = if by_client {
        c.write_tls(&mut alert).expect("memory");
        s.read_tls(&mut alert.as_slice()).expect("memory");
        s.process_new_packets().map(|_| ())
    } else {
        // The server's own handshake is in the way of the alert: the client reads both.
        while s.wants_write() {
            s.write_tls(&mut alert).expect("memory");
        }
        c.read_tls(&mut alert.as_slice()).expect("memory");
        c.process_new_packets().map(|_| ())
    };
    (why.to_string(), told.expect_err("told"))
}

#[test]
fn strangers_are_turned_away_by_name_and_told_so() {
    let ours = authority();
    let alpha = site(&ours, "alpha", &[("beta", None)]);
    let gamma = site(&ours, "gamma", &[("alpha", None)]);
    let unknown = "gamma is not among relay.known_peers [CN0305]";
    let told = Error::AlertReceived(AlertDescription::CertificateUnknown);
    assert_eq!(turned_away(&gamma, &alpha, false), (unknown.into(), told.clone()));
    assert_eq!(turned_away(&alpha, &gamma, true), (unknown.into(), told));
    let twin = site(&ours, "alpha", &[("alpha-2", None), ("alpha", None)]);
    let (why, _) = turned_away(&twin, &alpha, true);
    assert!(why.ends_with("[CN0306]"), "{why}");
}

#[test]
fn certificates_of_another_authority_do_not_get_through_tls() {
    let (ours, theirs) = (authority(), authority());
    let alpha = site(&ours, "alpha", &[("beta", None)]);
    let beta = site(&theirs, "beta", &[("alpha", None)]);
    for (client, server) in [(&alpha, &beta), (&beta, &alpha)] {
        let error = meet(client, server).expect_err("refused");
        assert!(matches!(error, Error::InvalidCertificate(_)), "{error}");
    }
}

/// Has no certificate to show.
#[derive(Debug)]
struct Nobody;

impl rustls::client::ResolvesClientCert for Nobody {
    fn resolve(
        &self,
        _: &[&[u8]],
        _: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }
    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let ours = authority();
    let alpha = site(&ours, "alpha", &[("beta", None)]);
    let beta = site(&ours, "beta", &[("alpha", None)]);
    let mut client = (*beta.setup.client).clone();
    client.client_auth_cert_resolver = Arc::new(Nobody);
    let name = ServerName::try_from("site.invalid").expect("a name");
    let mut c = ClientConnection::new(Arc::new(client), name).expect("client");
    let mut s = ServerConnection::new(alpha.setup.server.clone()).expect("server");
    assert_eq!(shake(&mut c, &mut s), Err(Error::NoCertificatesPresented));
}

#[test]
fn anybody_may_connect_to_pickup_and_sees_whom_they_reach() {
    let ours = authority();
    let hosts = ["relay.example".to_owned(), "192.0.2.7".to_owned()];
    let pair = ours.site("alpha", &hosts, SITE_LASTS).expect("signed");
    let alpha = credentials(&ours, &pair).setup(&config("alpha", &[])).expect("good");
    let known = ["alpha", "localhost", "127.0.0.1", "[::1]", "relay.example", "192.0.2.7"];
    assert_eq!(alpha.own.hosts, known);
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ours.certificate().as_bytes()).expect("a certificate");
    roots.add(ca).expect("an authority");
    let client = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(client);
    let reach = |host: &'static str| {
        let name = ServerName::try_from(host).expect("a name");
        let mut c = ClientConnection::new(client.clone(), name).expect("client");
        let mut s = ServerConnection::new(alpha.pickup.clone()).expect("server");
        shake(&mut c, &mut s)
    };
    for host in ["alpha", "localhost", "127.0.0.1", "::1", "relay.example", "192.0.2.7"] {
        assert_eq!(reach(host), Ok(()), "{host}");
    }
    assert!(reach("other.example").is_err());
    assert_eq!(ours.site("alpha", &["no/host".to_owned()], SITE_LASTS).unwrap_err().code, "CN0002");
}

#[test]
fn another_protocol_is_refused() {
    let ours = authority();
    let alpha = site(&ours, "alpha", &[("beta", None)]);
    let beta = site(&ours, "beta", &[("alpha", None)]);
    let mut client = (*beta.setup.client).clone();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("site.invalid").expect("a name");
    let mut c = ClientConnection::new(Arc::new(client), name).expect("client");
    let mut s = ServerConnection::new(alpha.setup.server.clone()).expect("server");
    assert_eq!(shake(&mut c, &mut s), Err(Error::NoApplicationProtocol));
}

#[test]
fn older_tls_is_refused() {
    let alpha = site(&authority(), "alpha", &[("beta", None)]);
    let mut s = ServerConnection::new(alpha.setup.server.clone()).expect("server");
    // A ClientHello of TLS 1.2: no supported_versions extension.
    let extensions: &[u8] = &[0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 4, 3];
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    hello.extend(u16::try_from(extensions.len()).expect("short").to_be_bytes());
    hello.extend(extensions);
    let len = u8::try_from(hello.len()).expect("short");
    let mut record = vec![22, 3, 1, 0, len + 4, 1, 0, 0, len];
    record.extend(hello);
    s.read_tls(&mut record.as_slice()).expect("memory");
    let error = s.process_new_packets().expect_err("refused");
    assert!(matches!(error, Error::PeerIncompatible(_)), "{error}");
}

#[test]
fn certificates_that_name_no_site_are_turned_away() {
    let beta = &[("beta", None)];
    let nameless = |pair: &Pair| judge(pair, beta).expect_err("refused");
    let common_name_only = odd(|p| p.subject_alt_names.clear());
    assert_eq!(
        nameless(&common_name_only).to_string(),
        "the certificate names no site: it has no consign://NAME among its alternative names \
         (its common name, \"beta\", does not count)"
    );
    let dns = odd(|p| p.subject_alt_names = vec![SanType::DnsName("beta".try_into().expect("a"))]);
    assert!(matches!(nameless(&dns), Unwelcome::Nameless(_)));
    let empty = odd(|p| {
        p.subject_alt_names.clear();
        p.distinguished_name = rcgen::DistinguishedName::new();
    });
    assert_eq!(nameless(&empty), Unwelcome::Nameless(String::new()));
    for bad in ["consign://", "consign://-x", "consign://a/b", "spiffe://beta", "CONSIGN://beta"] {
        let pair = odd(|p| p.subject_alt_names = vec![uri(bad)]);
        assert_eq!(nameless(&pair), Unwelcome::Misnamed(bad.into()));
    }
}

#[test]
fn two_names_are_one_too_many() {
    let pair = odd(|p| p.subject_alt_names.push(uri("consign://alpha-2")));
    assert_eq!(judge(&pair, &[("beta", None)]), Err(Unwelcome::Several(2)));
    let pair = odd(|p| p.subject_alt_names.push(uri("https://beta.example.net")));
    assert_eq!(judge(&pair, &[("beta", None)]), Err(Unwelcome::Several(2)));
    let dns = odd(|p| p.subject_alt_names.push(SanType::DnsName("other".try_into().expect("a"))));
    assert_eq!(judge(&dns, &[("beta", None)]).map(|i| i.name), Ok("beta".into()));
}

#[test]
fn certificates_for_another_use_are_turned_away() {
    let server_only = odd(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let client_only = odd(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    let none = odd(|p| p.extended_key_usages.clear());
    for (pair, missing) in [(server_only, "client"), (client_only, "server"), (none, "client")] {
        let usage = Unwelcome::Usage { name: "beta".into(), missing };
        assert_eq!(judge(&pair, &[("beta", None)]), Err(usage));
    }
}

#[test]
fn a_pin_holds_a_peer_to_one_certificate() {
    let pair = authority().site("beta", &[], SITE_LASTS).expect("signed");
    let der = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("a certificate");
    let fingerprint = sha256(&der);
    assert!(judge(&pair, &[("beta", Some(fingerprint))]).is_ok());
    let error = judge(&pair, &[("beta", Some([7; 32]))]).expect_err("another certificate");
    assert_eq!(error.code(), "CN0307");
    let shown = format!("sha256:{}", hex(&fingerprint));
    assert_eq!(super::identity::shown_pin(&format!("CN0307: {error}")), Some(shown.as_str()));
    assert_eq!(super::identity::shown_pin("connection refused"), None);
}

#[test]
fn sha256_is_the_one_of_the_standard() {
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(hex(&sha256(b"abc")), abc);
}

#[test]
fn time_is_judged_by_tls_and_by_us() {
    let ours = authority();
    let alpha = site(&ours, "alpha", &[("beta", None)]);
    for (not_before, not_after) in [(2001, 2002), (2901, 2902)] {
        let mut params = site_params("beta").expect("parameters");
        params.not_before = date_time_ymd(not_before, 1, 1);
        params.not_after = date_time_ymd(not_after, 1, 1);
        let pair = ours.odd(&params);
        let beta = credentials(&ours, &pair).setup(&config("beta", &[("alpha", None)]));
        let beta = beta.expect("a site starts with it, to take segments");
        let warning = beta.warning.clone().expect("but says so");
        assert!(warning.starts_with("no peer will take this site's certificate now"), "{warning}");
        for (client, server) in [(&alpha, &beta), (&beta, &alpha)] {
            assert!(matches!(meet(client, server), Err(Error::InvalidCertificate(_))));
        }
        let error = judge(&pair, &[("beta", None)]).expect_err("refused");
        assert_eq!(error.code(), "CN0308");
        let good = ours.site("alpha", &[], SITE_LASTS).expect("signed");
        let der = CertificateDer::from_pem_slice(good.certificate.as_bytes()).expect("one");
        let own = (beta.setup.identify)(&[der]).expect_err("our own is not valid");
        assert!(own.starts_with("this site's own certificate"), "{own}");
        assert!(own.ends_with("[CN0309]"), "{own}");
    }
}

#[test]
fn sentences_say_when_a_certificate_ended() {
    let error =
        Unwelcome::Invalid { name: "beta".into(), not_before: 0, not_after: 86_399, now: 172_800 };
    let text = "the certificate of beta expired on 1970-01-01T23:59:59Z; \
                the clock here says 1970-01-03T00:00:00Z";
    assert_eq!(error.to_string(), text);
}

#[test]
fn junk_is_not_a_certificate() {
    for junk in [&b""[..], b"junk", &[0x30, 0x80]] {
        assert!(matches!(Site::read(junk), Err(Unwelcome::Unreadable(_))));
    }
    let own = Site { name: "alpha".into(), not_before: 0, not_after: i64::MAX, hosts: Vec::new() };
    let rules = Rules::new(own, &config("alpha", &[]), sha256);
    assert!(matches!(rules.judge(&[], 0), Err(Unwelcome::Unreadable(_))));
}

#[test]
fn a_soon_ending_certificate_is_worth_a_warning() {
    let ours = authority();
    let pair = ours.site("alpha", &[], Duration::from_secs(5 * 86_400)).expect("signed");
    let loaded = credentials(&ours, &pair).setup(&config("alpha", &[])).expect("set up");
    assert!(loaded.warning.expect("said").contains("only"));
}

#[test]
fn what_can_never_work_is_refused_at_the_start() {
    let (ours, theirs) = (authority(), authority());
    let alpha = ours.site("alpha", &[], SITE_LASTS).expect("signed");
    let other = ours.site("alpha", &[], SITE_LASTS).expect("signed");
    let code = |credentials: Credentials, name: &str| {
        credentials.setup(&config(name, &[])).map(|_| ()).expect_err("refused").code
    };
    assert_eq!(code(credentials(&ours, &alpha), "beta"), "CN0313");
    let mixed = Pair { certificate: alpha.certificate.clone(), key: other.key };
    assert_eq!(code(credentials(&ours, &mixed), "alpha"), "CN0314");
    assert_eq!(code(credentials(&theirs, &alpha), "alpha"), "CN0315");
}

#[test]
fn files_are_refused_with_their_names() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let files = TlsFiles { ca: path("ca.pem"), cert: path("node.pem"), key: path("node.key") };
    let refused = || Credentials::read(&files).map(|_| ()).expect_err("refused");
    let write = |path: &PathBuf, text: &str, mode: u32| {
        std::fs::write(path, text).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    let ours = authority();
    let pair = ours.site("alpha", &[], SITE_LASTS).expect("signed");
    assert_eq!((refused().code, refused().help.as_str()), ("CN0311", ""));
    write(&path("node.key.next"), &pair.key, 0o600);
    assert!(refused().help.ends_with("consign cert install FILE"), "{}", refused());
    write(&files.key, &pair.key, 0o644);
    let exposed = refused();
    assert_eq!(exposed.code, "CN0211");
    assert!(exposed.message.contains("0644") && exposed.help.starts_with("chmod 600"), "{exposed}");
    write(&files.key, "junk", 0o600);
    assert_eq!(refused().code, "CN0312");
    write(&files.key, &pair.key, 0o640);
    write(&files.ca, "", 0o644);
    assert_eq!(refused().code, "CN0312");
    write(&files.ca, ours.certificate(), 0o644);
    assert!(refused().message.contains("node.pem"));
    write(&files.cert, &pair.certificate, 0o644);
    assert!(Credentials::read(&files).is_ok());
}

#[test]
fn a_set_that_is_replaced_holds_for_the_next_handshake() {
    let (ours, theirs) = (authority(), authority());
    let alpha = site(&ours, "alpha", &[("beta", None)]);
    let beta = site(&ours, "beta", &[("alpha", None)]);
    let shown = |(at_client, _): (Judged, Judged)| at_client.expect("welcome").fingerprint;
    let before = shown(meet(&alpha, &beta).expect("they meet"));
    assert_eq!(before, beta.shown.own.0);
    let judge = |authority: &Authority, peers: &[(&str, Option<[u8; 32]>)]| {
        let pair = authority.site("beta", &[], SITE_LASTS).expect("signed");
        credentials(authority, &pair).judge(&config("beta", peers)).expect("good")
    };
    // Another pair, of the same authority: it is what the other side sees.
    let renewed = judge(&ours, &[("alpha", None)]);
    let own = renewed.shown.own.0;
    assert!(own != before && !renewed.shown.believes_less_than(&beta.shown));
    renewed.replace(&beta.live);
    assert_eq!(shown(meet(&alpha, &beta).expect("they meet")), own);
    // Rules that know alpha no longer, and authorities that did not sign it.
    judge(&ours, &[]).replace(&beta.live);
    assert!(meet(&alpha, &beta).is_err() && meet(&beta, &alpha).is_err());
    let elsewhere = judge(&theirs, &[("alpha", None)]);
    assert!(elsewhere.shown.believes_less_than(&beta.shown));
    elsewhere.replace(&beta.live);
    assert!(meet(&alpha, &beta).is_err() && meet(&beta, &alpha).is_err());
    judge(&ours, &[("alpha", None)]).replace(&beta.live);
    assert!(meet(&alpha, &beta).is_ok() && meet(&beta, &alpha).is_ok());
}

#[test]
fn any_of_several_pins_will_do_and_all_are_named_when_none_does() {
    let ours = authority();
    let pair = ours.site("beta", &[], SITE_LASTS).expect("signed");
    let beta = credentials(&ours, &pair).setup(&config("beta", &[("alpha", None)])).expect("good");
    let own = beta.shown.own.0;
    for (pins, welcome) in
        [([[1; 32], own], true), ([own, [1; 32]], true), ([[1; 32], [2; 32]], false)]
    {
        let mut config = config("alpha", &[("beta", Some(pins[0]))]);
        config.peers[0].more_pins = vec![pins[1]];
        let pair = ours.site("alpha", &[], SITE_LASTS).expect("signed");
        let alpha = credentials(&ours, &pair).setup(&config).expect("good");
        if welcome {
            assert!(meet(&alpha, &beta).is_ok(), "{pins:?}");
        } else {
            let (why, _) = turned_away(&alpha, &beta, true);
            assert!(why.contains("0101 or sha256:0202"), "{why}");
        }
    }
}
