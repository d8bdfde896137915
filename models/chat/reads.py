"""Prompts of scorers, read by the engine of a chat model beside its chats: token ids in, log-probabilities out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.catalog import ChatModel
from contract.chat.reads import MOST_PROMPTS, LabelPrompt, ReadJob, ReadReply
from contract.errors import INVALID_REQUEST, UPSTREAM_ERROR
from contract.limits import DECISION_OPTIONS
from models.llm.label_reads import read_labels
from models.weights import store as weights

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

log = logging.getLogger(f"parlance.{__name__}")


class Reads:
    """Reads of one engine.

    Args:
        path: folder of its weights.
        arguments: what the engine was started with.
        vocabulary: ids are below it.
    """

    def __init__(
        self, engine: AsyncLLM, model: ChatModel, path: Path, arguments: dict[str, Any], vocabulary: int
    ) -> None:
        self._engine, self._model, self._path = engine, model, path
        self._arguments, self._vocabulary = arguments, vocabulary
        self._runtime: str | None = None

    async def read(self, job: ReadJob) -> ReadReply:
        """A reading for each prompt. Raises INVALID_REQUEST, UPSTREAM_ERROR."""
        check(job, self._vocabulary, self._model.context_window)
        if self._runtime is None:
            self._runtime = await asyncio.to_thread(self._fingerprint)
        # Scorers come and go, and each counts from one: names of theirs would meet here.
        name = f"read-{secrets.token_hex(8)}"
        reads = (
            read_labels(self._engine, prompt, f"{name}-{index}", cache_salt=job.owner or None)
            for index, prompt in enumerate(job.prompts)
        )
        try:
            found = await asyncio.gather(*reads)
        except Exception as failure:
            # vLLM's texts may quote the prompt, which must not get into a log.
            log.error("a read of %s failed: %s", self._model.id, type(failure).__name__)
            raise UPSTREAM_ERROR() from None
        return ReadReply(tuple(found), self._runtime, self._engine.vllm_config.cache_config.block_size)

    def _fingerprint(self) -> str:
        """Of all that the probabilities depend on."""
        import vllm

        config = self._engine.model_config
        parts = (
            weights.hashes_of(self._model, self._path),
            self._arguments,
            self._model.context_window,
            str(config.dtype),
            str(config.head_dtype),
            vllm.__version__,
            self._engine.vllm_config.cache_config.block_size,
        )
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def check(job: ReadJob, vocabulary: int, window: int) -> None:
    """Raises INVALID_REQUEST for what no scorer sends: whoever reaches the cluster may call a replica."""
    if len(job.prompts) > MOST_PROMPTS:
        raise INVALID_REQUEST(f"{len(job.prompts)} prompts were sent; one job has at most {MOST_PROMPTS}")
    for prompt in job.prompts:
        _check_prompt(prompt, vocabulary, window)


def _check_prompt(prompt: LabelPrompt, vocabulary: int, window: int) -> None:
    if not 0 < len(prompt.token_ids) < window:
        raise INVALID_REQUEST(f"a prompt has {len(prompt.token_ids)} tokens; it may have 1 to {window - 1}")
    fewest, most = DECISION_OPTIONS
    if not fewest <= len(prompt.label_ids) <= most:
        raise INVALID_REQUEST(f"a prompt has {len(prompt.label_ids)} labels; it may have {fewest} to {most}")
    ids = [*prompt.token_ids, *prompt.label_ids]
    if set(map(type, ids)) != {int} or not 0 <= min(ids) <= max(ids) < vocabulary:
        raise INVALID_REQUEST(f"a token id is not in the vocabulary, whose ids are 0 to {vocabulary - 1}")
