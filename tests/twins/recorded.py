"""What models of each family write, as their makers document it, and what a client gets of it. By family.

Thoughts have begun in the prompt of Qwen, and vLLM keeps the line breaks around their end; Gemma opens and closes its
channel itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "hourly": {"type": "boolean"}},
                "required": ["city"],
            },
        },
    }
]
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

RECORDED: dict[str, list[Recorded]] = {
    "gemma": [
        Recorded("an answer", ANSWER, ANSWER, thinks=False),
        Recorded("thoughts", f"<|channel>thought\n{THOUGHT}<channel|>{ANSWER}", ANSWER, reasoning=THOUGHT),
        Recorded("calls", GEMMA_CALLS, None, thinks=False, calls=[PARIS, ROME]),
        Recorded(
            "thoughts and calls",
            f"<|channel>thought\n{THOUGHT}<channel|>{GEMMA_CALLS}",
            None,
            reasoning=THOUGHT,
            calls=[PARIS, ROME],
        ),
    ],
    "qwen": [
        Recorded("an answer", ANSWER, ANSWER, thinks=False),
        Recorded("thoughts", f"{THOUGHT}\n</think>\n\n{ANSWER}", f"\n\n{ANSWER}", reasoning=f"{THOUGHT}\n"),
        Recorded("calls", QWEN_CALLS, None, thinks=False, calls=[PARIS, ROME]),
        Recorded(
            "thoughts and calls",
            f"{THOUGHT}\n</think>\n\n{QWEN_CALLS}",
            None,
            reasoning=f"{THOUGHT}\n",
            calls=[PARIS, ROME],
        ),
    ],
}
