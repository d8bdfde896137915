"""Anthropic's SDK. Its base address has no /v1, and its key travels in x-api-key."""

import os

from anthropic import Anthropic, AsyncAnthropic

from steps import run, step

MODEL = "smollm2-135m-instruct"
HELLO = [{"role": "user", "content": "Name the capital of France."}]
WEATHER = {
    "name": "weather",
    "description": "The weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]},
}
BASE_URL, KEY = os.environ["PARLANCE_URL"], os.environ["PARLANCE_KEY"]

client = Anthropic(base_url=BASE_URL, api_key=KEY)


@step("models")
def models():
    assert MODEL in {model.id for model in client.models.list()}


@step("messages")
def messages():
    message = client.messages.create(model=MODEL, max_tokens=20, system="Be brief.", messages=HELLO)
    assert message.content[0].text
    assert message.usage.output_tokens > 0


@step("messages, async")
async def messages_async():
    async with AsyncAnthropic(base_url=BASE_URL, api_key=KEY) as anew:
        message = await anew.messages.create(model=MODEL, max_tokens=20, messages=HELLO)
    assert message.content[0].text


@step("streamed messages")
def streamed():
    with client.messages.stream(model=MODEL, max_tokens=20, messages=HELLO) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert "".join(pieces) == message.content[0].text
    assert message.usage.output_tokens > 0


@step("tools, there and back")
def tools():
    first = client.messages.create(
        model=MODEL, max_tokens=100, messages=HELLO, tools=[WEATHER], tool_choice={"type": "any"}
    )
    call = next(block for block in first.content if block.type == "tool_use")
    assert call.input["city"] in {"Paris", "Rome"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    turns = [*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(model=MODEL, max_tokens=20, messages=turns, tools=[WEATHER])
    assert second.stop_reason in {"end_turn", "max_tokens", "tool_use"}


@step("counted tokens")
def counted():
    assert client.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens > 5


SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@step("beside a web search, which is left out and told")
def web_search():
    reply = client.messages.with_raw_response.create(model=MODEL, max_tokens=5, messages=HELLO, tools=[SEARCH])
    assert reply.headers["x-service-ignored"] == "tools[0]"
    assert reply.parse().type == "message"


@step("a web search and nothing else", cannot="Anthropic runs it itself; bring your own", error="400")
def web_search_alone():
    choice = {"type": "tool", "name": "web_search"}
    client.messages.create(model=MODEL, max_tokens=5, messages=HELLO, tools=[SEARCH], tool_choice=choice)


@step("batches", cannot="not offered", error="404")
def batches():
    request = {"custom_id": "a", "params": {"model": MODEL, "max_tokens": 5, "messages": HELLO}}
    client.messages.batches.create(requests=[request])


if __name__ == "__main__":
    run()
