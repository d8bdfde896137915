"""GET /docs/: the documentation as files of a folder, for anyone, at the rate of those without a key."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.staticfiles import StaticFiles

from contract.limits import KEYLESS_REQUESTS
from deployments.ingress.routes import service
from tests.api.conftest import Api


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site of two pages, beside a file that is none of it."""
    folder = tmp_path / "site"
    (folder / "try").mkdir(parents=True)
    (folder / "index.html").write_text("first")
    (folder / "try/index.html").write_text("second")
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    monkeypatch.setattr(service, "SITE", StaticFiles(directory=folder, check_dir=False))
    return folder


@pytest.mark.parametrize(
    ("path", "text"), [("", "first"), ("index.html", "first"), ("try/", "second"), ("try/index.html", "second")]
)
async def test_pages_are_shown_to_anyone(api: Api, site: Path, path: str, text: str) -> None:
    reply = await api.client.get(f"/docs/{path}")
    assert (reply.status_code, reply.text) == (200, text)
    assert reply.headers["content-type"].startswith("text/html")
    assert reply.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert reply.headers["x-content-type-options"] == "nosniff"
    again = await api.client.get(f"/docs/{path}", headers={"if-none-match": reply.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = await api.client.head(f"/docs/{path}")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(text)))


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "try/..%2f..%2fsecret",
        "%2fetc/passwd",
        "link",
        "try",
        "x",
        "x/",
        "%00",
    ],
)
async def test_nothing_else_is(api: Api, site: Path, path: str) -> None:
    reply = await api.client.get(f"/docs/{path}")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found"), reply.text


async def test_the_way_there_has_no_name_of_the_clients(api: Api, site: Path) -> None:
    reply = await api.client.get("/docs", headers={"host": "evil.example"})
    assert (reply.status_code, reply.headers["location"]) == (307, "/docs/")


async def test_what_is_not_built_says_how_it_is(api: Api, site: Path) -> None:
    (site / "index.html").unlink()
    reply = await api.client.get("/docs/")
    assert reply.status_code == 404
    assert "`make docs`" in reply.json()["error"]["message"]


@pytest.mark.usefixtures("one_window")
async def test_pages_count_for_the_rate_of_a_network(api: Api, site: Path) -> None:
    left = [(await api.client.get("/docs/")).headers["x-ratelimit-remaining"] for _ in range(KEYLESS_REQUESTS)]
    assert left == [str(count) for count in reversed(range(KEYLESS_REQUESTS))]
    assert (await api.client.get("/docs/")).status_code == 429
