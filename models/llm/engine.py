"""From a spec to a running AsyncLLM: arguments, threads, environment, and the choice between thread and process.

vLLM and OpenMP read the environment once, when they are imported, so `prepare_environment` comes before any import.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.limits import IMAGE_PIXELS
from models.cpu import fitting_dtype
from models.llm import quantization
from models.weights.files import WeightsError

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

log = logging.getLogger(f"parlance.{__name__}")

DEFAULTS: dict[str, Any] = {
    "generation_config": "vllm",  # sampling defaults are the API's, not those of the weights' publisher
    "enable_prefix_caching": True,
    "use_tqdm_on_load": False,
}
"""Engine arguments where a spec says nothing."""

IN_PROCESSES: dict[str, Any] = {"disable_log_stats": False}  # on GPUs: vLLM's own metrics go out beside ours
"""Further defaults where the engine core has processes of its own."""

IN_PROCESS: dict[str, Any] = {
    "disable_log_stats": True,  # which this core could not tell
    "kv_cache_memory_bytes": 1 << 29,  # stated, so that loading neither measures nor takes most of the machine's memory
    "max_num_batched_tokens": 512,  # prompts that arrive together are read a few at a time, so the first answers sooner
    "block_size": 32,
}
"""Further defaults where the engine core runs in this process: a CPU that others use as well."""

QUIET = {
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_MAX_IMAGE_PIXELS": str(IMAGE_PIXELS),
}

UNKNOWN_ARCHITECTURE = ("are not supported for now", "does not recognize this architecture")
"""Parts of the errors of vLLM and of transformers for an architecture that they do not know."""
UNLOADED_ARCHITECTURE = "failed to be inspected"
"""Part of vLLM's error where its module of an architecture cannot be imported."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Arguments of an engine's start.

    Attributes:
        path: folder of the weights.
        window: tokens of a prompt and its answer together, at most.
        arguments: engine arguments of vLLM; they go before our defaults.
        threads: CPU threads of the model; None leaves it to the library.
        in_process: the engine core runs in a thread of this process, not in processes of its own.
        quick_steps: on a CPU, steps take quicker kernels and a shorter forward than vLLM's, where they fit.
        int8: the weights are those in 8 bits below `path`, where they are there and fit the processor.
        rest_s: seconds without a request after which an engine in this process gives its cache back; None is never.
    """

    path: Path
    window: int
    arguments: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None
    in_process: bool = True
    quick_steps: bool = True
    int8: bool = False
    rest_s: float | None = None


def prepare_environment(in_process: bool, eager: bool, threads: int | None) -> None:
    """Sets what vLLM reads at import. What the operator has set stays, but for the thread count.

    Ray gives actors of one CPU or less `OMP_NUM_THREADS=1`, which would leave the model one core whatever its stanza
    says; and vLLM keeps torch to one thread where the variable is not set.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    hub: Any = sys.modules.get("huggingface_hub.constants")
    if hub:  # which has read it, and weights are here by now
        hub.HF_HUB_OFFLINE = os.environ["HF_HUB_OFFLINE"].upper() in hub.ENV_VARS_TRUE_VALUES
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    if in_process:
        # Without this the CPU platform insists on an executor in another process.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if eager:
        # The sampler has functions of its own that compile at first use: 14 s for the first request with `logprobs`.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")


def start(spec: EngineSpec) -> AsyncLLM:
    """Loads the model of `spec`; blocks until it can answer. Raises WeightsError for an unknown architecture."""
    prepare_environment(spec.in_process, bool(spec.arguments.get("enforce_eager")), spec.threads)
    with _uncollected(), _known_architecture(spec.path):
        return _start(spec)


def _start(spec: EngineSpec) -> AsyncLLM:
    import torch
    from vllm.config import StructuredOutputsConfig
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    # vLLM collects garbage five times while it loads; what is frozen is not looked through.
    gc.freeze()
    arguments = DEFAULTS | {"max_model_len": spec.window, "seed": secrets.randbits(31)}
    arguments |= IN_PROCESS if spec.in_process else IN_PROCESSES | {"served_model_name": spec.path.name}
    arguments |= spec.arguments
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if spec.in_process:
        arguments = fitted(arguments, device)
    folder = quantization.fitting_folder(spec.path, arguments, device) if spec.int8 else spec.path
    # The engine keeps the backend of its first grammar for good; with `auto` a client would choose it for all others.
    arguments["structured_outputs_config"] = StructuredOutputsConfig(backend="xgrammar")
    config = AsyncEngineArgs(model=str(folder), **arguments).create_engine_config(UsageContext.ENGINE_CONTEXT)
    if not spec.in_process:
        from models.llm.vllm_internals.process_engine import ProcessLLM, statistics

        loggers = [] if arguments["disable_log_stats"] else statistics()
        # True: statistics are no lines in the log.
        return ProcessLLM.from_vllm_config(config, stat_loggers=loggers, disable_log_stats=True)

    from models.llm.vllm_internals.core import ThreadedLLM

    return ThreadedLLM(config, spec.threads, spec.quick_steps, spec.rest_s)


def fitted(arguments: dict[str, Any], device: str) -> dict[str, Any]:
    """`arguments` with a dtype that `device` computes in, and room in the cache for as many tokens as before."""
    stated = arguments.get("dtype", "auto")
    dtype = fitting_dtype(stated, device)
    if dtype == stated:
        return arguments
    log.info("this CPU has no instructions for %s, so the model runs in %s", stated, dtype)
    return arguments | {"dtype": dtype, "kv_cache_memory_bytes": 2 * arguments["kv_cache_memory_bytes"]}


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pauses the garbage collector, and spares it what exists at the end.

    The imports make half a million objects that stay; looking through them again and again is a quarter of a start.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


@contextmanager
def _known_architecture(folder: Path) -> Iterator[None]:
    """Raises WeightsError where vLLM does not know the architecture of `folder`, or cannot import its code for it."""
    try:
        yield
    except ValueError as error:
        from vllm import __version__

        names = _architectures(folder)
        if any(part in str(error) for part in UNKNOWN_ARCHITECTURE):
            raise WeightsError(
                f"the weights in `{folder}` are of the architecture {names}, which vLLM {__version__} does not "
                "know; name other weights in the stanza, or install a vLLM that knows it"
            ) from None
        if UNLOADED_ARCHITECTURE not in str(error):
            raise
        lacks = "" if importlib.util.find_spec("torchvision") else ": torchvision is missing, as on any CPU"
        raise WeightsError(f"vLLM {__version__} cannot load its code for {names}{lacks}") from error


def _architectures(folder: Path) -> str:
    config = json.loads(file.read_text("utf-8")) if (file := folder / "config.json").is_file() else {}
    return ", ".join(f"`{name}`" for name in config.get("architectures") or [config.get("model_type", "unnamed")])
