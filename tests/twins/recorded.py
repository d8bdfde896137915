"""What models of each family write, as their makers document it, and what a client gets of it. By family.

Thoughts have begun in the prompt of Qwen, and vLLM keeps the line breaks around their end; Gemma opens and closes its
channel itself.
"""

from dataclasses import dataclass, field
from typing import Any

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "hourly": {"type": "boolean"}},
    "required": ["city"],
}
WEATHER = {"name": "get_weather", "description": "Weather of a city", "parameters": PARAMETERS}
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": WEATHER}]
PARIS, ROME = {"city": "Paris", "days": 2, "hourly": True}, {"city": "Rome, Italy"}


@dataclass(frozen=True)
class Recorded:
    """An answer as the model writes it, and as a client gets it.

    Attributes:
        thinks: whether the request wants thoughts.
        calls: arguments of calls of `get_weather`.
    """

    name: str
    written: str
    content: str | None
    thinks: bool = True
    reasoning: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)


GEMMA_CALLS = (
    '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2,hourly:true}<tool_call|>'
    '<|tool_call>call:get_weather{city:<|"|>Rome, Italy<|"|>}<tool_call|>'
)
QWEN_CALLS = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    "<parameter=hourly>\ntrue\n</parameter>\n</function>\n</tool_call>\n"
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome, Italy\n</parameter>\n</function>\n</tool_call>"
)
THOUGHT = "They ask for two cities: one call each."
ANSWER = "It is 20 degrees in Paris, and {a: 1} stays as it is."


def recorded(opening: str, gap: str, kept: str, calls: str) -> list[Recorded]:
    """Answers of a family: what opens its thoughts, what ends them, what stays of that, and how it writes CALLS."""
    thoughts, reasoning = f"{opening}{THOUGHT}{gap}", f"{THOUGHT}{kept[:1]}"
    both = [PARIS, ROME]
    return [
        Recorded("an answer", ANSWER, ANSWER, thinks=False),
        Recorded("thoughts", f"{thoughts}{ANSWER}", f"{kept[1:]}{ANSWER}", reasoning=reasoning),
        Recorded("calls", calls, None, thinks=False, calls=both),
        Recorded("thoughts and calls", f"{thoughts}{calls}", None, reasoning=reasoning, calls=both),
    ]


RECORDED = {
    "gemma": recorded("<|channel>thought\n", "<channel|>", "", GEMMA_CALLS),
    "qwen": recorded("", "\n</think>\n\n", "\n\n\n", QWEN_CALLS),
}
