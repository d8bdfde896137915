"""The exact mode: a request gets the same probabilities, to the last bit, whatever else the engine reads.

Otherwise they move a little with it: the shape of a batch decides in which order a processor adds, and rounding does
the rest. `options.exact = true` in a stanza requests this mode.

On GPUs vLLM has kernels for it, which it uses throughout the process where VLLM_BATCH_INVARIANT is set. Its CPU build
does not start with that variable: the kernels are in Triton. There, the mode computes each read alone and from its
first token, on one thread; so the questions of a request do not share their state any more, and each costs as much as
the first.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from models.llm.engine import EngineSpec

ON_CPU: dict[str, Any] = {"max_num_seqs": 1, "enable_prefix_caching": False}


def exactly(spec: EngineSpec, *, on_gpu: bool) -> EngineSpec:
    """`spec` in exact mode. Call it before anything imports vLLM: on GPUs it sets the environment."""
    if on_gpu:
        os.environ["VLLM_BATCH_INVARIANT"] = "1"
        return spec
    # With more threads their number follows the load, and the order of sums follows their number.
    return replace(spec, arguments=spec.arguments | ON_CPU, threads=1)
