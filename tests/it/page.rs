//! The page over TCP: what it is served with, who may act from it, and what the audit says then.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::site::{RUNTIMES, Site, content, free_address, pair};
use crate::wait;

/// An answer: its status, its head, its body.
struct Said(u16, String, Vec<u8>);

impl Said {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.2).expect("JSON")
    }

    fn no(&self) -> (u16, String) {
        (self.0, self.json()["code"].as_str().expect("a code").into())
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.1.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

fn ask(at: SocketAddr, method: &str, target: &str, fields: &str, body: &str) -> Said {
    let mut stream = TcpStream::connect(at).expect("the page's listener");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let length = body.len();
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\n{fields}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("it takes a request");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
    Said(head[9..12].parse().expect("a status"), head, bytes[end + 4..].to_vec())
}

fn get(at: SocketAddr, target: &str) -> Said {
    ask(at, "GET", target, &format!("Host: {at}\r\n"), "")
}

/// As the page itself sends it.
fn post(at: SocketAddr, target: &str, token: &str, body: &str) -> Said {
    let fields = format!(
        "Host: {at}\r\nOrigin: http://{at}\r\nSec-Fetch-Site: same-origin\r\nX-Consign-Token: {token}\r\n"
    );
    ask(at, "POST", target, &fields, body)
}

const GROUP: &str = r#"{"action":"retry","peer":"beta","reason":"too_large"}"#;

/// A site with a page, and its peer.
fn with_page(runtime: &'static str) -> (Site, Site, SocketAddr) {
    let (mut alpha, beta) = pair(runtime);
    let at = free_address();
    alpha.set("CONSIGN_LISTEN_WEB", &at.to_string());
    alpha.serve();
    (alpha, beta, at)
}

/// The code in the link that `consign page` prints.
fn code(alpha: &Site, at: SocketAddr) -> String {
    let output = alpha.run(&["page"]);
    assert!(output.status.success(), "{output:?}");
    let link = String::from_utf8(output.stdout).unwrap();
    link.trim().strip_prefix(&format!("http://{at}/#token=")).expect("a link to the page").into()
}

fn inside<'t>(html: &'t str, element: &str) -> &'t str {
    let (_, rest) = html.split_once(&format!("<{element}>")).expect("an element");
    rest.split_once(&format!("</{element}>")).expect("its end").0
}

#[test]
fn the_page_is_served_with_a_policy_that_fits_it() {
    for runtime in RUNTIMES {
        let (_alpha, _beta, at) = with_page(runtime);
        let page = get(at, "/");
        assert_eq!((page.0, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
        let html = std::str::from_utf8(&page.2).unwrap();
        let policy = page.field("content-security-policy").expect("a policy");
        for (element, directive) in [("style", "style-src"), ("script", "script-src")] {
            let hash = STANDARD.encode(Sha256::digest(inside(html, element)));
            assert!(policy.contains(&format!("{directive} 'sha256-{hash}';")), "{policy}");
        }
        let words = ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"];
        assert!(words.iter().all(|word| policy.contains(word)), "{policy}");
        assert!(policy.contains("base-uri 'none'; form-action 'none'"), "{policy}");
        let table = [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ];
        for (name, value) in table {
            assert_eq!(page.field(name), Some(value));
        }
        let elsewhere = ask(at, "GET", "/", "Host: rebound.example\r\n", "");
        assert_eq!(elsewhere.no(), (421, "misdirected".into()));
        assert_eq!(get(at, "/v1/deadletters/groups").json()["groups"], Value::Array(Vec::new()));
        for private in ["/v1/segments", "/v1/deadletters", "/v1/audit", "/v1/events"] {
            assert_eq!(get(at, private).no(), (403, "not_permitted".into()), "{private}");
        }
    }
}

#[test]
fn a_page_opened_by_a_link_retries_and_the_audit_says_for_whom() {
    let (mut alpha, mut beta, at) = with_page("smol");
    beta.set("CONSIGN_STORAGE_MAX_SEGMENT", "10KiB");
    beta.serve();
    (0..2).for_each(|n| drop(alpha.accepted(&format!("n{n}"), &content(n, 20 << 10))));
    wait::until_true("two dead letters", || alpha.counts("beta").dead == 2);
    let groups = get(at, "/v1/deadletters/groups").json();
    assert_eq!(
        (&groups["groups"][0]["count"], &groups["groups"][0]["peer"]),
        (&2.into(), &"beta".into())
    );

    let code = code(&alpha, at);
    assert_eq!(post(at, "/v1/acts", &code, GROUP).no(), (401, "page_token".into()));
    let fields =
        format!("Host: {at}\r\nOrigin: http://evil.example\r\nX-Consign-Token: {code}\r\n");
    let stolen = ask(at, "POST", "/v1/page/session", &fields, "");
    assert_eq!(stolen.no(), (403, "cross_origin".into()));
    let entered = post(at, "/v1/page/session", &code, "").json();
    let token = entered["token"].as_str().expect("a token").to_string();
    assert_eq!(post(at, "/v1/page/session", &code, "").no(), (401, "page_code".into()));
    let fields = format!("Host: {at}\r\nOrigin: http://{at}\r\n");
    assert_eq!(ask(at, "POST", "/v1/acts", &fields, GROUP).no(), (401, "page_token".into()));
    let purge = GROUP.replace("retry", "purge");
    assert_eq!(post(at, "/v1/acts", &token, &purge).no(), (403, "not_permitted".into()));
    assert_eq!((alpha.counts("beta").dead, alpha.json(&["audit"]).len()), (2, 0));

    let since = || alpha.status()["peers"][0]["down_since"].clone();
    assert_eq!(since(), Value::Null);
    beta.stop();
    wait::until_true("beta to be away", || since().is_string());
    beta.set("CONSIGN_STORAGE_MAX_SEGMENT", "1MiB");
    beta.serve();
    let done = post(at, "/v1/acts", &token, GROUP);
    assert_eq!((done.0, &done.json()["count"]), (200, &2.into()));
    wait::until_true("two deliveries", || alpha.counts("beta").delivered == 2);
    let audit = alpha.json(&["audit"]);
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(audit.len(), 1);
    assert_eq!(
        (&audit[0]["who"], &audit[0]["action"]),
        (&format!("page:uid:{uid}").into(), &"retry".into())
    );
    assert_eq!(audit[0]["subject"], "peer=beta reason=too_large");

    alpha.stop();
    alpha.serve();
    assert_eq!(post(at, "/v1/acts", &token, GROUP).no(), (401, "page_token".into()));
}

#[test]
fn there_is_no_link_where_there_is_no_page() {
    let (mut alpha, _beta) = pair("std");
    alpha.set("CONSIGN_LISTEN_WEB", "off");
    alpha.serve();
    let output = alpha.run(&["page"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error[CN0611]: there is no page: listen.web is \"off\""), "{said}");
}
