"""A model hub on a real socket, with one repository."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.models import serving
from tests.models.weights.toy import digest

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
        """Status, body and headers."""
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
    """A hub that answers at its `address`."""
    hub = Hub()

    class Handler(serving.Handler):
        def do_GET(self) -> None:
            status, body, headers = hub.answer(self.path.partition("?")[0])
            self.send(status, body, *headers.items())

        do_HEAD = do_GET

    with serving.served(Handler) as hub.address:
        yield hub
