"""The site: all pages and links are there, and no page runs or fetches what its policy does not allow."""

import base64
import hashlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


class Loads(HTMLParser):
    """What a page runs and loads.

    Attributes:
        inline: texts of its scripts and styles, by kind.
        addresses: of scripts, styles, pictures and frames.
        handlers: attributes that hold code or style.
        policy: its content security policy.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.inline: list[tuple[str, str]] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.policy = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.handlers += [name for name in given if name == "style" or name.startswith("on")]
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            assert not self.inline, "the policy comes after what it is for"
            assert not self.addresses, "the policy comes after what it is for"
            self.policy = given["content"]
        if tag in ("script", "img", "iframe", "source"):
            self.addresses += [given[name] for name in ("src", "srcset") if name in given]
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.addresses.append(given["href"])
        if tag in ("script", "style") and "src" not in given and given.get("type") != "application/json":
            self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.inline.append((self._inside, data))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it. A link that leads nowhere ends that."""
    folder = tmp_path_factory.mktemp("site")
    command = [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_each_page_is_there(site: Path) -> None:
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/decisions/*.md")]
    names = {page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for page in pages} - {"README.html"}
    made = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    more = {
        "index.html",
        "reference.html",
        "try/index.html",
        "SECURITY.html",
        "CHANGELOG.html",
        "benchmarks/speed/results/whole.html",
    }
    assert names | more <= made
    assert not list(site.rglob("*.py"))
    menu = set(re.findall(r'href="([\w-]+\.html)" class="md-nav__link"', (site / "index.html").read_text("utf-8")))
    assert {name for name in names if "/" not in name} <= menu


def test_no_page_loads_what_its_policy_forbids(site: Path) -> None:
    for page in site.rglob("*.html"):
        loads = Loads(page.read_text("utf-8"))
        assert loads.policy.startswith("default-src 'none'; script-src 'self'"), page
        assert "unsafe" not in loads.policy
        assert loads.handlers == [], page
        assert not [address for address in loads.addresses if "//" in address], page
        for kind, text in loads.inline:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in loads.policy, f"{page}: {kind} {text[:80]}"


def test_pictures_and_scripts_are_there(site: Path) -> None:
    for page in site.rglob("*.html"):
        for address in Loads(page.read_text("utf-8")).addresses:
            assert (page.parent / address.partition("?")[0]).is_file(), (page, address)
