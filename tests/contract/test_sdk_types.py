"""Each reply and each event of the wires of an LLM, strictly as the types of their official SDKs have it."""

from __future__ import annotations

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion
from openai.types.responses import Response, ResponseStreamEvent

from contract.errors import UPSTREAM_ERROR
from contract.messages.events import MessageEvents
from contract.messages.reply import message
from contract.responses.events import ResponseEvents
from contract.responses.reply import whole
from contract.wires import contents
from tests.contract.test_responses_events import CALL, CUSTOM, LOUD, head, played, read
from tests.scripted import MODEL, Call, Script
from tests.sdk import chat_chunk, demand

SCRIPTS = {
    "nothing": Script(),
    "text": Script(text="Hello there", has_logprobs=True),
    "all": Script("Hm, well", "Hello there", (CALL, Call("call_c", "now", "{}")), "tool_calls"),
    "cut thoughts": Script("Hm", finish_reason="length", cut_tokens=3),
    "cut call": Script(calls=(Call("call_a", "add", '{"a": "half a sen'),), finish_reason="length"),
    "stop sequence": Script(text="Hello", stop_sequence="END"),
}
OPENAI = {**SCRIPTS, "custom": Script(calls=(CUSTOM, CALL)), "loud": LOUD}


@pytest.mark.parametrize("script", OPENAI.values(), ids=OPENAI)
def test_a_chat(script: Script) -> None:
    demand(ChatCompletion, script.reply().body)
    for batch in script.batches():
        for chunk in contents(batch.events):
            chat_chunk(chunk)


@pytest.mark.parametrize("script", OPENAI.values(), ids=OPENAI)
def test_a_response(script: Script) -> None:
    demand(Response, whole(head(), script.reply()))
    for event in played(script.batches(), head()):
        demand(ResponseStreamEvent, event)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("is_silent", [False, True])
def test_a_message(script: Script, is_silent: bool) -> None:
    made = demand(Message, message(script.reply(), is_silent))
    events = MessageEvents(MODEL, is_silent)
    sent = b"".join([*map(events.of, script.batches()), *events.end()])
    *_, delta, stop = [demand(RawMessageStreamEvent, event) for event in read(sent)]
    assert (delta.delta.stop_reason, stop.type) == (made.stop_reason, "message_stop")
    if is_silent:
        assert (made.content, made.stop_reason) == ([], "max_tokens")
        assert b"content_block" not in sent


def test_a_response_that_fails() -> None:
    events = ResponseEvents(head())
    framed = b"".join(map(events.of, list(LOUD.batches())[:6])) + events.failed(UPSTREAM_ERROR())
    for event in read(framed):
        demand(ResponseStreamEvent, event)
