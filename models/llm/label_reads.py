"""One read of a language model: how likely each label is as the first token after a prompt. Needs vLLM."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from contract.chat.reads import LabelPrompt
from contract.decisions.engine import Reading

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM


async def read_labels(
    engine: AsyncLLM, prompt: LabelPrompt, request_id: str, *, cache_salt: str | None = None, whole: Any = None
) -> Reading:
    """The reading of `prompt`. `whole` is the same as the engine takes it, where there is more to it than tokens."""
    from vllm.entrypoints.generate.label_reads import next_token_label_reads
    from vllm.inputs import tokens_input
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=1, temperature=0, logprob_token_ids=prompt.label_ids, detokenize=False)
    started = time.perf_counter()
    given = whole or tokens_input(prompt.token_ids, cache_salt=cache_salt)
    (read,) = await next_token_label_reads(engine, [given], [params], request_id)
    return Reading(tuple(read.logprobs), time.perf_counter() - started)
