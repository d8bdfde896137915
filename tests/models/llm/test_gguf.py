"""GGUF files are read as the package `gguf` reads them, and faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from models.llm.gguf import ROWS, FastReader, dequantized  # noqa: E402

TOKENS = ["", "a", "Ġgrün", "日本", "\n" * 300]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "toy.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_string("general.name", "toy")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.5, -1.0, 2.0, 0.0, 1e-7])
    writer.add_token_types([1, 2, 3, 1, 1])
    writer.add_array("toy.flags", [True, False])
    writer.add_array("toy.empty", [""])
    values = np.random.default_rng(0).standard_normal((2 * ROWS + 5, 64), np.float32)
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q5_0, gguf.GGMLQuantizationType.Q4_1):
        writer.add_tensor(kind.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("norm", values[0])
    writer.add_tensor("plain", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def plain(reader: Any) -> dict[str, Any]:
    return {
        name: (field.types, [bytes(field.parts[index]) for index in field.data])
        for name, field in reader.fields.items()
    }


def test_fields_are_those_that_gguf_reads(file: Path) -> None:
    fast = plain(FastReader(file))
    assert fast == plain(gguf.GGUFReader(file))
    assert [bytes(token).decode() for token in fast["tokenizer.ggml.tokens"][1]] == TOKENS


def test_tensors_are_those_that_gguf_dequantises(file: Path) -> None:
    for ours, theirs in zip(FastReader(file).tensors, gguf.GGUFReader(file).tensors, strict=True):
        expected = gguf.quants.dequantize(theirs.data, theirs.tensor_type)
        assert np.array_equal(dequantized(ours.data, ours.tensor_type), expected), ours.name
