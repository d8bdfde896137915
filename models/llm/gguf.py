"""One GGUF file into a Hugging Face folder that vLLM loads: bfloat16 safetensors, config, tokenizer, chat template.

Named as a converter by stanzas of `models/weights/manifest.toml` and run as `python -m models.llm.gguf FILE FOLDER`,
in a process of its own: dequantising takes several times the size of the model, and a child gives all of it back. A
GGUF holds everything that is needed, so nothing is fetched. A small decoder that `quantization` knows comes in 8 bits,
too.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from models.llm import quantization
from models.weights.files import hash_file


def convert(file: Path, out: Path) -> None:
    """Writes the model in the GGUF `file` to the folder `out`, which then holds all of it or does not exist."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # transformers reads the file three times, seconds each for a large vocabulary, and lists names for each module.
    gguf.GGUFReader, gguf.get_tensor_name_map = cache(gguf.GGUFReader), cache(gguf.get_tensor_name_map)
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    folder, name = str(file.parent), file.name
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    if quantization.fits(model.config, model.num_parameters()):
        quantization.save(model, tokenizer, part / quantization.FOLDER, hash_file(file))
    os.replace(part, out)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
