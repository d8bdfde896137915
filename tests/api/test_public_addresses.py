"""At which address a server is reached, and what it writes into tickets."""

from __future__ import annotations

import pytest

from deployments.ingress.deployment import IngressArgs
from deployments.ingress.wire.addresses import public_address
from tests.api.conftest import Api
from tests.api.uploads import SOUND, WEBM, ticket_of


async def test_behind_a_proxy_addresses_say_https_and_keep_its_path(api: Api) -> None:
    public = "https://api.example.org/voice"
    behind = api.changed("http://10.0.0.7:8000", public_url=public)
    ticket = await ticket_of(behind)
    assert ticket["upload_url"].startswith(f"{public}/files/uploads/upl_")
    # The proxy cuts its path off.
    inside = ticket["upload_url"].removeprefix(public)
    assert (await behind.client.put(inside, content=SOUND, headers=WEBM)).status_code == 200


async def test_without_one_addresses_are_those_of_the_request(api: Api) -> None:
    ticket = await ticket_of(api.changed("http://10.0.0.7:8000"))
    assert ticket["upload_url"].startswith("http://10.0.0.7:8000/files/uploads/upl_")


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("https://api.example.org", "https://api.example.org"),
        ("https://api.example.org/", "https://api.example.org"),
        ("https://api.example.org/voice/", "https://api.example.org/voice"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://[::1]:8443/a/b", "https://[::1]:8443/a/b"),
    ],
)
def test_public_addresses(told: str, kept: str) -> None:
    assert public_address(told) == kept


@pytest.mark.parametrize(
    "told",
    [
        *("", "api.example.org", "//api.example.org", "ftp://api.example.org", "https://", "https:///voice"),
        *("https://a.org?x=1", "https://a.org/?", "https://a.org/#x", "https://me:secret@a.org", "https://a.org:port"),
        *("https://a b.org", "https://a.org/\n", "https://a.org/\x00", "https://ä.org", "https://a.org\\b"),
    ],
)
def test_what_is_no_public_address(told: str) -> None:
    with pytest.raises(ValueError, match="not a public address"):
        public_address(told)


def test_the_environment_comes_before_the_config_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARLANCE_PUBLIC_URL", raising=False)
    assert IngressArgs().reached_at() is None
    told = IngressArgs(public_url="https://file.example.org/")
    assert told.reached_at() == "https://file.example.org"
    monkeypatch.setenv("PARLANCE_PUBLIC_URL", "https://environment.example.org/voice/")
    assert told.reached_at() == "https://environment.example.org/voice"
    monkeypatch.setenv("PARLANCE_PUBLIC_URL", "environment")
    with pytest.raises(ValueError, match="not a public address"):
        told.reached_at()
    with pytest.raises(ValueError, match="not a public address"):
        IngressArgs(public_url="file.example.org")
