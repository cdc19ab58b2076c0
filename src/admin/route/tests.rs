//! Every path and parameter, good and bad.

use consign_core::http::{Conn, Event, Limits};
use consign_core::time::Now;

use super::*;

fn request(method: &str, target: &str) -> Request {
    let text = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut input = text.as_bytes();
    let mut conn = Conn::new(Limits::default(), Now::default());
    match conn.read(Now::default(), &mut input, &mut Vec::new()) {
        Some(Event::Head(request)) => *request,
        other => panic!("{target}: {other:?}"),
    }
}

fn routed(method: &str, target: &str) -> Result<Route, (u16, &'static str)> {
    route(&request(method, target)).map_err(|no| (no.status, no.code))
}

#[test]
fn paths_and_methods() {
    let id = IdPrefix::parse("3fa9c1").unwrap();
    assert_eq!(routed("GET", "/healthz"), Ok(Route::Health));
    assert_eq!(routed("HEAD", "/readyz"), Ok(Route::Ready));
    assert_eq!(routed("GET", "/v1/status"), Ok(Route::Status));
    assert_eq!(routed("GET", "/"), Ok(Route::Page));
    assert_eq!(routed("POST", "/v1/page"), Ok(Route::Link));
    assert_eq!(routed("POST", "/v1/stop"), Ok(Route::Stop));
    assert_eq!(routed("GET", "/v1/peers/pending"), Ok(Route::Pending));
    let ping = |seconds| Ok(Route::Ping("beta".into(), Duration::from_secs(seconds)));
    assert_eq!(routed("POST", "/v1/peers/beta/ping"), ping(5));
    assert_eq!(routed("POST", "/v1/peers/beta/ping?wait=50"), ping(50));
    assert_eq!(routed("GET", "/v1/segments"), Ok(Route::List(Listing::default())));
    assert_eq!(routed("GET", "/v1/segments/3FA9c1"), Ok(Route::Show(id.clone())));
    assert_eq!(routed("GET", "/v1/segments/3fa9c1/content"), Ok(Route::Content(id)));
    assert_eq!(routed("GET", "/v1/log-level"), Ok(Route::Log));
    let table = [
        ("GET", "/v1/log-level?level=debug", (400, "bad_query")),
        ("POST", "/v1/log-level", (400, "invalid")),
        ("POST", "/v1/log-level?level=loud", (400, "invalid")),
        ("POST", "/v1/log-level?level=debug&for=0", (400, "invalid")),
        ("POST", "/v1/log-level?level=debug&for=31622401", (400, "invalid")),
        ("POST", "/v1/log-level?level=configured&for=1", (400, "invalid")),
        ("DELETE", "/v1/log-level", (405, "method_not_allowed")),
        ("POST", "/", (405, "method_not_allowed")),
        ("GET", "/v1/page", (405, "method_not_allowed")),
        ("GET", "/v1/page/session", (405, "method_not_allowed")),
        ("POST", "/v1/page/session", (401, "page_code")),
        ("GET", "/v1", (404, "not_found")),
        ("GET", "/v2/status", (404, "not_found")),
        ("GET", "/v1/segments/", (400, "invalid_id")),
        ("GET", "/v1/segments/3fa9c", (400, "invalid_id")),
        ("GET", "/v1/segments/3fa9cx", (400, "invalid_id")),
        ("GET", "/v1/segments/3fa9c1/body", (404, "not_found")),
        ("DELETE", "/v1/segments", (405, "method_not_allowed")),
        ("POST", "/v1/status", (405, "method_not_allowed")),
        ("GET", "/v1/stop", (405, "method_not_allowed")),
        ("POST", "/v1/segments/3fa9c1", (405, "method_not_allowed")),
        ("GET", "/v1/peers/beta/ping", (405, "method_not_allowed")),
        ("POST", "/v1/peers/pending", (405, "method_not_allowed")),
        ("POST", "/v1/peers/beta/ping?wait=51", (400, "invalid")),
        ("POST", "/v1/peers/beta/ping?wait=soon", (400, "invalid")),
        ("GET", "/v1/status?x=1", (400, "bad_query")),
        ("GET", "/v1/segments?limit=0", (400, "invalid")),
        ("GET", "/v1/segments?limit=1001", (400, "invalid")),
        ("GET", "/v1/segments?limit=1&limit=2", (400, "bad_query")),
        ("GET", "/v1/segments?after=x", (400, "invalid")),
        ("GET", "/v1/segments?state=lost", (400, "invalid")),
        ("GET", "/v1/segments?colour=red", (400, "bad_query")),
    ];
    for (method, target, no) in table {
        assert_eq!(routed(method, target), Err(no), "{method} {target}");
    }
    let no = route(&request("DELETE", "/v1/segments")).unwrap_err();
    assert_eq!(no.allow, Some("GET, HEAD, POST"));
}

#[test]
fn listings() {
    let target = "/v1/segments?limit=7&after=41&state=backing-off&peer=beta";
    let listing = Listing {
        limit: 7,
        after: Some(Seq(41)),
        state: Some(Word::BackingOff),
        peer: Some("beta".into()),
    };
    assert_eq!(routed("GET", target), Ok(Route::List(listing)));
}

#[test]
fn submissions() {
    let target = "/v1/segments?name=a%20b&to=gamma,beta&to=beta&type=text/plain&label=k=v=w&label=a=\
                  &priority=high&expires=60&instance=000102030405060708090a0b0c0d0e0f";
    let Ok(Route::Submit(submit)) = routed("POST", target) else { panic!() };
    assert_eq!(submit.to, Destinations::Named(vec!["beta".into(), "gamma".into()]));
    assert_eq!(submit.meta.name, "a b");
    assert_eq!(submit.meta.content_type, "text/plain");
    assert_eq!(submit.meta.labels, [("a".into(), "".into()), ("k".into(), "v=w".into())]);
    assert_eq!(submit.meta.class, Class::High);
    assert_eq!(submit.meta.instance, (0..16).collect::<Vec<u8>>());
    assert_eq!((submit.expires, submit.random), (Some(Duration::from_secs(60)), false));

    let Ok(Route::Submit(submit)) = routed("POST", "/v1/segments?name=x&instance=random") else {
        panic!()
    };
    assert_eq!((submit.to, submit.random), (Destinations::All, true));
    let Ok(Route::Submit(submit)) = routed("POST", "/v1/segments?name=x&to=beta&to=*") else {
        panic!()
    };
    assert_eq!(submit.to, Destinations::All);
}

#[test]
fn bad_submissions_are_refused_before_anything_is_read() {
    let table = [
        ("", "invalid"),
        ("name=", "invalid"),
        ("name=..", "invalid"),
        ("name=a%2F%2Fb", "invalid"),
        ("name=a%0Ab", "invalid"),
        ("name=%FF", "bad_query"),
        ("name=a+b", "bad_query"),
        ("name=a&name=b", "bad_query"),
        ("name=a&to=", "invalid"),
        ("name=a&to=b%20c", "invalid"),
        ("name=a&to=.hidden", "invalid"),
        ("name=a&label=novalue", "invalid"),
        ("name=a&label==v", "invalid"),
        ("name=a&label=k=1&label=k=2", "invalid"),
        ("name=a&priority=soon", "invalid"),
        ("name=a&expires=0", "invalid"),
        ("name=a&expires=-1", "invalid"),
        ("name=a&expires=1h", "invalid"),
        ("name=a&instance=12", "invalid"),
        ("name=a&type=a%00b", "invalid"),
        ("name=a&when=now", "bad_query"),
    ];
    for (query, code) in table {
        assert_eq!(routed("POST", &format!("/v1/segments?{query}")), Err((400, code)), "{query}");
    }
    let long = "x".repeat(1025);
    assert_eq!(routed("POST", &format!("/v1/segments?name={long}")), Err((400, "invalid")));
}

#[test]
fn pickup() {
    use super::pickup::PickupRoute;
    use crate::admin::pickup::lists::{NameListing, ShardListing};
    use crate::admin::pickup::parse_shard;
    use consign_core::ledger::rows_pickup::ShardState;

    let get = |rest: &str| routed("GET", &format!("/v1/pickup/{rest}"));
    let names = NameListing { limit: 100, after: None };
    assert_eq!(get("nodes"), Ok(Route::Pickup(PickupRoute::Nodes(names.clone()))));
    let after = NameListing { limit: 2, after: Some("c".into()) };
    assert_eq!(get("clients?limit=2&after=c"), Ok(Route::Pickup(PickupRoute::Clients(after))));
    let listing = ShardListing {
        limit: 7,
        after: parse_shard("a/b/1/2@n").ok(),
        state: Some(ShardState::NodeStored),
        node: Some("n".into()),
    };
    let target = "shards?limit=7&after=a%2Fb%2F1%2F2%40n&state=NODE_STORED&node=n";
    assert_eq!(get(target), Ok(Route::Pickup(PickupRoute::Shards(listing))));
    let shard = parse_shard("a/1/2@n").unwrap();
    assert_eq!(get("shard?key=a/1/2@n"), Ok(Route::Pickup(PickupRoute::Shard(shard))));
    assert_eq!(routed("POST", "/v1/pickup/acts"), Ok(Route::Pickup(PickupRoute::Act)));
    let table = [
        ("GET", "acts", (405, "method_not_allowed")),
        ("POST", "nodes", (405, "method_not_allowed")),
        ("DELETE", "shards", (405, "method_not_allowed")),
        ("GET", "", (404, "not_found")),
        ("GET", "tokens", (404, "not_found")),
        ("GET", "nodes/n1", (404, "not_found")),
        ("GET", "nodes?limit=0", (400, "invalid")),
        ("GET", "shards?state=LOST", (400, "invalid")),
        ("GET", "shards?node=a%20b", (400, "invalid")),
        ("GET", "shards?after=a", (400, "invalid")),
        ("GET", "shard", (400, "invalid")),
        ("GET", "shard?key=a/1/2", (400, "invalid")),
        ("GET", "clients?state=x", (400, "bad_query")),
    ];
    for (method, rest, no) in table {
        assert_eq!(routed(method, &format!("/v1/pickup/{rest}")), Err(no), "{method} {rest}");
    }
}
