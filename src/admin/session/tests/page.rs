//! The page and what it may do, over local connections.

use std::time::Duration;

use consign_core::driver::MakeSession;
use consign_core::http::Limits;
use serde_json::{Value, json};

use crate::admin::testing::{Got, Site, UID, config, context};
use crate::admin::{AdminContext, make};
use crate::page;

/// A site as who uses its socket and as browsers see it: each request of theirs has a connection of its own.
struct Web {
    make: MakeSession,
    socket: Site,
    /// Since the start.
    seconds: u64,
}

/// An answer, and whether the node was asked for an act.
struct Said {
    got: Got,
    acted: bool,
}

impl Said {
    fn no(&self) -> (u16, String) {
        assert!(!self.acted, "a refusal that asks for an act");
        (self.got.status, self.got.code())
    }
}

const HOST: &str = "Host: 127.0.0.1:7411\r\nOrigin: http://127.0.0.1:7411\r\n";

impl Web {
    fn new() -> Web {
        let patient = Duration::from_secs(1 << 20);
        let limits = Limits { header_timeout: patient, idle_timeout: None, ..Limits::default() };
        let make = make(AdminContext { limits, ..context() });
        let socket = Site::with(config(), &make, Some(UID));
        Web { make, socket, seconds: 0 }
    }

    fn pass(&mut self, seconds: u64) {
        self.seconds += seconds;
        self.socket.pass(seconds);
    }

    fn post(&self, target: &str, fields: &str, body: &str) -> Said {
        let mut site = Site::with(config(), &self.make, None);
        site.pass(self.seconds);
        let length = body.len();
        let head = format!("POST {target} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n");
        site.feed(format!("{head}{body}").as_bytes());
        Said { got: site.got("POST"), acted: site.log.iter().any(|l| l == "Act") }
    }

    fn enter(&self, code: &str) -> Said {
        self.post("/v1/page/session", &format!("{HOST}X-Consign-Token: {code}\r\n"), "")
    }

    fn act(&self, token: &str, body: &Value) -> Said {
        self.post("/v1/acts", &format!("{HOST}X-Consign-Token: {token}\r\n"), &body.to_string())
    }

    /// The code in a fresh link.
    fn code(&mut self) -> String {
        let link = self.socket.ask("POST", "/v1/page", b"");
        assert_eq!((link.status, &link.json()["expires_seconds"]), (200, &json!(600)));
        let link = link.json();
        let url = link["url"].as_str().unwrap();
        url.strip_prefix("http://127.0.0.1:7411/#token=").expect("where the page is").into()
    }

    fn token(&mut self) -> String {
        let code = self.code();
        let entered = self.enter(&code).got;
        assert_eq!(entered.status, 200, "{:?}", entered.json());
        entered.json()["token"].as_str().unwrap().into()
    }
}

fn group() -> Value {
    json!({"action": "retry", "peer": "beta", "reason": "too_large"})
}

#[test]
fn the_page_comes_with_what_browsers_must_know() {
    for uid in [None, Some(UID)] {
        let mut site = Site::with(config(), &make(context()), uid);
        let got = site.ask("GET", "/", b"");
        assert_eq!(got.status, 200);
        assert!(got.body == page::HTML.as_bytes());
        for (name, value) in page::fields() {
            // As they are shown.
            let field = format!("{name:?}: {:?}", value.escape_default().to_string());
            assert!(got.headers.contains(&field), "{field} in {}", got.headers);
        }
        for word in ["text/html; charset=utf-8", "no-store", "frame-ancestors"] {
            assert!(got.headers.contains(word), "{word}: {}", got.headers);
        }
        assert!(site.ask("HEAD", "/", b"").body.is_empty());
        assert_eq!(site.ask("GET", "/?x=1", b"").code(), "bad_query");
    }
}

#[test]
fn a_link_opens_once_and_its_page_retries_and_nothing_else() {
    let mut web = Web::new();
    let code = web.code();
    let shape = web.enter(&code).got.json();
    assert_eq!(
        (&shape["schema"], &shape["who"], &shape["expires_seconds"]),
        (&json!("consign.page_session/1"), &json!(format!("uid:{UID}")), &json!(43_200))
    );
    let token = shape["token"].as_str().unwrap().to_string();
    assert_ne!(token, code);
    assert_eq!(web.enter(&code).no(), (401, "page_code".into()), "a second time");
    assert_eq!(web.enter(&token).no(), (401, "page_code".into()), "a token is no code");
    assert_eq!(web.act(&code, &group()).no(), (401, "page_token".into()), "a code is no token");
    let done = web.act(&token, &group());
    assert_eq!((done.got.status, &done.got.json()["count"], done.acted), (200, &json!(0), true));
    for body in [
        json!({"action": "retry", "all": true}),
        json!({"action": "purge", "peer": "beta", "reason": "too_large"}),
        json!({"action": "hold_peer", "peer": "beta"}),
    ] {
        assert_eq!(web.act(&token, &body).no(), (403, "not_permitted".into()), "{body}");
    }
    let why = "x".repeat(5000);
    let long = json!({"action": "retry", "peer": "beta", "reason": "quota", "why": why});
    assert_eq!(web.act(&token, &long).no(), (413, "too_large".into()));
}

#[test]
fn time_ends_links_and_pages() {
    let mut web = Web::new();
    let (late, just) = (web.code(), web.code());
    web.pass(599);
    assert_eq!(web.enter(&just).got.status, 200);
    web.pass(1);
    assert_eq!(web.enter(&late).no(), (401, "page_code".into()));
    let token = web.token();
    web.pass(43_199);
    assert_eq!(web.act(&token, &group()).got.status, 200);
    web.pass(1);
    assert_eq!(web.act(&token, &group()).no(), (401, "page_token".into()));
}

#[test]
fn what_does_not_come_from_the_page_is_refused_whatever_it_shows() {
    let mut web = Web::new();
    let (token, code) = (web.token(), web.code());
    let body = group().to_string();
    let host = "Host: 127.0.0.1:7411\r\n";
    let evil = "Host: evil.example\r\nOrigin: http://evil.example\r\n";
    let table = [
        (evil.to_string(), 421, "misdirected"),
        (host.into(), 403, "cross_origin"),
        (format!("{host}Origin: http://127.0.0.1:8080\r\n"), 403, "cross_origin"),
        (format!("{host}Origin: null\r\n"), 403, "cross_origin"),
        (format!("{HOST}Sec-Fetch-Site: cross-site\r\n"), 403, "cross_origin"),
    ];
    for (fields, status, word) in table {
        let with = |secret: &str| format!("{fields}X-Consign-Token: {secret}\r\n");
        let acted = web.post("/v1/acts", &with(&token), &body);
        assert_eq!(acted.no(), (status, word.into()), "{fields}");
        let entered = web.post("/v1/page/session", &with(&code), "");
        assert_eq!(entered.no(), (status, word.into()), "{fields}");
    }
    // Without the field, with it twice, and with something else in it.
    let field = |secret: &str| format!("X-Consign-Token: {secret}\r\n");
    for (a, b) in [
        ("".into(), "".into()),
        (field(&token).repeat(2), field(&code).repeat(2)),
        (field("x"), field("x")),
    ] {
        let acted = web.post("/v1/acts", &format!("{HOST}{a}"), &body);
        assert_eq!(acted.no(), (401, "page_token".into()), "{a}");
        let entered = web.post("/v1/page/session", &format!("{HOST}{b}"), "");
        assert_eq!(entered.no(), (401, "page_code".into()), "{b}");
    }
    // None of that has used the code up, and the token is as good as before.
    assert_eq!(web.enter(&code).got.status, 200);
    let named = format!("{HOST}Sec-Fetch-Site: same-origin\r\n{}", field(&token));
    let acted = web.post("/v1/acts", &named, &body);
    assert_eq!((acted.got.status, acted.acted), (200, true));
}

#[test]
fn links_are_for_the_sockets_users_and_pages_that_are_there() {
    let web = Web::new();
    assert_eq!(web.post("/v1/page", HOST, "").no(), (403, "not_permitted".into()));
    let nowhere = AdminContext { web: None, ..context() };
    let mut site = Site::with(config(), &make(nowhere), Some(UID));
    let got = site.ask("POST", "/v1/page", b"");
    assert_eq!((got.status, got.code()), (409, "no_page".into()));
    let mut stranger = Site::with(config(), &make(context()), Some(1001));
    assert_eq!(stranger.ask("POST", "/v1/page", b"").code(), "not_permitted");
}
