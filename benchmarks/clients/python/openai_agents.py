"""OpenAI's Agents SDK, over chat and over responses."""

import os

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from steps import City, run, step

MODEL = "smollm2-135m-instruct"
ASK = "What is the weather in Paris?"
BASE_URL, KEY = f"{os.environ['PARLANCE_URL']}/v1", os.environ["PARLANCE_KEY"]

set_tracing_disabled(True)  # otherwise every run is reported to OpenAI


@function_tool
def weather(city: City) -> str:
    """The weather in a city."""
    return "sunny"


def agent(model: object, **options: object) -> Agent:
    """Somebody who must look first, and then answers."""
    settings = ModelSettings(tool_choice="required", max_tokens=100, temperature=0)
    return Agent(
        name="guide", instructions="Be brief.", model=model, tools=[weather], model_settings=settings, **options
    )


async def calls_its_tool(model: type) -> None:
    """A run over a wire looks first."""
    async with AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as client:
        result = await Runner.run(agent(model(MODEL, client)), ASK)
    kinds = [item.type for item in result.new_items]
    assert kinds[:2] == ["tool_call_item", "tool_call_output_item"], kinds


@step("a run with a tool, over chat")
async def over_chat():
    await calls_its_tool(OpenAIChatCompletionsModel)


@step("a run with a tool, over responses")
async def over_responses():
    await calls_its_tool(OpenAIResponsesModel)


@step("a streamed run")
async def streamed():
    async with AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as client:
        guide = agent(OpenAIResponsesModel(MODEL, client), tool_use_behavior="stop_on_first_tool")
        result = Runner.run_streamed(guide, ASK)
        events = {event.type async for event in result.stream_events()}
    assert {"raw_response_event", "run_item_stream_event"} <= events
    assert result.final_output == "sunny"


if __name__ == "__main__":
    run()
