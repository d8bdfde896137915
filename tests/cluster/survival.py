"""What must be there after a node died at any moment: left behind before, looked for afterwards.

Keys and their end, a budget, tickets in every state with their bytes, a voice with its clip, drafts, kept replies, and
each bill once. What may be lost: answers under way, counters of the minute.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

Run = Callable[..., str]
"""`python -m state` with these arguments."""

DESIGNS = "/audio/voices/designs"
CHAT_MODEL = "smollm2-135m-instruct"
CHAT = {"max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": "What is the capital of Italy?"}]}
LIMIT_MICRO_EUR = 123_456_789
DRAFT_S = 120


@dataclass
class Estate:
    """What one organisation owned when the node died.

    Attributes:
        kept, revoked: keys.
        tickets: upload ids by what was done with them.
        upload_url: of the ticket that nothing was uploaded for.
        orders: drafts that were being worked on.
        chat_model: gave the reply that is kept.
    """

    org: str
    kept: str
    revoked: str
    recording: bytes
    tickets: dict[str, str] = field(default_factory=dict)
    upload_url: str = ""
    voice: str = ""
    sample: bytes = b""
    ready: str = ""
    orders: list[str] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)
    billed: list[str] = field(default_factory=list)
    chat_model: str = CHAT_MODEL


def leave(client: httpx.Client, state: Run, org: str, chat_model: str = CHAT_MODEL) -> Estate:
    """Leaves one of everything behind; the last thing is a draft that somebody works on."""
    sound = _well(client.post("/audio/speech", json={"input": "Good morning.", "language": "en"})).content
    revoked = state("key", "create", "--org", org, "--scopes", "chat")
    state("key", "revoke", revoked.split("_")[1])
    kept = state("key", "create", "--org", org, "--scopes", "chat")
    left = Estate(org, kept, revoked, sound, chat_model=chat_model)
    state("budget", "set", "--org", org, "--limit-micro-eur", str(LIMIT_MICRO_EUR))
    for kind in ("issued", "uploaded", "used"):
        ticket = _well(client.post("/audio/uploads", json={"mime": "audio/mpeg", "size": len(sound)})).json()
        left.tickets[kind] = ticket["upload_id"]
        if kind == "issued":
            left.upload_url = ticket["upload_url"]
        else:
            _upload(ticket["upload_url"], sound)
    assert _heard(client, left.tickets["used"]).status_code == 200
    left.ready = _draft(client)["id"]
    adopted = _well(client.post(f"{DESIGNS}/{left.ready}/adopt", json={"slug": "heirloom"})).json()
    left.voice = adopted["slug"]
    left.sample = _sample(client, left.voice)
    left.reply = _well(_ask_once(client, chat_model)).json()
    left.billed = bills(state, org)
    left.orders.append(order(client))
    return left


def order(client: httpx.Client) -> str:
    """A draft that somebody works on."""
    return str(_well(client.post(DESIGNS, json={"gender": "m", "age_years": 50, "language": "en"})).json()["id"])


def find(client: httpx.Client, state: Run, left: Estate) -> dict[str, bool]:
    """What of it is still there; by a name that a report can show."""
    after = bills(state, left.org)
    found = {
        "a key": _status_of(client, left.kept) == 200,
        "a revoked key stays revoked": _status_of(client, left.revoked) == 401,
        "a budget": str(LIMIT_MICRO_EUR) in state("budget", "list", "--org", left.org).replace(",", ""),
        "a ticket that was issued": _upload(left.upload_url, left.recording).is_success
        and _heard(client, left.tickets["issued"]).status_code == 200,
        "a ticket with its recording": _heard(client, left.tickets["uploaded"]).status_code == 200,
        "a used ticket stays used": 400 <= _heard(client, left.tickets["used"]).status_code < 500,
        "a voice with its clip": _sample(client, left.voice) == left.sample,
        "a draft that was adopted": client.get(f"{DESIGNS}/{left.ready}").json()["status"] == "adopted",
        "drafts that were worked on": all(_until_done(client, one)["status"] == "ready" for one in left.orders),
        "a kept reply": _ask_once(client, left.chat_model).json() == left.reply,
        "each bill, once": set(left.billed) <= set(after) and len(after) == len(set(after)),
        "the books add up": bool(state("check")),
    }
    spoken = client.post("/audio/speech", json={"input": "Here I am.", "language": "en", "voice": left.voice})
    return found | {"the voice speaks": spoken.status_code == 200}


def bills(state: Run, org: str) -> list[str]:
    """Request ids of usage lines."""
    return [line["request_id"] for line in json.loads(state("usage", "--org", org, "--format", "json"))]


def _well(reply: httpx.Response) -> httpx.Response:
    assert reply.is_success, reply.text
    return reply


def _upload(url: str, sound: bytes) -> httpx.Response:
    return httpx.put(url, content=sound, headers={"content-type": "audio/mpeg"}, timeout=30)


def _heard(client: httpx.Client, upload_id: str) -> httpx.Response:
    return client.post("/audio/transcriptions", json={"upload_id": upload_id, "language": "en"})


def _draft(client: httpx.Client) -> dict[str, Any]:
    ordered = _well(client.post(DESIGNS, json={"gender": "f", "age_years": 34, "language": "en"})).json()
    return _until_done(client, ordered["id"])


def _until_done(client: httpx.Client, draft_id: str) -> dict[str, Any]:
    end = time.monotonic() + DRAFT_S
    while (draft := _well(client.get(f"{DESIGNS}/{draft_id}")).json())["status"] == "pending":
        assert time.monotonic() < end, "the draft is never done"
        time.sleep(0.2)
    return dict(draft)


def _sample(client: httpx.Client, slug: str) -> bytes:
    voices = _well(client.get("/audio/voices")).json()["data"]
    (voice,) = [voice for voice in voices if voice["slug"] == slug]
    return _well(httpx.get(voice["sample_url"], timeout=60)).content


def _ask_once(client: httpx.Client, model: str) -> httpx.Response:
    headers = {"idempotency-key": "the-last-will"}
    return client.post("/chat/completions", json={"model": model, **CHAT}, headers=headers)


def _status_of(client: httpx.Client, key: str) -> int:
    return client.get("/me", headers={"authorization": f"Bearer {key}"}).status_code
