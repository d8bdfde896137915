"""Weights in 8 bits, turned first so that rounding takes little away. They lie in `int8` below the others.

rotation.py      turns a decoder without changing what it computes
rounding.py      rounds its weights, and says which had better stay
calibration.txt  texts on which activations are measured
sensitive.toml   which layers stay, measured once for each file of weights

A token then reads half the bytes, and products take instructions for 8 bits. What plain rounding loses, it loses in
activations: a few channels are a hundred times as large as all others, which share what is left of 255 steps. So

- the scales of norms move into the products behind them,
- the hidden state is turned by an orthogonal matrix, which spreads large channels over all (QuaRot, arXiv:2404.00456),
  and so are the values of each head,
- `up_proj` and `down_proj` share what is between them by the largest activations of a text (SmoothQuant,
  arXiv:2211.10438),
- the layers whose `down_proj` loses most all the same keep it in bfloat16,
- channels make up for each other's rounding (GPTQ, arXiv:2210.17323).

The form is compressed-tensors' `int-quantized`, which vLLM loads by itself: one scale a row of a weight, one a token.
"""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.cpu import multiplies_int8
from models.llm.quantization.rotation import balance, turn
from models.llm.quantization.rounding import rounded, sensitive_layers, spread_of

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(f"parlance.{__name__}")

Inputs = dict[str, list["Tensor"]]
"""What linear layers are given for each text (tokens, channels), by their names."""

FOLDER = "int8"
ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM")
"""Decoders whose norms all stand before linear layers, and whose MLP is SiLU of a gate times `up_proj`."""
CALIBRATION = Path(__file__).with_name("calibration.txt")
"""Texts between lines of `---`."""
SENSITIVE = Path(__file__).with_name("sensitive.toml")
"""What `sensitive_layers` says of files whose hash is pinned."""
MOST_PARAMETERS = 1_000_000_000
"""Three times as many take ten times as long, and more memory than machines have on which it would matter."""
HEAD = "lm_head"
SAMPLE_TOKENS = 48
"""The first tokens of each text; every layer's loss takes one more look at them."""


def fits(config: Any, parameters: int) -> bool:
    """Whether a model of transformers can be turned: head sizes must be powers of two, and it must not be too large."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.architectures[0] in ARCHITECTURES and size & (size - 1) == 0 and parameters <= MOST_PARAMETERS


def fitting_folder(folder: Path, arguments: dict[str, Any], device: str) -> Path:
    """Where the weights in 8 bits lie, or `folder` itself where they would not be quicker; the log says why."""
    quantized = folder / FOLDER
    if arguments.get("dtype") != "bfloat16" or not multiplies_int8(device):
        log.info("weights stay as they are: what computes here has no instructions for int8 beside bfloat16")
    elif not quantized.is_dir():
        log.warning("`%s` has no weights in 8 bits: delete that folder and run `make weights`", folder)
    else:
        return quantized
    return folder


def save(model: Any, tokenizer: Any, folder: Path, sha256: str = "") -> None:
    """Turns `model` (transformers, any float type), which is overwritten, and writes it in 8 bits to `folder`.

    `sha256` is the hash of the file from which it was loaded: of known files, sensitive layers are not measured again.
    """
    import torch

    model.float()
    texts = [tokenizer(text, return_tensors="pt").input_ids for text in CALIBRATION.read_text("utf-8").split("\n---\n")]
    measured = tomllib.loads(SENSITIVE.read_text("utf-8")).get(sha256)
    with torch.no_grad():
        turn(model)
        inputs = inputs_of(model, texts)
        balance_with(model, inputs)
        sensitive = measured or sensitive_layers(model, torch.cat([text[:, :SAMPLE_TOKENS] for text in texts]))
        ignored = [down_proj(layer) for layer in sensitive]
        _write(model, inputs, ignored, folder)
    tokenizer.save_pretrained(folder)


def inputs_of(model: Any, texts: Sequence[Tensor]) -> Inputs:
    """What each group of linear layers is given for each text (tokens, channels), by the name of its first."""
    inputs: Inputs = {group[0]: [] for group in sharing_one_input(model)}

    def note(name: str) -> Callable[..., None]:
        return lambda _part, args: inputs[name].append(args[0][0])

    hooks = [model.get_submodule(part).register_forward_pre_hook(note(part)) for part in inputs if part != HEAD]
    for text in texts:
        inputs[HEAD].append(model.model(text).last_hidden_state[0])  # the head itself would cost a quarter more
    for hook in hooks:
        hook.remove()
    return inputs


def balance_with(model: Any, inputs: Inputs) -> None:
    """Balances each layer by its largest inputs, but for first tokens, which stand out; `inputs` are what comes now."""
    import torch

    parts = [down_proj(layer) for layer in range(len(model.model.layers))]
    peaks = [torch.cat([text[1:] for text in inputs[part]]).abs().amax(0) for part in parts]
    for part, scale in zip(parts, balance(model.model.layers, peaks), strict=True):
        inputs[part] = [text / scale for text in inputs[part]]


def _write(model: Any, inputs: Inputs, ignored: Sequence[str], folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    tensors = {name: tensor.bfloat16() for name, tensor in model.state_dict().items()}
    for first, *others in sharing_one_input(model):
        tokens = torch.cat(inputs.pop(first))
        if first in ignored:
            continue
        spread = spread_of(tokens)
        for part in (first, *others):
            name = f"{part}.weight"
            tensors[name], tensors[f"{name}_scale"] = rounded(model.get_submodule(part).weight, spread)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict() | {"dtype": "bfloat16", "quantization_config": quantization_config(ignored)}
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def down_proj(layer: int) -> str:
    """The name of a layer's last product."""
    return f"model.layers.{layer}.mlp.down_proj"


def sharing_one_input(model: Any) -> list[list[str]]:
    """All linear layers by their names; those of a group are given the same."""
    groups = [[HEAD]]
    for layer in range(len(model.model.layers)):
        attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        groups.append([f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj"])
        groups += [[f"{attention}.o_proj"], [f"{mlp}.gate_proj", f"{mlp}.up_proj"], [down_proj(layer)]]
    return groups


def quantization_config(ignored: Sequence[str]) -> dict[str, Any]:
    """compressed-tensors' words for all linear layers in 8 bits but those in `ignored`."""
    eight_bits = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear", "re:.*lm_head"],
        "weights": eight_bits | {"strategy": "channel", "dynamic": False},
        "input_activations": eight_bits | {"strategy": "token", "dynamic": True},
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": sorted(ignored),
        "config_groups": {"group_0": group},
    }
