"""Common parts of adapters of one engine: spec, imports, health and end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.catalog import Model
from models import NOTHING, Imports
from models.llm.arguments import EngineOptions
from models.llm.engine import QUIET, EngineSpec
from models.options import read

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

IMPORTS = Imports(
    (
        "torch",
        "transformers",
        "vllm.engine.arg_utils",
        "vllm.v1.engine.async_llm",
        "vllm.v1.engine.core",
        "vllm.v1.executor.uniproc_executor",
        "vllm.v1.worker.cpu_worker",
        "vllm.v1.attention.backends.cpu_attn",
        "vllm.utils.cpu_triton_utils",
        "vllm.v1.core.sched.scheduler",
        "vllm.model_executor.model_loader",
        "vllm.model_executor.layers.quantization",
        "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors",
        "vllm.model_executor.layers.quantization.compressed_tensors.utils",
        "vllm.model_executor.layers.quantization.online.base",
        "vllm.model_executor.layers.fused_moe.eep_reconfigure",
        "vllm.distributed.elastic_ep.elastic_execute",
        "vllm.plugins.lora_resolvers.filesystem_resolver",
        "vllm.plugins.lora_resolvers.hf_hub_resolver",
        "compressed_tensors",
        "compressed_tensors.quantization",
        "compressed_tensors.compressors",
        "compressed_tensors.transform",
        "vllm.renderers.hf",
    ),
    {"VLLM_LOGGING_LEVEL": QUIET["VLLM_LOGGING_LEVEL"], "TORCHDYNAMO_DISABLE": "1"},
)
"""Modules that an engine imports which runs eagerly in this process."""


class EngineAdapter:
    """An adapter that runs one `engine` of vLLM; `libraries` is what it imports beside that."""

    options_type: type[EngineOptions] = EngineOptions
    libraries: Imports = NOTHING
    engine: AsyncLLM

    @classmethod
    def imports(cls, model: Model) -> Imports | None:
        """None for an engine that compiles, or has a core in processes of its own."""
        options = read(model, cls.options_type)
        is_eager = bool(options.engine.get("enforce_eager"))
        return IMPORTS + cls.libraries if is_eager and not options.engine_process else None

    @property
    def active_s(self) -> float:
        """`time.monotonic()` of the last step, or output of the engine's processes; now while one is under way."""
        return float(self.engine.stalls.active_s)

    async def check_health(self) -> None:
        """Raises if the engine has died, or has work and makes no progress."""
        await self.engine.check_health()

    def close(self) -> None:
        """Ends the engine; requests in flight fail with 502."""
        self.engine.shutdown()
        self.engine.output_processor.propagate_error(RuntimeError("the engine was closed"))  # vLLM leaves them waiting

    @property
    def unfinished(self) -> int:
        """Requests in the engine, running or waiting."""
        return int(self.engine.get_num_unfinished_requests())


def spec_of(model: Model, path: Path, window: int, options: EngineOptions, arguments: dict[str, Any]) -> EngineSpec:
    """The spec of the engine of `model`; its stanza says how many threads, its options where the core runs."""
    threads, rest_s = (model.serving.threads, model.serving.idle_s / 2) if model.serving else (None, None)
    in_process = not options.engine_process
    return EngineSpec(path, window, arguments, threads, in_process, options.quick_steps, options.int8, rest_s)
