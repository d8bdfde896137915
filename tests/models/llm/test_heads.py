"""A head in float32 computes what it says, whichever layout the processor has."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

WIDTH, VOCABULARY = 96, 1_000


@pytest.fixture
def heads() -> Any:
    pytest.importorskip("vllm")
    return importlib.import_module("models.llm.vllm_internals.heads")


@pytest.fixture(params=[True, False], ids=["laid out", "as it is"])
def layouts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, heads: Any) -> None:
    if not request.param:
        monkeypatch.setattr(heads, "has_layouts", lambda: False)


def refuse(*_: Any) -> Any:
    raise AssertionError("the head went vLLM's own way")


def weight_of(dtype: Any) -> Any:
    return torch.randn(VOCABULARY, WIDTH, generator=torch.Generator().manual_seed(3)).to(dtype)


@pytest.mark.parametrize("rows", [1, 4, 16])
@pytest.mark.usefixtures("layouts")
def test_logits_are_exact_where_bfloat16_would_round_them(rows: int, heads: Any) -> None:
    weight, hidden = weight_of(torch.bfloat16), torch.randn(rows, WIDTH).to(torch.bfloat16)
    head, lm_head = heads.CachedHead(refuse), SimpleNamespace(weight=weight)
    exact = hidden.double() @ weight.double().T
    for _ in range(2):  # the first call lays the weight out
        logits = head(lm_head, hidden, None)
        assert logits.dtype == torch.float32
        assert (logits - exact).abs().max() < 1e-4
    assert ((hidden @ weight.T) - exact).abs().max() > 1e-2


def test_other_weights_are_laid_out_anew(heads: Any) -> None:
    head = heads.CachedHead(refuse)
    hidden = torch.ones(1, WIDTH, dtype=torch.bfloat16)
    first = head(SimpleNamespace(weight=weight_of(torch.bfloat16)), hidden, None)
    second = head(SimpleNamespace(weight=-weight_of(torch.bfloat16)), hidden, None)
    assert torch.equal(first, -second)


@pytest.mark.parametrize(
    ("weight", "bias"),
    [(None, None), (torch.ones(2, 2), None), (torch.ones(2, 2, dtype=torch.bfloat16), torch.ones(2))],
)
def test_other_heads_go_vllms_own_way(weight: Any, bias: Any, heads: Any) -> None:
    head = heads.CachedHead(lambda *_: "vLLM's")
    assert head(SimpleNamespace(weight=weight), torch.ones(1, 2), bias) == "vLLM's"
