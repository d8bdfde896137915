"""Probabilities of tokens in a reply: of how many tokens one request may have them, on every wire that offers them.

Each is a few objects in an engine and in the ingress, and up to a hundred bytes in the reply.
"""

from __future__ import annotations

from contract.errors import INVALID_REQUEST

LOGPROB_TOKENS = 65_536
"""Of all choices of a request with `logprobs` together, prompts that are repeated included. Ours."""
LOGPROB_OTHERS = 5
"""Most probable tokens beside each of them. Who wants more has them for fewer tokens. Ours."""


def most_with_logprobs(others: int) -> int:
    """Tokens of all choices of a request together, with so many others beside each."""
    return LOGPROB_TOKENS * (1 + LOGPROB_OTHERS) // (1 + max(others, LOGPROB_OTHERS))


def check_logprobs(tokens: int, others: int, param: str) -> None:
    """Raises INVALID_REQUEST for more `tokens` with so many `others` each than one reply holds."""
    if tokens > (most := most_with_logprobs(others)):
        raise INVALID_REQUEST(
            f"`{param}` of up to {tokens} tokens were requested, with {others} others each; one request may have at "
            "most "
            f"{most} such tokens in all its answers together",
            param=param,
        )
