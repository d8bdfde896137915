"""One GGUF file into a Hugging Face folder that vLLM loads: bfloat16 safetensors, config, tokenizer, chat template.

Named as a converter by stanzas of `models/weights/manifest.toml` and run as `python -m models.llm.gguf FILE FOLDER`,
in a process of its own: dequantising takes several times the size of the model, and a child gives all of it back. A
GGUF holds everything that is needed, so nothing is fetched. A small decoder that `quantization` knows comes in 8 bits,
too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGUFReader, GGUFValueType

from models.llm import quantization

ROWS = 1024
"""Rows of a tensor that a thread dequantises at a time. gguf takes 16, and spends most of the time between them."""


class FastReader(GGUFReader):
    """The reader of gguf, for which a vocabulary of 150,000 tokens takes one second in place of 19.

    Memory is sliced as a plain array, since each slice of a `memmap` is another one, and the items of an array are not
    looked up one by one.
    """

    @property
    def data(self) -> Any:
        return self._memory

    @data.setter
    def data(self, mapped: np.memmap[Any, Any]) -> None:
        self._memory = mapped.view(np.ndarray)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[GGUFValueType]]:
        if raw_type != GGUFValueType.ARRAY or self.byte_order != "I":
            fields: tuple[int, list[Any], list[int], list[GGUFValueType]] = super()._get_field_parts(
                orig_offs, raw_type
            )
            return fields
        kind, count = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
        parts: list[Any] = [kind, count]
        types, start = [GGUFValueType.ARRAY, GGUFValueType(kind[0])], orig_offs + 12
        if scalar := self.gguf_scalar_to_np.get(types[1]):
            values = self._get(start, scalar, count[0])
            parts.extend(values[:, None])
            return start + values.nbytes - orig_offs, parts, list(range(2, len(parts))), types
        memory = memoryview(self.data)
        for _ in range(count[0]):
            end = start + 8 + int.from_bytes(memory[start : start + 8], "little")
            parts += memory[start : start + 8], memory[start + 8 : end]
            start = end
        return start - orig_offs, parts, list(range(3, len(parts), 2)), types


def dequantized(data: np.ndarray[Any, Any], kind: gguf.GGMLQuantizationType) -> np.ndarray[Any, Any]:
    """Returns `data` (rows, bytes) as float32 (rows, channels): the numbers of `gguf.dequantize`, by two threads."""
    if kind not in gguf.quants._type_traits:  # numbers as they are
        return np.asarray(gguf.quants.dequantize(data, kind))
    out = np.empty(gguf.quant_shape_from_byte_shape(data.shape, kind), np.float32)

    def fill(start: int) -> None:
        rows = slice(start, start + ROWS)
        out[rows] = gguf.quants._type_traits[kind].dequantize_rows(data[rows])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(fill, range(0, len(data), ROWS)))
    return out


def parsed(value: Any, types: list[int], parse: Callable[[Any, list[int]], Any]) -> Any:
    """Returns an item of a GGUF field as `parse` of transformers does, which lists the bytes of each string."""
    return bytes(value).decode() if types[-1] == GGUFValueType.STRING else parse(value, types)


def convert(file: Path, out: Path) -> None:
    """Writes the model in the GGUF `file` to the folder `out`, which then holds all of it or does not exist."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers import modeling_gguf_pytorch_utils as loader

    part, share = out.with_name(f"{out.name}.{os.getpid()}.part"), out.with_name(f"{out.name}.share")
    folder, name, read = str(file.parent), file.name, 0

    def report(done: float) -> None:
        share.write_text(f"{done:.2f}")

    def dequantize(data: np.ndarray[Any, Any], kind: gguf.GGMLQuantizationType) -> np.ndarray[Any, Any]:
        nonlocal read
        read += data.nbytes
        report(read / file.stat().st_size / 2)
        return dequantized(data, kind)

    # transformers reads the file three times, and lists names for each module.
    gguf.GGUFReader, gguf.get_tensor_name_map = cache(FastReader), cache(gguf.get_tensor_name_map)
    gguf.dequantize = dequantize
    loader._gguf_parse_value = partial(parsed, parse=loader._gguf_parse_value)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    if quantization.fits(model.config, model.num_parameters()):
        quantization.save(model, tokenizer, part / quantization.FOLDER, lambda done: report((1 + done) / 2))
    share.unlink(missing_ok=True)
    os.replace(part, out)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
