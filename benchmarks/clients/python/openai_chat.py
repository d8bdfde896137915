"""OpenAI's SDK: chat, embeddings, completions."""

import json
import os

from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from steps import City, run, step

MODEL = "smollm2-135m-instruct"
HELLO = [{"role": "user", "content": "Name the capital of France."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]},
    },
}
BASE_URL, KEY = f"{os.environ['PARLANCE_URL']}/v1", os.environ["PARLANCE_KEY"]

client = OpenAI(base_url=BASE_URL, api_key=KEY)


class Place(BaseModel):
    """What the answer is to look like."""

    city: City
    is_capital: bool


@step("models")
def models():
    ids = [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id in ids


@step("chat")
def chat():
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=20)
    assert answer.choices[0].message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@step("chat, async")
async def chat_async():
    async with AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as anew:
        answer = await anew.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=20)
    assert answer.choices[0].message.content


@step("streamed chat")
def chat_streamed():
    options = {"include_usage": True}
    stream = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=20, stream=True, stream_options=options
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].usage.completion_tokens > 0


@step("events of a streamed chat")
def chat_events():
    with client.chat.completions.stream(model=MODEL, messages=HELLO, temperature=0, max_tokens=100) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert answer.choices[0].message.content


@step("logprobs and several answers")
def choices():
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=4, n=2, logprobs=True, top_logprobs=2
    )
    assert [len(choice.logprobs.content[0].top_logprobs) for choice in answer.choices] == [2, 2]


@step("tools, there and back")
def tools():
    first = client.chat.completions.create(
        model=MODEL, messages=HELLO, tools=[WEATHER], tool_choice="required", max_tokens=100
    )
    message = first.choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments)["city"] in {"Paris", "Rome"}
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    turns = [*HELLO, message, result]
    second = client.chat.completions.create(model=MODEL, messages=turns, tools=[WEATHER], max_tokens=20)
    assert second.choices[0].finish_reason in {"stop", "length", "tool_calls"}


@step("answers as a pydantic type")
def parsed():
    answer = client.chat.completions.parse(model=MODEL, messages=HELLO, response_format=Place, max_tokens=200)
    assert isinstance(answer.choices[0].message.parsed, Place)


@step("completions")
def completions():
    whole = client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=8, temperature=0)
    stream = client.completions.create(
        model=MODEL, prompt="The capital of France is", max_tokens=8, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == whole.choices[0].text


@step("embeddings")
def embeddings():
    reply = client.embeddings.create(model="all-minilm-l6-v2", input=["a cat", "a kitten"])
    assert [len(item.embedding) for item in reply.data] == [384, 384]


if __name__ == "__main__":
    run()
