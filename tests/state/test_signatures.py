from pathlib import Path

import pytest

from contract.errors import ApiError
from state.blobs.signatures import FILES_PURPOSE, Signatures
from state.keys import Secrets, open_secrets, rotate

NAME = "drafts/3f/sample.mp3"
NOW_S = 1_800_000_000
SECRETS = Secrets((b"s" * 32,))


def signatures(secrets: Secrets = SECRETS, now_s: float = NOW_S) -> Signatures:
    return Signatures(secrets.derive(FILES_PURPOSE), lambda: now_s)


def refused(query: str, name: str = NAME, method: str = "GET", by: Signatures | None = None) -> bool:
    try:
        (by or signatures()).verify(name, query, method)
    except ApiError as error:
        return (error.fault.status, error.fault.code) == (403, "invalid_signature")
    return False


def test_what_was_signed_verifies() -> None:
    query = signatures().sign(NAME, NOW_S + 3600, "GET")
    assert not refused(query)
    assert not refused(query)


@pytest.mark.parametrize(("seconds", "late"), [(-1, False), (-0.001, False), (0, True), (0.001, True), (1e9, True)])
def test_an_address_expires_to_the_second(seconds: float, late: bool) -> None:
    query = signatures().sign(NAME, NOW_S, "GET")
    assert refused(query, by=signatures(now_s=NOW_S + seconds)) == late


def test_an_address_is_for_one_method_and_one_file() -> None:
    query = signatures().sign(NAME, NOW_S + 1, "GET")
    others = [
        "drafts/3f/sample.mp",
        "drafts/3f/sample.mp33",
        "drafts/3F/sample.mp3",
        "",
        "../" + NAME,
        NAME + "\n",
        "\ud800",
    ]
    assert all(refused(query, name=name) for name in others)
    assert all(refused(query, method=method) for method in ("PUT", "get", "HEAD", "DELETE", "", "GET\n"))
    assert not refused(signatures().sign(NAME, NOW_S + 1, "PUT"), method="PUT")


def test_parts_cannot_be_moved_into_one_another() -> None:
    query = signatures().sign("1/a", NOW_S + 1, "GET")
    assert refused(query.replace(f"expires={NOW_S + 1}", f"expires={NOW_S + 1}1"), name="/a")
    assert refused(query.replace(f"expires={NOW_S + 1}", f"expires={(NOW_S + 1) // 10}"), name="1\n1/a")


def test_every_change_of_every_character_is_noticed() -> None:
    query = signatures().sign(NAME, NOW_S + 3600, "GET")
    for place, old in enumerate(query):
        for new in "0aA&=%\n~":
            changed = query[:place] + new + query[place + 1 :]
            assert new == old or refused(changed), changed
        assert refused(query[:place] + query[place + 1 :])


@pytest.mark.parametrize(
    "change",
    [
        lambda query: "",
        lambda query: "?" + query,
        lambda query: query + "&",
        lambda query: query + "&download=1",
        lambda query: query + "\n",
        lambda query: query + "&" + query,
        lambda query: "&".join(reversed(query.split("&"))),
        lambda query: query.replace("expires=", "expires=0"),
        lambda query: query.replace("expires=", "expires=+"),
        lambda query: query.replace("expires=1", "expires=%31"),
        lambda query: query.replace("expires=1", "expires=\u0661"),
        lambda query: query.partition("signature=")[0] + "signature=" + query.partition("signature=")[2].upper(),
        lambda query: query.partition("signature=")[0] + "signature=" + "0" * 64,
        lambda query: query.partition("signature=")[0] + "signature=",
        lambda query: query * 10_000,
    ],
)
def test_one_spelling_only(change) -> None:
    query = signatures().sign(NAME, NOW_S + 3600, "GET")
    assert "a" in query.partition("signature=")[2]
    assert refused(change(query))


def test_addresses_outlive_one_rotation_and_not_two(tmp_path: Path) -> None:
    query = signatures(open_secrets(tmp_path, {})).sign(NAME, NOW_S + 3600, "GET")
    assert not refused(query, by=signatures(rotate(tmp_path, {})))
    newer = signatures(rotate(tmp_path, {}))
    assert refused(query, by=newer)
    assert newer.sign(NAME, NOW_S + 3600, "GET") != query


def test_the_name_of_another_generation_does_not_help() -> None:
    both = Secrets((b"n" * 32, b"s" * 32))
    new, old = signatures(both).sign(NAME, NOW_S + 1, "GET"), signatures().sign(NAME, NOW_S + 1, "GET")
    kids = [query.split("&")[1] for query in (new, old)]
    assert not refused(old, by=signatures(both))
    assert refused(old.replace(kids[1], kids[0]), by=signatures(both))
    assert refused(new.replace(kids[0], kids[1]), by=signatures(both))


def test_another_purpose_does_not_sign_files() -> None:
    other = Signatures(SECRETS.derive("uploads"), lambda: NOW_S)
    assert refused(other.sign(NAME, NOW_S + 1, "GET"))


def test_only_names_of_ours_are_signed() -> None:
    for name in ("../x", "/x", "a b", ""):
        with pytest.raises(ValueError, match="not a valid name of a blob"):
            signatures().sign(name, NOW_S, "GET")
