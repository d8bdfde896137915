"""What twins of language models share: a vocabulary of letters, and weights on disk."""

import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

WHOLE = ("Yes", "No", "thought", "call", "the", "user", "model", "assistant", "system")
"""Words that are one token: answers that are read at their first token, and what parsers look for."""

SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "initializer_range": 0.2}
"""Of every tiny language model. Weights far from zero, so that every token matters for what comes out."""


def vocabulary(first: Sequence[str], further: Iterable[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Ids of `first`, of `further`, of the printable letters of ASCII and of WHOLE; and the merges that make those."""
    letters = [char for char in string.printable if char.isprintable() and char != " "]
    merges = {(word[:end], word[end]): None for word in WHOLE for end in range(1, len(word))}
    texts = dict.fromkeys([*first, *further, *letters, *("".join(pair) for pair in merges)])
    return {text: number for number, text in enumerate(texts)}, list(merges)


def save(network: Any, folder: Path) -> None:
    """Writes `network` in bfloat16, with weights far from zero wherever they would start as zeros."""
    import torch

    for weight in network.parameters():
        if weight.ndim > 1 and not weight.any():
            torch.nn.init.normal_(weight, std=0.2)
    network.to(torch.bfloat16).save_pretrained(folder)
