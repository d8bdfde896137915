"""Recordings through HAProxy, ingress, sandbox and the real Whisper base; tickets of an engine that is cold or dies."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from benchmarks.quality.transcription import errors
from tests.cluster.conftest import Server
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

TEXT = "Good morning. The train to the coast leaves from platform nine."
WHISPER = "whisper-large-v3"
"""Obeys here: a recording is a text of commands."""


@pytest.fixture(scope="module")
def recording(server: Server) -> bytes:
    """Our own speech."""
    with server.http() as client:
        body = {"input": TEXT, "voice": "F1", "language": "en", "response_format": "wav"}
        return client.post("/audio/speech", json=body).content


def transcribe(server: Server, file: bytes, **fields: Any) -> httpx.Response:
    with server.http() as client:
        return client.post("/audio/transcriptions", files={"file": ("memo.wav", file)}, data=fields)


def ticket(server: Server, file: bytes, mime: str = "audio/wav", **fields: Any) -> str:
    """The id of an upload that is done."""
    with server.http() as client:
        made = client.post("/audio/uploads", json={"mime": mime, "size": len(file), **fields}).json()
    put = httpx.put(made["upload_url"], content=file, headers={"content-type": made["content_type"]})
    assert put.status_code == 200, put.text
    upload_id: str = made["upload_id"]
    return upload_id


def by_ticket(server: Server, upload_id: str, **fields: Any) -> httpx.Response:
    with server.http() as client:
        return client.post("/audio/transcriptions", json={"upload_id": upload_id, **fields})


@pytest.mark.smoke
def test_what_was_spoken_is_heard(server: Server, recording: bytes) -> None:
    reply = transcribe(server, recording, language="en")
    assert errors(TEXT, reply.json()["text"], "en") < 0.35
    assert reply.headers["x-service-model-served"] == "whisper-base"


def test_what_was_uploaded_is_heard_once(server: Server, recording: bytes) -> None:
    upload_id = ticket(server, recording)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: by_ticket(server, upload_id, language="en"), range(8)))
    assert sorted(reply.status_code for reply in replies) == [200] + [404] * 7
    (heard,) = [reply.json()["text"] for reply in replies if reply.status_code == 200]
    assert errors(TEXT, heard, "en") < 0.35
    assert no_upload_is_left(server, upload_id)


def test_official_client_hears_words_and_a_stream(server: Server, recording: bytes) -> None:
    client = server.openai()
    file = ("memo.wav", recording)
    verbose = client.audio.transcriptions.create(
        model="whisper-1", file=file, language="en", response_format="verbose_json", timestamp_granularities=["word"]
    )
    assert verbose.segments is not None
    ends = [segment.end for segment in verbose.segments]
    assert ends == sorted(ends)
    assert len(ends) >= 8  # a word each
    events = list(client.audio.transcriptions.create(model="whisper-1", file=file, language="en", stream=True))
    assert {event.type for event in events[:-1]} == {"transcript.text.delta"}
    assert events[-1].type == "transcript.text.done"
    assert "".join(event.delta for event in events[:-1]) == events[-1].text  # type: ignore[union-attr]


def test_structure_changes_no_word(server: Server, recording: bytes) -> None:
    body = transcribe(server, recording, language="en", format_text="true").json()
    assert body["formatting"] == {"applied": True, "verdict": "ok", "coverage": 1.0}
    assert body["text"].split() == body["text_raw"].split()


def test_bad_files_leave_the_engine_alive(server: Server, recording: bytes) -> None:
    for file in (b"", b"no sound at all", recording[:44], recording[:100].replace(b"data", b"junk")):
        reply = transcribe(server, file)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "audio_unreadable"), reply.text
    assert transcribe(server, recording).status_code == 200


def test_a_cold_whisper_refuses_a_form_and_holds_an_upload(server: Server) -> None:
    eventually(lambda: asleep(server), 60, "whisper never went to sleep")
    refused = transcribe(server, b"hello", model=WHISPER)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "warming_up")
    assert "warming up" in refused.json()["error"]["message"]
    reply = by_ticket(server, ticket(server, b"hello", model=WHISPER), model=WHISPER)
    assert reply.json() == {"text": "hello"}


def test_an_engine_that_dies_uses_the_ticket_up(server: Server) -> None:
    upload_id = ticket(server, b"hello\ndie", model=WHISPER)
    died = by_ticket(server, upload_id, model=WHISPER)
    assert (died.status_code, died.json()["error"]["code"]) == (502, "upstream_error")
    assert by_ticket(server, upload_id, model=WHISPER).status_code == 404
    assert no_upload_is_left(server, upload_id)
    eventually(lambda: by_ticket(server, ticket(server, b"hello"), model=WHISPER).status_code == 200, 90, "never back")


def test_a_client_that_leaves_frees_the_engine(server: Server) -> None:
    ticket(server, b"hello", model=WHISPER)  # wakes it
    eventually(lambda: not asleep(server), 60, "whisper never woke")
    files = {"file": ("memo", b"one\nhold 300")}
    with server.http() as client, pytest.raises(httpx.ReadTimeout):
        client.post("/audio/transcriptions", files=files, data={"model": WHISPER}, timeout=3)
    # A replica that works does not go to sleep.
    eventually(lambda: asleep(server), 60, "the engine works on for nobody")


def test_no_decoder_is_left(server: Server) -> None:
    eventually(lambda: "decoding.main" not in " ".join(server.family().values()), 30, "a decoder is left")


def asleep(server: Server) -> bool:
    """Whether whisper has no replica."""
    return server.replicas(f"transcription-{WHISPER}") == 0


def no_upload_is_left(server: Server, upload_id: str) -> bool:
    return not [file for file in (server.home / "bytes/uploads" / upload_id).rglob("*") if file.is_file()]
