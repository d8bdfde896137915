"""Tokens of a call, as OpenAI's `usage` counts them."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict


class PromptTokens(TypedDict):
    """Tokens of the prompt that an earlier request had left in the cache."""

    cached_tokens: int


class CompletionTokens(TypedDict):
    """Tokens of the answer that are thoughts."""

    reasoning_tokens: int


class ChatUsage(TypedDict):
    """Tokens of the call. `prompt_tokens_cut` is there where input was cut from the top, and says how much."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokens
    completion_tokens_details: CompletionTokens
    prompt_tokens_cut: NotRequired[int]


def usage_of(
    prompt_tokens: int,
    completion_tokens: int,
    *,
    cached_tokens: int = 0,
    reasoning_tokens: int = 0,
    cut_tokens: int = 0,
) -> ChatUsage:
    """`usage` of a call with these tokens."""
    usage: ChatUsage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
    }
    if cut_tokens:
        usage["prompt_tokens_cut"] = cut_tokens
    return usage


def reasoning_tokens(usage: ChatUsage) -> int:
    """Tokens of the answer that are thoughts."""
    return usage["completion_tokens_details"]["reasoning_tokens"]
