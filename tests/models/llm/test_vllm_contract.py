"""What `models.llm.vllm_internals` takes from vLLM and torch beyond their public interfaces.

An upgrade that moves one of these names must fail here, by its name. No model is loaded.
"""

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from models.llm.engine import prepare_environment

ROOT = Path(__file__).parents[3]
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
    "vllm.v1.structured_output.request:StructuredOutputRequest._grammar": None,
    "torch:_C.set_num_threads": None,
    "torch:ops.mkldnn._reorder_linear_weight": None,
    "torch:ops.mkldnn._linear_pointwise": None,
    "torch:_make_per_channel_quantized_tensor": None,
    "vllm.model_executor.kernels.linear.scaled_mm.cpu:CPUInt8ScaledMMLinearKernel._apply_weights_onednn": [
        "self", "layer", "x", "bias",
    ],
    "vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel:Int8ScaledMMLinearKernel._get_layer_params": [
        "self", "layer",
    ],
}  # fmt: skip
"""Each private name that is used, and its first parameters as they are passed or overridden; None: C++, or a field."""

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
    "vllm.model_executor.kernels.linear.scaled_mm.cpu:check_cpu_sgl_kernel": ["n", "k", "dtype"],
    "vllm.model_executor.layers.activation:SiluAndMul.forward_cpu": ["self", "x"],
    "vllm.model_executor.layers.activation:SiluAndMul.forward_native": ["x"],
    "vllm.model_executor.layers.linear:LinearMethodBase.apply": ["self", "layer", "x", "bias"],
    "vllm.model_executor.models.llama:LlamaModel.forward": [
        "self", "input_ids", "positions", "intermediate_tensors", "inputs_embeds", "extra_layer_kwargs",
    ],
    "vllm.model_executor.models.llama:LlamaModel.embed_input_ids": ["self", "input_ids"],
    "vllm.model_executor.models.qwen2:Qwen2Model.forward": [
        "self", "input_ids", "positions", "intermediate_tensors", "inputs_embeds",
    ],
    "vllm.model_executor.models.qwen2:Qwen2Model.embed_input_ids": ["self", "input_ids"],
    "vllm.forward_context:get_forward_context": [],
    "vllm.model_executor.layers.vocab_parallel_embedding:UnquantizedEmbeddingMethod.process_weights_after_loading": [
        "self", "layer",
    ],
    "vllm.model_executor.layers.utils:dispatch_cpu_unquantized_gemm": ["layer", "remove_weight"],
    "vllm.v1.engine.core:EngineCore.reset_prefix_cache": ["self"],
}  # fmt: skip
"""Names without an underscore that vLLM promises to nobody, and that are called, replaced or overridden."""


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    for library in ("torch", "vllm"):
        pytest.importorskip(library)
    prepare_environment(in_process=True, eager=True, threads=None)


def object_at(name: str) -> Any:
    module, _, path = name.partition(":")
    target: Any = importlib.import_module(module)
    for part in path.split(".") if path else []:
        target = inspect.getattr_static(target, part) if inspect.isclass(target) else getattr(target, part)
    return target


def test_vllm_is_the_version_that_its_internals_were_read_in() -> None:
    import vllm

    assert vllm.__version__.startswith("0.32.")


def test_names_are_where_they_were_and_take_what_they_took() -> None:
    moved = []
    for name, expected in (PRIVATE | INNER).items():
        try:
            target = object_at(name)
            taken = expected and list(inspect.signature(target).parameters)[: len(expected)]
        except (AttributeError, ImportError, TypeError) as missing:
            taken = repr(missing)
        if taken != expected:
            moved.append((name, taken))
    assert moved == []


def test_every_private_name_that_the_room_uses_is_named_here() -> None:
    used = {name for file in ROOM.glob("*.py") for name in private_names(ast.parse(file.read_text("utf-8")))}
    assert used == {name.rpartition(".")[2].rpartition(":")[2] for name in PRIVATE} - {"set_num_threads"} | {"_C"}


def test_no_file_outside_the_room_uses_one() -> None:
    names = {re.split(r"[.:]", name)[-1] for name in PRIVATE} - {"set_num_threads"}
    folders = [ROOT / "models" / folder for folder in ("llm", "chat", "decisions", "transcription")]
    files = {file for folder in folders for file in folder.rglob("*.py")} - set(ROOM.rglob("*.py"))
    assert [file for file in files if names & set(re.findall(r"\w+", file.read_text("utf-8")))] == []


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


def test_the_constructor_that_ours_replaces_sets_what_it_set() -> None:
    """`ThreadedLLM` sets these by itself, but for those of a profiler, of elastic parallelism and of other clients.

    `stalls` is ours, by which adapters see whether the engine goes on.
    """
    from vllm.v1.engine.async_llm import AsyncLLM

    from models.llm.vllm_internals.core import ThreadedLLM

    def attributes(constructor: Any) -> set[str]:
        return set(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(constructor)))

    unused = {
        "_elastic_ep_lock", "_frontend_profiler_injected", "_profile_lock", "_profile_session_guard_enabled",
        "_profile_session_active", "_frontend_profiler_worker_name",
    }  # fmt: skip
    assert attributes(AsyncLLM.__init__) - unused == attributes(ThreadedLLM.__init__) - {"_supported_tasks", "stalls"}
    assert 'hasattr(self, "_supported_tasks")' in inspect.getsource(AsyncLLM.get_supported_tasks)


SOURCES = {
    # A core in processes owes answers under this name.
    "vllm.v1.engine.core_client:MPClient.__init__": [r"self\.utility_results: dict\["],
    # What is replaced while vLLM loads is looked up by these names.
    "vllm.renderers.hf:HfRenderer": [r"maybe_make_thread_pool\("],
    "vllm.triton_utils.dispatcher:_rebind_kernels": [r"sys\.modules\.values\(\)"],
    "vllm.triton_utils.dispatcher": [r"def _rebind_kernels\((.|\n)*_rebind_kernels\("],
    # A head is applied through the attribute that is replaced.
    "vllm.model_executor.layers.logits_processor:LogitsProcessor": [
        r"self\.head_dtype = ",
        r"self\._apply_head\(lm_head, hidden_states, embedding_bias\)",
    ],
    # Int8 goes vLLM's quick way or oneDNN's only by this answer, and what is oneDNN's is in these two functions.
    "vllm.model_executor.kernels.linear.scaled_mm.cpu:CPUInt8ScaledMMLinearKernel.process_weights_after_loading": [
        r"and self\.config\.input_symmetric\s+and check_cpu_sgl_kernel\(N, K, dtype\)",
        r"self\.linear_method = self\._apply_weights_onednn\s+self\.process_weights_for_onednn\(layer\)",
    ],
    # Norms ask for an implementation by its priority.
    "vllm.model_executor.layers.layernorm:RMSNorm.forward_native": [
        r"ir\.ops\.rms_norm\(",
        r"ir\.ops\.fused_add_rms_norm\.maybe_inplace\(",
    ],
    "vllm.v1.worker.worker_base": [r"kernel_config\.ir_op_priority\.set_default\(\)"],
    # vLLM still replaces what sets the number of threads. Once it does not, `torch.set_num_threads` will do.
    "vllm.v1.worker.cpu_worker": [r"torch\.set_num_threads = "],
}
"""Passages of vLLM's source, as regular expressions, that no other test depends on."""


def test_the_source_says_what_we_rely_on() -> None:
    sources = {name: inspect.getsource(object_at(name)) for name in SOURCES}
    assert [one for name, said in SOURCES.items() for one in said if not re.search(one, sources[name])] == []


def test_parts_of_vllm_are_of_the_kind_that_we_take_them_for() -> None:
    assert callable(object_at("vllm.v1.core.sched.interface:SchedulerInterface.has_requests"))
    assert inspect.iscoroutinefunction(object_at("vllm.v1.engine.core_client:AsyncMPClient.get_output_async"))
    assert isinstance(object_at("vllm.renderers.base:BaseRenderer.mm_processor_cache"), property)
    assert object_at("vllm.triton_utils.dispatcher:sys") is sys
