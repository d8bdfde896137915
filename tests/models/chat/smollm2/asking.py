"""What is asked of the engine of this folder, and how its streams are read."""

import json
from typing import Any

from contract.chat.engine import ChatBatch, ChatJob
from contract.chat.request import ChatRequest
from models.chat import VllmChat
from tests.sdk import chat_chunk
from tests.waiting import until

WINDOW = 512
PARIS = "Name the capital of France."
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def ask(content: Any = PARIS, **fields: Any) -> ChatJob:
    body = {"model": "small", "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 24}
    return ChatJob(ChatRequest.model_validate(body | fields))


async def said(chat: VllmChat, job: ChatJob) -> str:
    return (await chat.complete(job)).text


async def said_in_pieces(chat: VllmChat, job: ChatJob) -> str:
    return text_of(chunks_of(await batches(chat, job)))


async def batches(chat: VllmChat, job: ChatJob) -> list[ChatBatch]:
    return [batch async for batch in chat.stream(job)]


def chunks_of(sent: list[ChatBatch]) -> list[dict[str, Any]]:
    """The chunks of a stream, each as OpenAI's SDK demands it."""
    events = b"".join(batch.events for batch in sent).decode()
    assert events.endswith("\n\n")
    lines = events.removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: {") for line in lines)
    return [chat_chunk(json.loads(line.removeprefix("data: "))) for line in lines]


def text_of(chunks: list[dict[str, Any]], index: int = 0, field: str = "content") -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get(field) or "" for choice in choices)


def calls_of(chunks: list[dict[str, Any]]) -> list[dict[str, str]]:
    calls: list[dict[str, str]] = []
    for delta in (choice["delta"] for chunk in chunks for choice in chunk["choices"]):
        for part in delta.get("tool_calls", []):
            if part["index"] == len(calls):
                assert part["type"] == "function"
                calls.append({"id": part["id"], "name": part["function"]["name"], "arguments": ""})
            calls[part["index"]]["arguments"] += part["function"]["arguments"]
    return calls


async def idle(chat: VllmChat) -> None:
    scheduler = chat.engine.engine_core.engine_core.scheduler
    await until(lambda: not chat.unfinished and not scheduler.get_num_unfinished_requests())
