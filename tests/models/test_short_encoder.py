"""The short layers compute what those of transformers compute, and stand aside where they would not."""

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from models.short_encoder import KINDS, ShortLayers, shorten  # noqa: E402

CLASSES = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
LENGTHS = (20, 7, 1)
HALF = torch.half


def network(name: str, dtype: Any = None, **settings: Any) -> Any:
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=50, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=64, type_vocab_size=2, initializer_range=0.3, pad_token_id=1, **settings,
    )  # fmt: skip
    made = transformers.AutoModel.from_config(config, attn_implementation="sdpa").to(dtype or torch.float32).eval()
    for key, value in made.named_parameters():
        if "bias" in key or "LayerNorm" in key:
            torch.nn.init.normal_(value, mean="LayerNorm.weight" in key, std=0.3)
    return made


def batch() -> dict[str, Any]:
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(4, 50, mask.shape, generator=torch.Generator().manual_seed(1)) * mask + ~mask
    return {"input_ids": ids, "attention_mask": mask.long(), "token_type_ids": (torch.arange(20) > 9).long() * mask}


def read(made: Any, inputs: dict[str, Any]) -> Any:
    with torch.inference_mode():
        hidden = made(**inputs).last_hidden_state
    return hidden[inputs["attention_mask"].bool()] if "attention_mask" in inputs else hidden


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_read_as_transformers_reads_it(kind: str) -> None:
    theirs, ours = network(CLASSES[kind]), network(CLASSES[kind])
    shorten(ours)
    assert isinstance(ours.encoder.forward, ShortLayers)
    for inputs in (batch(), {"input_ids": batch()["input_ids"][:1]}):
        torch.testing.assert_close(read(ours, inputs), read(theirs, inputs), atol=1e-4, rtol=1e-4)


def test_in_bfloat16_it_is_as_near_to_float32_as_transformers_is() -> None:
    exact, theirs, ours = network("Bert"), network("Bert", torch.bfloat16), network("Bert", torch.bfloat16)
    shorten(ours)
    inputs = batch()
    right = read(exact, inputs)
    off = [(read(made, inputs).float() - right).abs().mean() for made in (theirs, ours)]
    assert off[1] < 1.2 * off[0]


def test_a_classifier_is_shortened_below_its_head_and_no_second_copy_is_left() -> None:
    made = network("Bert")
    classifier = transformers.BertForSequenceClassification(made.config)
    shorten(classifier)
    assert isinstance(classifier.bert.encoder.forward, ShortLayers)
    shorten(made)
    assert not [name for name, _ in made.named_parameters() if name.startswith("encoder")]


@pytest.mark.parametrize(
    ("name", "settings"),
    [("Bert", {"is_decoder": True}), ("Bert", {"hidden_act": "relu"}), ("Bert", {"dtype": HALF}), ("Electra", {})],
    ids=["decoder", "relu", "dtype", "architecture"],
)
def test_what_would_compute_something_else_stays_as_it_is(
    name: str, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = network(name, **settings)
    before = read(made, inputs := {"input_ids": batch()["input_ids"]})
    with caplog.at_level(logging.INFO):
        shorten(made)
    assert torch.equal(read(made, inputs), before)
    assert f"{name}Model run as transformers has them" in caplog.text
