"""Requests that two programs on the way could read differently: paths, hosts, lengths, headers, keys."""

from __future__ import annotations

import asyncio

from benchmarks.attacks.attack import NotTriedError, Saw, attack
from benchmarks.attacks.bystander import standing_by
from benchmarks.attacks.target import NOBODY, Target, authorized, counted, summary
from benchmarks.attacks.wire import exchange, request, statuses

PATHS = (
    "/v1/../v1/me",
    "//v1/me",
    "/v1//me",
    "/V1/me",
    "/v1/me/",
    "/v1/%6de",
    "/v1/me%00",
    "/v1/me%2f..%2f..%2fhealthz",
    "/healthz/../v1/me",
    "/healthz;/v1/me",
    "/v1/me?/healthz",
    "/v1/me#/healthz",
    "http://localhost/v1/me",
    "@localhost/v1/me",
    "/-/routes",
    "/-/healthz/../../v1/me",
    "/docs",
    "/metrics",
    "/files/../parlance.db?expires=9999999999&signature=0",
    "/files/%2e%2e/secrets?expires=9999999999&signature=0",
)
HOSTS = ("a/?x=", "x@y", "127.0.0.1/healthz", "localhost:1", "[::1", "", "a" * 300)

OPEN = {"/-/healthz", "/-/routes"}
"""Of Serve itself: they say that it runs, and where. Nothing of ours is behind them."""

SMUGGLED = {
    "two lengths": ("Content-Length: 2", "Content-Length: 44"),
    "a length and chunks": ("Content-Length: 4", "Transfer-Encoding: chunked"),
    "chunks that are not said so": ("Content-Length: 4", "Transfer-Encoding: xchunked"),
    "chunks twice": ("Transfer-Encoding: chunked", "Transfer-Encoding: identity", "Content-Length: 4"),
    "a space before the colon": ("Content-Length : 44", "Content-Length: 4"),
    "a line that is folded": ("X-A: b", " Content-Length: 44", "Content-Length: 4"),
    "a bare line feed": ("X-A: b\nContent-Length: 44", "Content-Length: 4"),
    "a length that is negative": ("Content-Length: -1",),
    "a length with a sign": ("Content-Length: +4",),
    "a character that ends strings": ("X-A: a\0b", "Content-Length: 4"),
}


FOREIGN = "https://evil.example"
CALLED = ("/v1/me", "/v1/chat/completions", "/v1/messages", "/healthz")


@attack("no path and no Host opens what wants a key; never 5xx")
async def paths_and_hosts(target: Target) -> Saw:
    """Spellings of paths and hosts that could be taken for something else, without a key."""
    wrong, outcomes = [], []
    tries = [request(target, "GET", path) for path in PATHS if path not in OPEN]
    tries += [f"GET /v1/me HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() for host in HOSTS]
    replies = await asyncio.gather(*(exchange(target, data, 2) for data in tries))
    for data, reply in zip(tries, replies, strict=True):
        answers = statuses(reply)
        outcomes += [str(status) for status in answers] or ["closed"]
        wrong += [f"`{data.splitlines()[0].decode()}` got {status}" for status in answers if not 300 <= status < 500]
    return Saw("; ".join([counted(outcomes), *wrong]), not wrong)


@attack("400, 401 or closed: one reply at most, and none to what was hidden inside")
async def smuggled_requests(target: Target) -> Saw:
    """A second request inside the body of a first whose length can be read in two ways."""
    hidden = request(target, "GET", "/v1/me", key=target.key)
    wrong, outcomes = [], []
    with standing_by(target) as waits:
        for name, headers in SMUGGLED.items():
            body = b"0\r\n\r\n" + hidden
            answers = statuses(
                await exchange(target, request(target, "POST", "/v1/embeddings", *headers, body=body), 2)
            )
            outcomes += [str(status) for status in answers] or ["closed"]
            # What follows a request that is whole is one of its own, and may be answered as such: not before it.
            if answers[:1] and not 400 <= answers[0] < 500:
                wrong.append(f"{name}: {answers}")
    return Saw("; ".join([counted(outcomes), str(waits), *wrong]), waits.passed and not wrong)


@attack("they change nothing: 200 as without them, an id of ours, no header of theirs in the reply")
async def headers_of_proxies(target: Target) -> Saw:
    """Headers that servers believe when a proxy sends them, from a client."""
    forged = {
        "x-request-id": "req_mine",
        "x-request-timeout-seconds": "0.000001",
        "x-request-disconnect-disabled": "?1",
        "serve_multiplexed_model_id": "other",
        "x-forwarded-for": "10.0.0.1",
        "x-forwarded-host": "evil.example",
        "x-forwarded-prefix": "/evil",
        "x-original-url": "/healthz",
        "x-rewrite-url": "/healthz",
        "x-http-method-override": "DELETE",
        "forwarded": "for=10.0.0.1;host=evil.example",
        "connection": "close, authorization",
    }
    reply = await target.send("GET", "/v1/me", headers=forged)
    ids = reply.headers.get_list("x-request-id")
    text = f"{reply.status_code}, {len(ids)} request id{'' if len(ids) == 1 else 's'}"
    echoed = "evil.example" in str(reply.headers) or "req_mine" in ids
    # A proxy that drops what `Connection` names drops the key: that is 401, and harms nobody but the sender.
    return Saw(text + (", echoed" if echoed else ""), reply.status_code in {200, 401} and len(ids) == 1 and not echoed)


@attack("no header that would give a page the answer, and no answer without a key but that of `/healthz`")
async def foreign_origins(target: Target) -> Saw:
    """Pages of another site: they ask first, call at once in a form that browsers let pass, or have found a key."""
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, x-api-key"}
    page, body = {"origin": FOREIGN}, b'{"model": "x"}'
    keyless, keyed = [], []
    for path in CALLED:
        keyless.append(await target.send("OPTIONS", path, key=NOBODY, headers=page | asks))
        keyless.append(
            await target.send("POST", path, key=NOBODY, headers=page | {"content-type": "text/plain"}, content=body)
        )
        keyed.append(await target.send("GET", path, headers=page))
    told_to_page = {
        f"{name}: {value}"
        for reply in keyless + keyed
        for name, value in reply.headers.items()
        if name.startswith("access-control-")
    }
    if "access-control-allow-origin: *" in told_to_page:
        raise NotTriedError("the operator has listed every origin")
    refused = all(reply.status_code in {401, 405} for reply in keyless)
    return Saw("; ".join([summary(keyless + keyed), *sorted(told_to_page)]), refused and not told_to_page)


@attack("401 for each, 429 beyond 120 a minute; a real key of the same address opens; nobody else waits")
async def malformed_keys(target: Target) -> Saw:
    """Hundreds of values that could break the search for a key: quotes, NUL, kilobytes, half of a real one."""
    real = target.key
    values = [real[:-1], real + "x", real[:20], real.swapcase(), f"{real} {real}", "' OR 1=1 --", "x" * 4_000, "%00"]
    values += [f"prl_{index:08d}_{'a' * 49}" for index in range(target.size(40, 200))]
    tries = [headers for value in values for headers in ({"authorization": f"Bearer {value}"}, {"x-api-key": value})]
    with standing_by(target) as waits:
        async with target.stranger() as stranger:
            answers = [(await stranger.get("/v1/models", headers=headers)).status_code for headers in tries]
            opened = await stranger.get("/v1/models", headers=authorized(real))
        answers.append((await target.send("GET", "/v1/models", headers={"x-api-key": values[0]})).status_code)
        answers += statuses(
            await exchange(target, request(target, "GET", "/v1/me", "Authorization: Bearer \udcff\udcfe"), 2)
        )
    right = "a real key opens" if opened.status_code == 200 else f"a real key gets {opened.status_code}"
    passed = waits.passed and set(answers) <= {400, 401, 429, 431} and opened.status_code == 200
    return Saw(f"{counted(str(status) for status in answers)}; {right}; {waits}", passed)
