"""Rules for what may be loaded: files of known size and hash, and none that could run code.

Formats that execute when they are read (pickles, Python), configurations that ask for remote code, and links that leave
the folder are refused whatever their hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from contract.base import Frozen, ProfileError

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

RUNS_CODE = frozenset({".py", ".pyc", ".so", ".pkl", ".pickle", ".joblib", ".pt", ".pth", ".ckpt"})
"""Suffixes that are refused: importing or unpickling them runs what they say."""

ASKS_FOR_CODE = frozenset({"auto_map", "trust_remote_code"})
"""Keys of a configuration that make a loader import code from beside the weights."""

BLOCK_BYTES = 1 << 20


class WeightsError(ProfileError):
    """Weights are missing or not to be trusted. The text is one sentence that says what to do."""


class PinnedFile(Frozen):
    """One file of a model. `size` is in bytes."""

    size: int = Field(ge=0)
    sha256: Sha256


def need_folder(path: Path | None, model_id: str) -> Path:
    """`path`, the folder of a model's weights; WeightsError where its stanza names none."""
    if path is None:
        raise WeightsError(f"the stanza of `{model_id}` names no `weights`, but its adapter needs them")
    return path


def regular_files(folder: Path) -> dict[str, Path]:
    """Every file below `folder` by its relative POSIX name. Raises WeightsError for a link that leaves the folder."""
    root = folder.resolve()
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise WeightsError(f"`{path}` is a link to outside its folder; replace it by a copy of the file")
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path
    return files


def refuse_code(files: Mapping[str, Path]) -> None:
    """Raises WeightsError if any of `files` could run code when a library loads it."""
    for name, path in files.items():
        if path.suffix.lower() in RUNS_CODE or (path.suffix.lower() == ".bin" and not _is_table(name, path)):
            raise WeightsError(f"`{path}` could run code when it is loaded; use safetensors weights instead")
        if path.suffix == ".json" and "config" in path.name and ASKS_FOR_CODE & set(_keys(_json(path))):
            raise WeightsError(f"`{name}` in `{path.parent}` asks to run its own code (`auto_map`), which is never run")


def verify(folder: Path, pins: Mapping[str, PinnedFile], digests: Digests) -> None:
    """Raises WeightsError unless `folder` holds exactly the pinned files, unchanged, and none that runs code.

    Without pins (a folder of the operator's own) only the code rules apply.
    """
    files = regular_files(folder)
    refuse_code(files)
    if not pins:
        return
    if missing := sorted(pins.keys() - files.keys()):
        raise WeightsError(f"`{missing[0]}` is missing in `{folder}`; delete that folder and run `make weights`")
    if extra := sorted(files.keys() - pins.keys()):
        raise WeightsError(f"`{extra[0]}` in `{folder}` does not belong to the pinned weights; move it away")
    for name, pin in pins.items():
        if files[name].stat().st_size != pin.size or digests.sha256(files[name]) != pin.sha256:
            raise WeightsError(
                f"`{name}` in `{folder}` is not the pinned file; delete that folder and run `make weights`"
            )


def pin_all(folder: Path, digests: Digests) -> dict[str, PinnedFile]:
    """Pins of everything that is in `folder` now."""
    return {name: digests.pin(path) for name, path in regular_files(folder).items()}


class Digests:
    """Hashes of files, remembered by inode, times and size, so that only the first start reads gigabytes.

    The memory is a JSON file beside the weights. Where it cannot be written (a read-only mount) hashing is repeated.
    """

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._digests: dict[str, str] = _json(memory)
        self._used: dict[str, str] = {}

    def sha256(self, path: Path) -> str:
        stat = path.stat()
        key = f"{stat.st_ino}:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_size}"
        digest = self._digests.get(key) or hash_file(path)
        self._used[key] = self._digests[key] = digest
        return digest

    def pin(self, path: Path) -> PinnedFile:
        return PinnedFile(size=path.stat().st_size, sha256=self.sha256(path))

    def save(self) -> None:
        """Keeps what this process looked at and forgets the rest."""
        stored = _json(self._memory)
        if all(stored.get(key) == digest for key, digest in self._used.items()):
            return
        try:
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            self._memory.write_text(json.dumps(self._used))
        except OSError:
            return


def hash_file(path: Path) -> str:
    """Hex SHA-256 of the bytes of `path`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _is_table(name: str, path: Path) -> bool:
    """Says if a `.bin` is for a reader of numbers: old pickles begin like anything, so its name has to say so, too."""
    if name == "model.bin":
        with path.open("rb") as file:
            return file.read(4)[1:] == b"\0\0\0"  # the version of CTranslate2's format, little-endian
    return name.startswith("styles/") and not _is_pickle(path)  # rows of Kokoro's, without a head


def _is_pickle(path: Path) -> bool:
    """Says if `path` starts as PyTorch checkpoints do: a zip archive, or the PROTO opcode of pickle 2 to 5."""
    with path.open("rb") as file:
        head = file.read(4)
    return head == b"PK\x03\x04" or (head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"))


def _json(path: Path) -> Any:
    """Returns the content of a JSON file; an empty object if it cannot be read."""
    try:
        return json.loads(path.read_text())
    except (ValueError, OSError):
        return {}


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keys(inner)
