"""The server that snippets of pages talk to: the real app and state, engines that obey, no Ray."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Example
from tests.docs.serving import served

LIMIT_S = 60


@dataclass(frozen=True)
class Reader:
    """Somebody who pastes what a page shows, in a folder with `var/` as a first start leaves it."""

    folder: Path
    url: str

    def paste(self, example: Example) -> subprocess.CompletedProcess[str]:
        """Runs one block. Every curl in it fails for a status of 400 and more."""
        key = (self.folder / "var/demo.key").read_text().strip()
        return example.run(
            self.url,
            self.folder,
            LIMIT_S,
            CURL_HOME=str(self.folder),
            PYTHONPATH=str(ROOT),
            PARLANCE_HOME=str(self.folder / "var"),
            PARLANCE_KEY=key,
            OPENAI_API_KEY=key,
            OPENAI_BASE_URL=f"{self.url}/v1",
        )


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("reader")
    (folder / ".curlrc").write_text("silent\nshow-error\nfail-with-body\n")
    own = folder / "var/my-model"
    own.mkdir(parents=True)
    (own / "config.json").write_text("{}")
    with served(folder / "var") as (url,):
        yield Reader(folder, url)
