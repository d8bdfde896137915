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
    "torch:_C.set_num_threads": None,
    "torch:ops.mkldnn._reorder_linear_weight": None,
    "torch:ops.mkldnn._linear_pointwise": None,
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
    """A module, or what stands at `module:path`."""
    module, _, path = name.partition(":")
    target: Any = importlib.import_module(module)
    for part in path.split(".") if path else []:
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
    # A core has a scheduler, and compiles grammars in an executor.
    "vllm.v1.engine.core_client:InprocClient.__init__": [r"self\.engine_core = EngineCore\("],
    "vllm.v1.engine.core:EngineCore.__init__": [
        r"self\.scheduler\b.* = ",
        r"self\.structured_output_manager = StructuredOutputManager\(",
    ],
    "vllm.v1.structured_output:StructuredOutputManager": [
        r"self\.executor = ThreadPoolExecutor\(",
        r"self\.executor\.submit\(self\._create_grammar",
    ],
    # A core in processes owes answers under this name.
    "vllm.v1.engine.core_client:MPClient.__init__": [r"self\.utility_results: dict\["],
    # What is replaced while vLLM loads is looked up by these names.
    "vllm.renderers.hf:HfRenderer": [r"maybe_make_thread_pool\("],
    "vllm.triton_utils.dispatcher:_rebind_kernels": [r"sys\.modules\.values\(\)"],
    "vllm.triton_utils.dispatcher": [r"def _rebind_kernels\((.|\n)*_rebind_kernels\("],
    # An embedding is laid out for products in this way and no other, and none is needed to look rows up.
    "vllm.model_executor.layers.vocab_parallel_embedding:UnquantizedEmbeddingMethod.process_weights_after_loading": [
        r"is_cpu\(\):\s+from .* import dispatch_cpu_unquantized_gemm\s+dispatch_.*remove_weight=False\)\s*$",
    ],
    "vllm.model_executor.layers.vocab_parallel_embedding:UnquantizedEmbeddingMethod.embedding": [
        r"F\.embedding\(input_, layer\.weight\)",
    ],
    "vllm.model_executor.layers.utils:cpu_unquantized_gemm": [r"return layer\.cpu_linear\(x, weight, bias\)"],
    # The cache is zeros of one dimension.
    "vllm.v1.worker.utils:allocate_kv_cache": [r"torch\.zeros\(.*dtype=torch\.int8"],
    # A head is applied through the attribute that is replaced.
    "vllm.model_executor.layers.logits_processor:LogitsProcessor": [
        r"self\.head_dtype = ",
        r"self\._apply_head\(lm_head, hidden_states, embedding_bias\)",
    ],
    # Where AMX is missing, int8 goes another way only by this answer; and the other way serves weights of this form.
    "vllm.model_executor.kernels.linear.scaled_mm.cpu:CPUInt8ScaledMMLinearKernel.process_weights_after_loading": [
        r"and self\.config\.input_symmetric\s+and check_cpu_sgl_kernel\(N, K, dtype\)",
    ],
    # Weights in int8 are there only for the kernel that the short forward calls, packed, and with these beside them.
    "vllm.model_executor.kernels.linear.scaled_mm.cpu:CPUInt8ScaledMMLinearKernel.process_weights_for_onednn": [
        r"setattr\(layer, w_q_name, None\)",
    ],
    "vllm.model_executor.kernels.linear.scaled_mm.cpu:CPUInt8ScaledMMLinearKernel.process_weights_for_sgl": [
        r'"bias_fp32"',
    ],
    "vllm.model_executor.layers.quantization.compressed_tensors.schemes:CompressedTensorsW8A8Int8.create_weights": [
        r'register_parameter\("weight"',
        r'register_parameter\("weight_scale"',
    ],
    # A part of a model takes its method of this processor when it is made.
    "vllm.model_executor.custom_op:CustomOp.dispatch_forward": [r"return self\.forward_cpu"],
    # Norms ask for an implementation by its priority.
    "vllm.model_executor.layers.layernorm:RMSNorm.forward_native": [
        r"ir\.ops\.rms_norm\(",
        r"ir\.ops\.fused_add_rms_norm\.maybe_inplace\(",
    ],
    "vllm.v1.worker.worker_base": [r"kernel_config\.ir_op_priority\.set_default\(\)"],
    # What the short forward does in one loop, as vLLM does it.
    **{
        f"vllm.model_executor.models.{model}DecoderLayer.forward": [
            r"self\.input_layernorm\(hidden_states, residual\)",
            r"self\.post_attention_layernorm\(hidden_states, residual\)\s+hidden_states = self\.mlp\(",
        ]
        for model in ("llama:Llama", "qwen2:Qwen2")
    },
    **{
        f"vllm.model_executor.models.{model}Attention.forward": [
            r"qkv\.split\(\[self\.q_size, self\.kv_size, self\.kv_size\]",
            r"self\.rotary_emb\(positions, q, k\)\s+attn_output = self\.attn\(q, k, v\)\s+output, _ = self\.o_proj\(",
        ]
        for model in ("llama:Llama", "qwen2:Qwen2")
    },
    "vllm.model_executor.models.llama:LlamaMLP.forward": [
        r"gate_up_proj\(x\)\s+x = .*act_fn, x.*\s+x, _ = self\.down_proj\("
    ],
    "vllm.model_executor.models.qwen2:Qwen2MLP.forward": [
        r"gate_up_proj\(x\)\s+x = .*act_fn\(.*\s+x, _ = self\.down_proj\("
    ],
    "vllm.model_executor.layers.rotary_embedding.base:RotaryEmbedding.forward_cpu": [r"is_neox_style"],
    # The cache lies block by block, keys before values; its metadata is of these names.
    "vllm.v1.attention.backends.cpu_attn:CPUAttentionBackendImpl.forward": [
        r"kv_cache\.view\(\(num_blocks, num_kv_heads, block_size \* 2, -1\)\)\s+key_cache, .* = .*chunk\(2, dim=2\)",
        *(
            f"attn_metadata\\.{name}"
            for name in (
                "query_start_loc",
                "seq_lens",
                "causal",
                "block_table",
                "scheduler_metadata",
                "dynamic_causal",
            )
        ),
        *(f"self\\.{name}" for name in ("scale", "alibi_slopes", "sliding_window", "logits_soft_cap", "sinks")),
        r"layer\.isa",
    ],
    "vllm.v1.attention.backends.cpu_attn:CPUAttentionBackendImpl.__init__": [r"self\.is_fp8_kv_cache = "],
    "vllm.model_executor.layers.attention.attention:Attention.__init__": [
        r"self\.query_quant = ",
        r"self\.kv_sharing_target_layer_name = ",
        r"self\.sliding_window = ",
        r"self\.attn_type = ",
    ],
    "vllm.model_executor.layers.attention.attention:get_attention_context": [
        r"attn_metadata_raw\[layer_name\]",
        r"slot_mapping\.get\(layer_name\)",
    ],
    "vllm.model_executor.models.interfaces:EagleModelMixin": [r"aux_hidden_state_layers: tuple"],
    # vLLM still replaces what sets the number of threads. Once it does not, `torch.set_num_threads` will do.
    "vllm.v1.worker.cpu_worker": [r"torch\.set_num_threads = "],
}
"""What stands in the source of vLLM, as regular expressions."""


@pytest.mark.parametrize("name", SOURCES)
def test_the_source_says_what_we_rely_on(name: str) -> None:
    source = inspect.getsource(object_at(name))
    for pattern in SOURCES[name]:
        assert re.search(pattern, source), pattern


SCHEMAS = {
    "rms_norm": "(Tensor($0! -> ) out, Tensor input, Tensor? weight, float epsilon)",
    "fused_add_rms_norm": "(Tensor($0! -> ) input, Tensor($1! -> ) residual, Tensor? weight, float epsilon)",
    "silu_and_mul": "(Tensor($0! -> ) out, Tensor input)",
    "int8_scaled_mm_with_quant": "(Tensor mat1, Tensor mat2, Tensor scales2, Tensor? bias, ScalarType out_dtype, "
    "bool is_vnni)",
    "rotary_embedding": "(Tensor positions, Tensor($0! -> ) query, Tensor($1! -> )? key, int head_size, "
    "Tensor cos_sin_cache, bool is_neox, ",
    "cpu_attn_reshape_and_cache": "(Tensor key, Tensor value, Tensor(a2!) key_cache, Tensor(a3!) value_cache, "
    "Tensor slot_mapping, str isa, ",
    "cpu_attention_with_kv_cache": "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor(a3!) output, "
    "Tensor query_start_loc, Tensor seq_lens, float scale, bool causal, Tensor? alibi_slopes, "
    "SymInt sliding_window_size, Tensor block_table, float softcap, Tensor scheduler_metadata, Tensor? s_aux, "
    "Tensor? dynamic_causal, ",
}
"""What operators in C++ take, in order."""


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_operator_in_cpp_takes_what_it_took(name: str) -> None:
    import torch
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip("a vLLM for GPUs has others")
    current_platform.import_kernels()
    if name == "int8_scaled_mm_with_quant" and not hasattr(torch.ops._C, name):
        pytest.skip("this processor has no int8 in AVX-512")
    assert f"::{name}{SCHEMAS[name]}" in str(getattr(torch.ops._C, name).default._schema)


def test_parts_of_vllm_are_of_the_kind_that_we_take_them_for() -> None:
    assert callable(object_at("vllm.v1.core.sched.interface:SchedulerInterface.has_requests"))
    assert inspect.iscoroutinefunction(object_at("vllm.v1.engine.core_client:AsyncMPClient.get_output_async"))
    assert isinstance(object_at("vllm.renderers.base:BaseRenderer.mm_processor_cache"), property)
    assert object_at("vllm.triton_utils.dispatcher:sys") is sys


def test_nothing_in_the_product_is_mocked() -> None:
    rooms = ("audio", "autoscaling", "configs", "contract", "deployments", "models", "state")
    files = [file for room in rooms for file in (ROOT / room).rglob("*.py")]
    assert files
    assert not [file for file in files if "unittest" in file.read_text("utf-8")]
