"""OpenAI's SDK: responses."""

import json
import os

from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from steps import City, run, step

MODEL = "smollm2-135m-instruct"
ASK = "Name the capital of France."
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
BASE_URL, KEY = f"{os.environ['PARLANCE_URL']}/v1", os.environ["PARLANCE_KEY"]

client = OpenAI(base_url=BASE_URL, api_key=KEY)


class Place(BaseModel):
    """What the answer is to look like."""

    city: City
    is_capital: bool


@step("responses")
def create():
    response = client.responses.create(model=MODEL, instructions="Be brief.", input=ASK, max_output_tokens=20)
    assert response.output_text
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


@step("responses, async")
async def create_async():
    async with AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as anew:
        response = await anew.responses.create(model=MODEL, input=ASK, max_output_tokens=20)
    assert response.output_text


@step("streamed responses")
def streamed():
    with client.responses.stream(model=MODEL, input=ASK, temperature=0, max_output_tokens=100) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()
    assert "".join(deltas) == response.output_text


def there_and_back(tool: dict):
    """The call of a tool, once its result was sent and answered."""
    first = client.responses.create(model=MODEL, input=ASK, tools=[tool], tool_choice="required", max_output_tokens=100)
    call = next(item for item in first.output if item.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    turns = [{"role": "user", "content": ASK}, *first.output, result]
    second = client.responses.create(model=MODEL, input=turns, tools=[tool], max_output_tokens=20)
    assert second.status in {"completed", "incomplete"}
    return call


@step("tools, there and back")
def tools():
    assert json.loads(there_and_back(WEATHER).arguments)["city"] in {"Paris", "Rome"}


@step("answers as a pydantic type")
def parsed():
    response = client.responses.parse(model=MODEL, input=ASK, text_format=Place, max_output_tokens=200)
    assert isinstance(response.output_parsed, Place)


@step("server-side conversations", cannot="not supported: send the turns again", error="400")
def kept():
    first = client.responses.create(model=MODEL, input=ASK, max_output_tokens=5)
    client.responses.create(model=MODEL, input="Why?", previous_response_id=first.id, max_output_tokens=5)


@step("beside a web search, which is left out and told")
def web_search():
    reply = client.responses.with_raw_response.create(
        model=MODEL, input=ASK, tools=[WEATHER, {"type": "web_search"}], max_output_tokens=5
    )
    assert reply.headers["x-service-ignored"] == "tools[1]"
    assert [tool.type for tool in reply.parse().tools] == ["function"]


@step("tools in a namespace, there and back")
def namespace():
    call = there_and_back({"type": "namespace", "name": "sky", "description": "The sky.", "tools": [WEATHER]})
    assert (call.namespace, call.name) == ("sky", "weather")


@step("a web search and nothing else", cannot="OpenAI runs it itself; bring your own", error="400")
def web_search_alone():
    search = {"type": "web_search_preview"}
    client.responses.create(model=MODEL, input=ASK, tools=[search], tool_choice=search, max_output_tokens=5)


if __name__ == "__main__":
    run()
