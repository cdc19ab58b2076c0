//! What a request asks for, as far as its head tells it.

use alloc::format;
use alloc::string::String;

use super::context::PickupContext;
use super::refusal::No;
use crate::http::{Headers, Length, Method, Request, Target, Version};
use crate::id::Sha256Digest;
use crate::ledger::keys_pickup::{NUMBER_END, ShardKey};
use crate::pickup::UploadKind;
use crate::pickup::digest::{CONTENT_DIGEST, Given, REPR_DIGEST};
use crate::pickup::sign::{Claim, decimal};
use crate::pickup::token::{TOKEN, Token, bearer};
use crate::pickup::ws::{accept_key, is_key};

/// What is asked for.
#[derive(Debug)]
pub(super) enum Route {
    /// `POST` and `PATCH /buffer/upload`.
    Upload(UploadHead),
    /// `HEAD /buffer/upload`.
    Head { shard: ShardKey, client: Sha256Digest },
    /// `PUT /buffer/slot`.
    Slot { shard: ShardKey, client: Sha256Digest, size: u64 },
    /// `GET /buffer/fetch`.
    Fetch { signer: Signer, token: Option<Token>, from: Option<u64> },
    /// `GET /ws`; with the answer to its key.
    Ws { signer: Signer, accept: String },
}

/// Who says to have signed what.
#[derive(Debug)]
pub(super) struct Signer {
    pub(super) claim: Claim,
    pub(super) authority: String,
    pub(super) target: &'static str,
}

/// The head of an upload.
#[derive(Debug)]
pub(super) struct UploadHead {
    pub(super) shard: ShardKey,
    pub(super) client: Sha256Digest,
    pub(super) kind: UploadKind,
    /// Whether the shard is whole with this request.
    pub(super) complete: bool,
    /// Length of the whole shard, where it is told.
    pub(super) size: Option<u64>,
    /// Length of the body, where it is told.
    pub(super) body: Option<u64>,
    /// Digests of the whole shard.
    pub(super) whole: Given,
    /// Digests of this body, where that is not the whole.
    pub(super) part: Given,
}

const UPLOAD: &str = "/buffer/upload";
const SLOT: &str = "/buffer/slot";
const FETCH: &str = "/buffer/fetch";
const WS: &str = "/ws";

/// Judges everything that needs no ledger, in the order of the document: 400 and 421 before 401.
pub(super) fn route(request: &Request, context: &PickupContext) -> Result<Route, No> {
    let target = Target::of(&request.target);
    if target.path.len() != request.target.len() {
        // Tokens and signatures in a URL end up in logs; nothing here takes parameters at all.
        let text = "no resource here takes a query; tokens and signatures belong in fields";
        return Err(No::new(400, "bad_query", text));
    }
    let Some(authority) = request.headers.text("host") else {
        return Err(No::header("the Host field is missing"));
    };
    if !context.is_named(authority) {
        let text = format!("{authority:?} is not a name of this relay");
        return Err(No::new(421, "misdirected", text));
    }
    let headers = &request.headers;
    match (target.path, &request.method) {
        (UPLOAD, Method::Post) => upload(request, UploadKind::Post),
        (UPLOAD, Method::Patch) => {
            let offset = number(headers, "Upload-Offset")?;
            upload(request, UploadKind::Patch { offset })
        }
        (UPLOAD, Method::Head) => {
            Ok(Route::Head { shard: shard(headers)?, client: client(headers)? })
        }
        (SLOT, Method::Put) => {
            let (shard, size) = (shard(headers)?, number(headers, "Upload-Length")?);
            Ok(Route::Slot { shard, client: client(headers)?, size })
        }
        (FETCH, Method::Get) => fetch(headers, authority),
        (WS, Method::Get) => upgrade(request, authority),
        (UPLOAD, _) => Err(method("HEAD, PATCH, POST")),
        (SLOT, _) => Err(method("PUT")),
        (FETCH | WS, _) => Err(method("GET")),
        (_, _) => Err(No::new(404, "not_found", "there is nothing here")),
    }
}

fn method(allow: &'static str) -> No {
    No::new(405, "bad_method", format!("only {allow} here")).and("Allow", allow)
}

fn upload(request: &Request, kind: UploadKind) -> Result<Route, No> {
    let headers = &request.headers;
    let shard = shard(headers)?;
    let body = match request.length {
        Length::None => Some(0),
        Length::Sized(size) => Some(size),
        Length::Chunked | Length::UntilEof => None,
    };
    let complete = match field(headers, "Upload-Complete")? {
        None | Some("?1") => true,
        Some("?0") => false,
        Some(_) => return Err(No::header("Upload-Complete is neither ?0 nor ?1")),
    };
    let offset = match kind {
        UploadKind::Post => 0,
        UploadKind::Patch { offset } => offset,
    };
    let end = body.map(|body| offset.checked_add(body).ok_or_else(length)).transpose()?;
    let declared = match field(headers, "Upload-Length")? {
        None => None,
        Some(_) => Some(number(headers, "Upload-Length")?),
    };
    let size = match (declared, end, complete) {
        (Some(size), Some(end), true) if size != end => return Err(length()),
        (Some(size), Some(end), false) if end > size => return Err(length()),
        (None, end, true) => end,
        (declared, _, _) => declared,
    };
    let body_digest = given(headers, CONTENT_DIGEST)?;
    let mut whole = given(headers, REPR_DIGEST)?;
    let mut part = body_digest;
    if kind == UploadKind::Post && complete {
        // The body is the whole shard.
        let Some(both) = whole.and(&body_digest) else {
            return Err(No::header("Content-Digest and Repr-Digest contradict each other"));
        };
        (whole, part) = (both, Given::default());
    }
    let client = client(headers)?;
    Ok(Route::Upload(UploadHead { shard, client, kind, complete, size, body, whole, part }))
}

fn length() -> No {
    No::header("Upload-Offset, Upload-Length and the length of the body do not fit each other")
}

fn fetch(headers: &Headers, authority: &str) -> Result<Route, No> {
    let from = match field(headers, "Range")? {
        None => None,
        Some(range) => {
            let first = range.strip_prefix("bytes=").and_then(|r| r.strip_suffix('-'));
            let first = first.and_then(decimal);
            Some(
                first
                    .ok_or_else(|| No::new(400, "bad_range", "the only Range here is bytes=N-"))?,
            )
        }
    };
    let Some(token) = field(headers, TOKEN)? else {
        return Err(No::header(format!("{TOKEN} is missing")));
    };
    let signer = signer(headers, authority, FETCH)?;
    Ok(Route::Fetch { signer, token: Token::parse(token), from })
}

fn upgrade(request: &Request, authority: &str) -> Result<Route, No> {
    let headers = &request.headers;
    if headers.all("origin").next().is_some() {
        return Err(No::new(403, "forbidden_origin", "nothing here is for browsers"));
    }
    let upgrades = headers.has_token("connection", "upgrade")
        && headers.has_token("upgrade", "websocket")
        && request.version == Version::Http11;
    if !upgrades {
        return Err(
            No::new(426, "upgrade_required", "this is a WebSocket").and("Upgrade", "websocket")
        );
    }
    if headers.text("sec-websocket-version") != Some("13") {
        return Err(No::new(426, "upgrade_required", "only version 13 is spoken here")
            .and("Sec-WebSocket-Version", "13"));
    }
    let key = headers.text("sec-websocket-key").filter(|key| is_key(key));
    let Some(key) = key else {
        return Err(No::header("Sec-WebSocket-Key is not 16 bytes of base64"));
    };
    let accept = accept_key(key);
    Ok(Route::Ws { signer: signer(headers, authority, WS)?, accept })
}

fn signer(headers: &Headers, authority: &str, target: &'static str) -> Result<Signer, No> {
    let claim = Claim::of(headers).ok_or_else(No::unauthorized)?;
    Ok(Signer { claim, authority: authority.into(), target })
}

fn client(headers: &Headers) -> Result<Sha256Digest, No> {
    bearer(headers).map(|token| token.hash()).ok_or_else(No::unauthorized)
}

fn shard(headers: &Headers) -> Result<ShardKey, No> {
    let text = |name| field(headers, name)?.ok_or_else(|| No::header(format!("{name} is missing")));
    let file = text("X-Nodus-File-Id")?;
    let version = number(headers, "X-Nodus-Version")?;
    let index = number(headers, "X-Nodus-Shard-Index")?;
    ShardKey::new(file, version, index, text("X-Nodus-Node-Id")?)
        .map_err(|why| No::header(format!("{why}")))
}

/// The value of a field that may stand there once, as visible text.
fn field<'a>(headers: &'a Headers, name: &str) -> Result<Option<&'a str>, No> {
    if headers.all(name).next().is_none() {
        return Ok(None);
    }
    let wrong = || No::header(format!("{name} is there twice, or is not visible ASCII"));
    headers.text(name).map(Some).ok_or_else(wrong)
}

/// A plain decimal number below 2^53.
fn number(headers: &Headers, name: &str) -> Result<u64, No> {
    let Some(text) = field(headers, name)? else {
        return Err(No::header(format!("{name} is missing")));
    };
    decimal(text)
        .filter(|number| *number < NUMBER_END)
        .ok_or_else(|| No::header(format!("{name} is not a plain number below 2^53")))
}

fn given(headers: &Headers, name: &str) -> Result<Given, No> {
    Given::of(headers, name).map_err(|why| No::header(format!("{name} {why}")))
}
