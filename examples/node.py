#!/usr/bin/env python3
"""A node in one page: registers at a relay, fetches what waits for it, verifies, keeps it, says so.

    python3 examples/node.py https://relay.example:7410 edge-7 node.key shards [ca.pem]

node.key is an Ed25519 key in PEM, as `consign node init` or `openssl genpkey -algorithm ed25519` makes it.
Needs: pip install cryptography requests websocket-client
"""

import base64
import hashlib
import json
import os
import random
import secrets
import sys
import time
from urllib.parse import quote, urlsplit

import requests
import websocket
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

URL, NODE, KEY_FILE, FOLDER = sys.argv[1:5]
CA = sys.argv[5] if len(sys.argv) > 5 else None
AUTHORITY = urlsplit(URL).netloc.lower()
with open(KEY_FILE, "rb") as file:
    KEY = load_pem_private_key(file.read(), None)
HTTP = requests.Session()


def signed(method, target):
    """The four fields that sign a request without a body (docs/PICKUP.md, Signature)."""
    now, nonce = str(int(time.time())), secrets.token_hex(16)
    body = hashlib.sha256(b"").hexdigest()
    text = "\n".join(["consign-sig-v1", method, AUTHORITY, target, now, nonce, body])
    signature = base64.b64encode(KEY.sign(text.encode())).decode()
    return {"X-Nodus-Node": NODE, "X-Nodus-Timestamp": now, "X-Nodus-Nonce": nonce,
            "X-Nodus-Signature": signature}


def sync(path):
    """Makes a file, or the names in a directory, durable."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def hash_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_dirs(path):
    """Makes directories one by one, so that each name is durable."""
    if not os.path.isdir(path):
        make_dirs(os.path.dirname(os.path.abspath(path)))
        os.mkdir(path)
        sync(os.path.dirname(os.path.abspath(path)))


def fetch(shard):
    """Brings a shard onto the disk and says whether it is whole and right; None when it was no fetch."""
    # A file id is any visible ASCII: escaped it is one name, and no path.
    name = quote(shard["file_id"], safe="").replace(".", "%2E")
    if len(name) > 200:
        name = name[:150] + "%_" + hashlib.sha256(shard["file_id"].encode()).hexdigest()[:32]
    folder = os.path.join(FOLDER, name, str(shard["version_number"]))
    path = os.path.join(folder, str(shard["shard_index"]))
    make_dirs(folder)
    size, digest = shard["size"], shard["digest"]["sha-256"]
    held = os.path.exists(path) and os.path.getsize(path) == size and hash_of(path) == digest
    part = f"{path}.{digest[:12]}.part"
    start = size if held else os.path.getsize(part) if os.path.exists(part) else 0
    headers = signed("GET", "/buffer/fetch") | {"X-Nodus-Token": shard["token"]}
    if held or start:
        headers["Range"] = f"bytes={start}-"  # what is here is not sent again
    answer = HTTP.get(URL + "/buffer/fetch", headers=headers, stream=True, timeout=60,
                      verify=CA or True)
    if answer.status_code not in (200, 206):
        print("not fetched:", answer.status_code, answer.text.strip(), file=sys.stderr)
        return None
    if held:
        return True
    with open(part, "ab") as file:
        for piece in answer.iter_content(1 << 20):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if os.path.getsize(part) < size:
        return None  # it broke off; the relay notifies again, and the next token goes on here
    if os.path.getsize(part) != size or hash_of(part) != digest:
        os.remove(part)
        return False
    os.replace(part, path)
    sync(folder)
    return True


def session():
    target = "/ws"
    ws = websocket.create_connection(
        URL.replace("http", "ws", 1) + target, timeout=60, suppress_origin=True,
        header=[f"{k}: {v}" for k, v in signed("GET", target).items()],
        sslopt={"ca_certs": CA} if CA else None)
    ws.send(json.dumps({"type": "register", "node_id": NODE}))
    while True:
        try:
            message = json.loads(ws.recv())
        except websocket.WebSocketTimeoutException:
            ws.ping()  # a line that is only quiet answers this; a dead one ends the session
            continue
        print(message | ({"token": "…"} if "token" in message else {}), flush=True)
        if message["type"] != "pending_notify":
            continue
        try:
            right = fetch(message)
        except requests.RequestException as error:
            print("broke off:", error, file=sys.stderr)
            right = None
        if right is not None:
            keys = ("file_id", "version_number", "shard_index", "redemption")
            ack = {key: message[key] for key in keys} | {"type": "shard_ack"}
            ack |= {"status": "verified"} if right else {"status": "failed", "reason": "digest"}
            ws.send(json.dumps(ack))  # only now may the relay let it go


if __name__ == "__main__":
    public = KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    print("consign pickup nodes enrol", NODE, "--key", base64.b64encode(public).decode())
    wait = 1
    while True:
        began = time.monotonic()
        try:
            session()
        except (OSError, ValueError, websocket.WebSocketException) as error:
            wait = 1 if time.monotonic() - began > 30 else min(wait * 2, 60)
            pause = wait * random.uniform(0.5, 1)
            print(f"lost: {error}; again in {pause:.1f} s", file=sys.stderr)
            time.sleep(pause)
