"""Files that could run code are refused, pinned or not; so is a stanza that names none where some are needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import configs
from models import options
from models.weights.files import Digests, PinnedFile, verify
from models.weights.store import WeightsError
from tests.models.weights.toy import FILES, digest, put

ENDINGS = ("py", "PY", "pyc", "so", "pkl", "pickle", "joblib", "pt", "pth", "ckpt")
NAMES = ["modeling_x.py", "a/b.py", *(f"m.{ending}" for ending in ENDINGS)]
BINARIES = [b"\x80\x02}q", b"\x80\x04\x95", b"\x80\x05\x95", b"PK\x03\x04torch"]
CONFIGS = [
    ("config.json", {"auto_map": {"AutoModel": "modeling_x.X"}}),
    ("config.json", {"text_config": {"auto_map": {}}}),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["a", None]}}),
    ("1_Pooling/config.json", {"trust_remote_code": True}),
    ("config.json", [{"auto_map": 1}]),
]


@pytest.mark.parametrize(
    ("name", "content"),
    [(name, b"1") for name in NAMES]
    + [(name, content) for name in ("pytorch_model.bin", "model.bin", "styles/one.bin") for content in BINARIES]
    # Pickles of protocol 0 and 1 begin with any of their commands, and a loader of PyTorch takes any name.
    + [
        (name, b"cposix\nsystem\n(S'id'\ntR.")
        for name in ("pytorch_model.bin", "model.bin", "MODEL.BIN", "x/model.bin")
    ]
    + [("one.bin", b"\x00" * 64)]
    + [(name, json.dumps(value).encode()) for name, value in CONFIGS],
)
def test_what_could_run_code_is_refused_even_when_pinned(tmp_path: Path, name: str, content: bytes) -> None:
    put(tmp_path / "toy", FILES | {name: content})
    digests = Digests(tmp_path / "digests")
    pinned = {key: PinnedFile(size=len(data), sha256=digest(data)) for key, data in (FILES | {name: content}).items()}
    for allowed in (pinned, {}):
        with pytest.raises(WeightsError, match="code"):
            verify(tmp_path / "toy", allowed, digests)


@pytest.mark.parametrize(
    ("name", "content"), [("model.bin", b"\x06\x00\x00\x00whisper"), ("styles/one.bin", b"\x00\x00\x80\x3f" * 4)]
)
def test_a_bin_file_that_only_readers_of_tables_open_is_taken(tmp_path: Path, name: str, content: bytes) -> None:
    put(tmp_path / "toy", FILES | {name: content})
    verify(tmp_path / "toy", {}, Digests(tmp_path / "digests"))


@pytest.mark.parametrize("target", ["outside", "outside/secret.json"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    put(tmp_path / "outside", {"secret.json": b"{}"})
    put(tmp_path / "toy", FILES)
    (tmp_path / "toy" / "link.json").symlink_to(tmp_path / target)
    with pytest.raises(WeightsError, match="link"):
        verify(tmp_path / "toy", {}, Digests(tmp_path / "digests"))


def test_a_link_inside_the_folder_is_taken(tmp_path: Path) -> None:
    put(tmp_path / "toy", FILES)
    (tmp_path / "toy" / "again.json").symlink_to("config.json")
    verify(tmp_path / "toy", {}, Digests(tmp_path / "digests"))


@pytest.mark.parametrize(("noun", "model_id"), [("chat", "smollm2-135m-instruct"), ("decisions", "decision-v1")])
def test_an_adapter_says_that_its_stanza_names_no_weights(noun: str, model_id: str) -> None:
    model = getattr(configs.load("embedded"), noun)[model_id]
    with pytest.raises(WeightsError) as caught:
        options.adapter_of(model)(model, None)
    assert str(caught.value) == f"the stanza of `{model_id}` names no `weights`, but its adapter needs them"
