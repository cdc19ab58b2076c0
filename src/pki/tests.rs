//! Tests of what is made: read back with another library, and judged as a site would judge it.

use std::time::Duration;

use rcgen::{PKCS_ECDSA_P384_SHA384, SanType};

use super::*;
use crate::tls::identity::Site;

fn authority() -> Authority {
    Authority::new().expect("an authority").0
}

fn der(pem: &str) -> Vec<u8> {
    x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM").1.contents
}

fn asks(change: impl FnOnce(&mut CertificateParams)) -> String {
    let mut params = site_params("beta").expect("parameters");
    params.use_authority_key_identifier_extension = false;
    change(&mut params);
    let key = new_key().expect("a key");
    params.serialize_request(&key).and_then(|r| r.pem()).expect("a request")
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().expect("ASCII"))
}

#[test]
fn a_request_is_answered_with_its_own_key_and_names() {
    let authority = authority();
    let pair = request("beta", &["relay.example".into(), "2001:db8::1".into()]).expect("made");
    let asked = Request::read(&pair.certificate).expect("a request");
    assert_eq!(asked.name, "beta");
    let signed = der(&authority.sign(&asked, SITE_LASTS).expect("signed"));
    let site = Site::read(&signed).expect("good for a site");
    assert_eq!(site.name, "beta");
    for host in ["beta", "localhost", "relay.example", "[2001:db8::1]"] {
        assert!(site.hosts.iter().any(|h| h == host), "{host}: {:?}", site.hosts);
    }
    assert!(asked.is_of(&signed) && authority.signed(&signed));
    let (_, parsed) = x509_parser::parse_x509_certificate(&signed).expect("a certificate");
    assert_eq!(crate::tls::sha256(parsed.public_key().raw), asked.key);
    assert!(!parsed.is_ca());
    let days = (site.not_after - now()) / 86_400;
    assert!((89..=90).contains(&days), "{days}");
    // Neither another authority nor another request has to do with it.
    assert!(!self::authority().signed(&signed));
    let other = request("beta", &[]).expect("made");
    assert!(!Request::read(&other.certificate).expect("a request").is_of(&signed));
}

#[test]
fn whatever_else_a_request_says_a_site_is_all_it_gets() {
    let asked = asks(|params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    });
    let asked = Request::read(&asked).expect("a request");
    let signed = der(&authority().sign(&asked, SITE_LASTS).expect("signed"));
    let (_, parsed) = x509_parser::parse_x509_certificate(&signed).expect("a certificate");
    assert!(!parsed.is_ca());
    let usage = parsed.key_usage().expect("readable").expect("there").value;
    assert!(usage.digital_signature() && !usage.key_cert_sign());
    let usage = parsed.extended_key_usage().expect("readable").expect("there").value;
    assert!(usage.client_auth && usage.server_auth && !usage.code_signing);
}

#[test]
fn requests_that_name_no_site_or_are_none_are_refused() {
    let good = asks(|_| ());
    let middle = good.len() / 2;
    let mut forged = der(&good);
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let forged = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &forged);
    let begin = "-----BEGIN CERTIFICATE REQUEST-----";
    let cases = [
        (String::new(), "not a request in PEM"),
        (good[..middle].to_string(), "not a request in PEM"),
        (Authority::new().expect("made").1.certificate, "it is a CERTIFICATE"),
        (format!("{begin}\n{forged}\n-----END CERTIFICATE REQUEST-----\n"), "signature"),
        (asks(|p| p.subject_alt_names.clear()), "it has 0 URIs"),
        (asks(|p| p.subject_alt_names.push(uri("consign://gamma"))), "it has 2 URIs"),
        (asks(|p| p.subject_alt_names = vec![uri("https://beta")]), "is not consign://"),
        (asks(|p| p.subject_alt_names = vec![uri("consign://../x")]), "is not consign://"),
        (
            asks(|p| {
                let name = "*.example".try_into().expect("ASCII");
                p.subject_alt_names.push(SanType::DnsName(name));
            }),
            "neither a host name",
        ),
        (
            asks(|p| {
                let name = "b@example".try_into().expect("ASCII");
                p.subject_alt_names.push(SanType::Rfc822Name(name));
            }),
            "neither a site nor a host",
        ),
    ];
    for (text, why) in cases {
        let refused = Request::read(&text).expect_err(why);
        assert_eq!(refused.code, "CN0325", "{refused}");
        assert!(refused.message.contains(why), "{why}: {refused}");
    }
    Request::read(&good).expect("what they were made of is good");
}

#[test]
fn other_kinds_of_keys_are_carried_as_they_are() {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).expect("a key");
    let mut params = site_params("beta").expect("parameters");
    params.use_authority_key_identifier_extension = false;
    let text = params.serialize_request(&key).and_then(|r| r.pem()).expect("a request");
    let asked = Request::read(&text).expect("a request");
    let signed = der(&authority().sign(&asked, SITE_LASTS).expect("signed"));
    assert!(asked.is_of(&signed));
}

#[test]
fn no_certificate_outlasts_its_authority_and_one_that_is_over_signs_nothing() {
    let (mut authority, pair) = Authority::new().expect("made");
    let end = authority.not_after;
    assert_eq!(Authority::from_pem(&pair.certificate, &pair.key).expect("read").not_after, end);
    let long = authority.site("beta", &[], AUTHORITY_LASTS * 2).expect("made");
    let site = Site::read(&der(&long.certificate)).expect("a site");
    assert!((end - 2..=end).contains(&site.not_after), "{} {end}", site.not_after);
    authority.not_after = now() - 1;
    let over = authority.site("beta", &[], Duration::from_secs(60)).expect_err("it is over");
    assert_eq!(over.code, "CN0321");
    assert!(over.message.contains("ended on"), "{over}");
}

#[test]
fn of_several_authorities_the_keys_own_one_counts() {
    let (_, one) = Authority::new().expect("made");
    let (_, two) = Authority::new().expect("made");
    let both = format!("# first\n{}# second\n{}", one.certificate, two.certificate);
    assert_eq!(blocks(&both).count(), 2);
    for pair in [&one, &two] {
        let read = Authority::from_pem(&both, &pair.key).expect("one of them");
        assert_eq!(read.certificate(), pair.certificate);
    }
    let (_, three) = Authority::new().expect("made");
    let wrong = Authority::from_pem(&both, &three.key).expect_err("none of them");
    assert!(wrong.message.contains("does not belong"), "{wrong}");
}
