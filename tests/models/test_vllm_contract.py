"""What `models.llm.vllm_internals` takes from vLLM and torch beyond their public interfaces.

An upgrade that moves one of these names must fail here, by its name. No model is loaded.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from models.llm.engine import prepare_environment

for library in ("torch", "vllm"):
    pytest.importorskip(library)
prepare_environment(in_process=True, eager=True, threads=None)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

ROOT = Path(__file__).parents[2]
ROOM = ROOT / "models/llm/vllm_internals"

PRIVATE = {
    "vllm.triton_utils.dispatcher:_rebind_kernels": ["overrides"],
    "vllm.model_executor.layers.logits_processor:LogitsProcessor._apply_head": [
        "self", "lm_head", "hidden_states", "embedding_bias",
    ],
    "vllm.renderers:TokenizeParams._token_truncation": ["self", "tokenizer", "tokens"],
    "vllm.renderers:TokenizeParams._truncation_slice": ["self", "tokenizer", "length"],
    "vllm.entrypoints.openai.chat_completion.serving:OpenAIServingChat._make_parser": [
        "self", "request", "tokenizer", "chat_template_kwargs",
    ],
    "vllm.entrypoints.openai.chat_completion.serving:OpenAIServingChat._raise_if_error": [
        "self", "finish_reason", "request_id",
    ],
    "vllm.entrypoints.openai.chat_completion.serving:OpenAIServingChat._create_chat_logprobs": [
        "self", "token_ids", "top_logprobs", "tokenizer", "num_output_top_logprobs",
    ],
    "torch:_C.set_num_threads": None,
}  # fmt: skip
"""Each private name that is used, and its first parameters as they are passed or overridden; None for C++."""

INNER = {
    "vllm.renderers.hf:maybe_make_thread_pool": ["tokenizer", "copies"],
    "vllm.renderers:TokenizeParams.apply_pre_tokenization": ["self", "tokenizer", "prompt"],
    "vllm.renderers:TokenizeParams.apply_post_tokenization": ["self", "tokenizer", "prompt"],
    "vllm.v1.engine.core_client:InprocClient.get_output": ["self"],
    "vllm.v1.engine.core_client:InprocClient.add_request": ["self", "request"],
    "vllm.v1.engine.core_client:InprocClient.abort_requests": ["self", "request_ids"],
    "vllm.v1.engine.core_client:InprocClient.get_supported_tasks": ["self"],
    "vllm.v1.engine.core_client:InprocClient.collective_rpc": ["self", "method", "timeout", "args", "kwargs"],
    "vllm.v1.engine.core_client:InprocClient.shutdown": ["self", "timeout"],
    "vllm.v1.engine.core_client:AsyncMPClient.get_output_async": ["self"],
    "vllm.v1.engine.async_llm:AsyncLLM.check_health": ["self"],
    "vllm.entrypoints.openai.chat_completion.serving:OpenAIServingChat.render_chat_request": ["self", "request"],
    "vllm.entrypoints.openai.chat_completion.serving:OpenAIServingChat.chat_completion_full_generator": [
        "self", "request", "result_generator",
    ],
    "vllm.entrypoints.openai.chat_completion.serving:OpenAIServingChat.chat_completion_stream_generator": [
        "self", "request", "result_generator", "request_id", "model_name", "conversation", "tokenizer",
        "request_metadata", "chat_template_kwargs", "mm_token_counts",
    ],
    "vllm.renderers.online_renderer:OnlineRenderer.preprocess_chat": ["self", "request", "messages"],
    "vllm.entrypoints.generate.label_reads:next_token_label_reads": ["engine_client", "engine_inputs"],
    "vllm.entrypoints.generate.structured_decisions.strategies:cap_pixels": ["image", "max_pixels"],
    "vllm.v1.structured_output.request:get_structured_output_key": ["params"],
}  # fmt: skip
"""Names without an underscore that vLLM promises to nobody, and that are called, replaced or overridden."""


def object_at(name: str) -> Any:
    module, _, path = name.partition(":")
    target = importlib.import_module(module)
    for part in path.split("."):
        target = inspect.getattr_static(target, part) if inspect.isclass(target) else getattr(target, part)
    return target


def test_vllm_is_the_version_that_its_internals_were_read_in() -> None:
    import vllm

    assert vllm.__version__.startswith("0.32.")


@pytest.mark.parametrize("name", [*PRIVATE, *INNER])
def test_a_name_is_where_it_was_and_takes_what_it_took(name: str) -> None:
    target, expected = object_at(name), (PRIVATE | INNER)[name]
    assert callable(target)
    if expected is not None:
        assert list(inspect.signature(target).parameters)[: len(expected)] == expected


def test_every_private_name_that_the_room_uses_is_named_here() -> None:
    used = {name for file in ROOM.glob("*.py") for name in private_names(ast.parse(file.read_text("utf-8")))}
    assert used == {name.rpartition(".")[2].rpartition(":")[2] for name in PRIVATE} - {"set_num_threads"} | {"_C"}


def private_names(tree: ast.Module) -> set[str]:
    """Attributes that begin with one underscore, but for those that our own classes set or define for themselves."""
    nodes = list(ast.walk(tree))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr)]
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    ours = {node.attr for node in attributes if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"}
    methods = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    theirs = {name.rpartition(".")[2] for name in PRIVATE}
    used = {node.attr for node in attributes} | {text for text in strings if re.fullmatch(r"_[a-z]\w+", text)}
    return (used - ours - methods) | (methods & theirs)


@pytest.mark.parametrize("folder", ["models/llm", "models/chat", "models/decisions", "models/transcription"])
def test_no_file_outside_the_room_uses_one(folder: str) -> None:
    names = {name.rpartition(".")[2].rpartition(":")[2] for name in PRIVATE} - {"set_num_threads"}
    for file in (ROOT / folder).rglob("*.py"):
        if ROOM not in file.parents:
            assert names.isdisjoint(re.findall(r"\w+", file.read_text("utf-8"))), file


def test_the_constructor_that_ours_replaces_sets_what_it_set() -> None:
    """`ThreadedLLM` sets these by itself, but for those of a profiler, of elastic parallelism and of other clients."""
    from vllm.v1.engine.async_llm import AsyncLLM

    from models.llm.vllm_internals.core import ThreadedLLM

    def attributes(constructor: Any) -> set[str]:
        return set(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(constructor)))

    unused = {
        "_elastic_ep_lock", "_frontend_profiler_injected", "_profile_lock", "_profile_session_guard_enabled",
        "_profile_session_active", "_frontend_profiler_worker_name",
    }  # fmt: skip
    assert attributes(AsyncLLM.__init__) - unused == attributes(ThreadedLLM.__init__) - {"_supported_tasks"}
    assert 'hasattr(self, "_supported_tasks")' in inspect.getsource(AsyncLLM.get_supported_tasks)


def test_an_engine_core_has_a_scheduler_and_compiles_grammars_in_an_executor() -> None:
    from vllm.v1.core.sched.interface import SchedulerInterface
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.engine.core_client import InprocClient
    from vllm.v1.structured_output import StructuredOutputManager

    assert "self.engine_core = EngineCore(" in inspect.getsource(InprocClient.__init__)
    core = inspect.getsource(EngineCore.__init__)
    assert re.search(r"self\.scheduler\b.* = ", core)
    assert "self.structured_output_manager = StructuredOutputManager(" in core
    assert callable(SchedulerInterface.has_requests)
    manager = inspect.getsource(StructuredOutputManager)
    assert "self.executor = ThreadPoolExecutor(" in manager
    assert "self.executor.submit(self._create_grammar" in manager


def test_a_core_in_processes_owes_answers_under_this_name() -> None:
    from vllm.v1.engine import core_client

    assert "self.utility_results: dict[" in inspect.getsource(core_client.MPClient.__init__)
    assert inspect.iscoroutinefunction(core_client.AsyncMPClient.get_output_async)


def test_what_is_replaced_while_it_loads_is_looked_up_by_these_names() -> None:
    from vllm.renderers import hf
    from vllm.triton_utils import dispatcher

    assert "maybe_make_thread_pool(" in inspect.getsource(hf.HfRenderer)
    assert dispatcher.sys is sys
    assert "sys.modules.values()" in inspect.getsource(dispatcher._rebind_kernels)
    assert "_rebind_kernels(" in inspect.getsource(dispatcher).partition("def _rebind_kernels(")[2]


def test_a_head_is_applied_through_the_attribute_that_is_replaced() -> None:
    from vllm.model_executor.layers.logits_processor import LogitsProcessor

    source = inspect.getsource(LogitsProcessor)
    assert "self.head_dtype = " in source
    assert "self._apply_head(lm_head, hidden_states, embedding_bias)" in source


def test_a_renderer_shows_its_cache_of_images() -> None:
    from vllm.renderers.base import BaseRenderer

    assert isinstance(inspect.getattr_static(BaseRenderer, "mm_processor_cache"), property)


def test_vllm_still_replaces_what_sets_the_number_of_threads() -> None:
    """Once it does not, `torch.set_num_threads` will do."""
    from vllm.v1.worker import cpu_worker

    assert "torch.set_num_threads = " in inspect.getsource(cpu_worker)


def test_nothing_in_the_product_is_mocked() -> None:
    rooms = ("audio", "autoscaling", "configs", "contract", "deployments", "models", "state")
    files = [file for room in rooms for file in (ROOT / room).rglob("*.py")]
    assert files
    assert not [file for file in files if "unittest" in file.read_text("utf-8")]
