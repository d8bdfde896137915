"""Tokens of a call, as OpenAI's `usage` counts them."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict


class PromptTokens(TypedDict):
    """Tokens of the prompt that an earlier request left in the cache."""

    cached_tokens: int


class CompletionTokens(TypedDict):
    """Reasoning tokens of the answer."""

    reasoning_tokens: int


class ChatUsage(TypedDict):
    """Tokens of the call. `prompt_tokens_cut` counts tokens that were cut from the top of the input, if any were."""

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
    """Returns the `usage` of a call with these tokens."""
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
    """Returns the reasoning tokens of the answer."""
    return usage["completion_tokens_details"]["reasoning_tokens"]
