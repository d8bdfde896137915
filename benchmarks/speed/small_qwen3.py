"""Weights that both sides of a comparison can read: a Qwen3 of four layers with random numbers, and a graph over it.

`vllm serve` reads decisions only from architectures that it knows by name, and that of SmolLM2 is none of them. What
the answers say does not matter for how long they take.
"""

# No postponed annotations here: Serve reads the type of `args` to validate a config file against it.

import shutil
from pathlib import Path

from ray.serve import Application

import configs
from graph import GraphArgs, wire
from models.weights.store import ensure

NAME = "small-qwen3"
MODEL = "decision-v2"
"""The stanza that it stands behind."""
DONOR = "smollm2-135m-instruct"
"""Whose tokenizer it takes."""
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def build(args: GraphArgs) -> Application:
    """The real wiring with this model behind `MODEL`, and no other decision model."""
    catalog = configs.load(args.profile)
    model = catalog.decisions[MODEL]
    small = model.model_copy(update={"serving": model.setup.model_copy(update={"weights": NAME, "runtime": NAME})})
    return wire(catalog.model_copy(update={"decisions": {small.id: small}}), args.ingress)


def make(folder: Path) -> Path:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(7)
    config = Qwen3Config(
        vocab_size=49_152,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    for name in TOKENIZER:
        shutil.copy(ensure(DONOR) / name, folder)
    return folder


def stanza(folder: Path) -> str:
    """What a server's `weights.toml` says of the weights in `folder`."""
    return f'[{NAME}]\nsource = "dir:{folder}"\nlicence = "none"\n'


def config_file(folder: Path) -> Path:
    """A Serve config file of `build`, written into `folder`."""
    file = folder / f"{NAME}.yaml"
    embedded = (configs.FOLDER / "embedded.yaml").read_text()
    file.write_text(embedded.replace("graph:build", f"{__name__}:build"))
    return file
