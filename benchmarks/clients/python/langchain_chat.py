"""LangChain, over OpenAI's and Anthropic's wires."""

import os

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from steps import City, run, step

MODEL = "smollm2-135m-instruct"
ASK = "Name the capital of France."
LONG = "A recording that nobody has listened to keeps its secrets for longer than a diary does."
URL, KEY = os.environ["PARLANCE_URL"], os.environ["PARLANCE_KEY"]

chat = ChatOpenAI(model=MODEL, base_url=f"{URL}/v1", api_key=KEY, max_tokens=100, temperature=0)
anthropic = ChatAnthropic(model=MODEL, base_url=URL, api_key=KEY, max_tokens=100)


class Place(BaseModel):
    """A place."""

    city: City
    is_capital: bool


@tool
def weather(city: City) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def embeddings(**options: object) -> OpenAIEmbeddings:
    """The client of embeddings."""
    return OpenAIEmbeddings(model="all-minilm-l6-v2", base_url=f"{URL}/v1", api_key=KEY, **options)


@step("ChatOpenAI.invoke")
def invoke():
    answer = chat.invoke(ASK)
    assert answer.content
    assert answer.usage_metadata["output_tokens"] > 0


@step("stream")
def stream():
    assert "".join(piece.content for piece in chat.stream(ASK))


@step("ainvoke")
async def ainvoke():
    assert (await chat.ainvoke(ASK)).content


@step("bind_tools, there and back")
def tools():
    first = chat.bind_tools([weather], tool_choice="weather").invoke(ASK)
    (call,) = first.tool_calls
    result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    assert chat.bind_tools([weather]).invoke([HumanMessage(ASK), first, result]).response_metadata


@step("with_structured_output")
def structured():
    for method in ("json_schema", "function_calling"):
        assert isinstance(chat.with_structured_output(Place, method=method).invoke(ASK), Place)


@step("use_responses_api")
def responses():
    newer = ChatOpenAI(model=MODEL, base_url=f"{URL}/v1", api_key=KEY, max_tokens=100, use_responses_api=True)
    assert newer.invoke(ASK).text
    assert "".join(piece.text for piece in newer.stream(ASK))


@step("ChatAnthropic")
def over_messages():
    assert anthropic.invoke(ASK).content
    assert "".join(piece.text for piece in anthropic.stream(ASK))
    (call,) = anthropic.bind_tools([weather], tool_choice="weather").invoke(ASK).tool_calls
    assert call["name"] == "weather"


@step("OpenAIEmbeddings with check_embedding_ctx_length=False")
def texts():
    assert len(embeddings(check_embedding_ctx_length=False).embed_query(LONG)) == 384


@step(
    "OpenAIEmbeddings by default",
    cannot="sends token ids of OpenAI's tokenizer, which mean other words here; set `check_embedding_ctx_length=False`",
    error="400",
)
def token_ids():
    embeddings().embed_query(LONG)


if __name__ == "__main__":
    run()
