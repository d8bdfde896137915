"""API keys, the secrets that seal, and signed addresses."""

import os
import string
from itertools import product
from pathlib import Path

import pytest

from contract.errors import INVALID_API_KEY, MISSING_API_KEY, ApiError
from state import keys
from state.blobs.signatures import FILES_PURPOSE, Signatures
from state.keys import Secrets
from tests.contract.bodies import refusal

KEY = keys.mint()


def test_a_key_has_the_documented_shape() -> None:
    prefix, public_id, rest = KEY.text.split("_")
    assert (prefix, len(public_id), len(rest)) == ("prl", 8, 49)
    assert public_id == KEY.public_id
    assert set(rest) <= set(string.ascii_letters + string.digits)


def test_the_prefix_is_free_unless_it_is_malformed() -> None:
    for prefix in ("a", "prl", "Acme2026", "a" * 16):
        key = keys.mint(prefix)
        assert keys.read(key.text) == key
    for prefix in ("", "1a", "a_b", "a" * 17, "é", "a b"):
        with pytest.raises(ValueError, match="prefix"):
            keys.mint(prefix)


def test_every_typo_in_one_character_and_another_length_are_noticed() -> None:
    for position, old in enumerate(KEY.text):
        new = "Q" if old != "Q" else "R"
        assert keys.read(KEY.text[:position] + new + KEY.text[position + 1 :]) is None, position
    for text in (KEY.text[:-1], KEY.text + "0", KEY.text + "\n", " " + KEY.text):
        assert keys.read(text) is None


def test_the_scheme_ignores_case_and_no_header_is_a_missing_key() -> None:
    for scheme in ("Bearer", "bearer", "BEARER", "bEaReR"):
        assert keys.read_bearer(f"{scheme} {KEY.text}") == KEY
    for header in (None, ""):
        refusal(keys.read_bearer, header, fault=MISSING_API_KEY)


def malformed_headers() -> list[str]:
    text = KEY.text
    attacks = [
        "' OR '1'='1", "'; DROP TABLE api_keys;--", "1 UNION SELECT * FROM api_keys", "%27%20OR%201=1", "\\'", '"',
        "${jndi:ldap://x}", "{{7*7}}", "../../etc/passwd", "\x00", "\r\nX-Admin: 1", "\u202e", "ключ", "🔑", "null",
        "undefined", "true", "0", "-1", "[]", "{}", "\ud800", "Bearer", "Basic dXNlcjpwYXNz", "a" * 65_536,
    ]  # fmt: skip
    shapes = ["{}", "Bearer {}", "bearer  {}", "Bearer\t{}", "Token {}", " Bearer {}", "Bearer {} {}", "Bearer={}"]
    values = [shape.replace("{}", attack) for shape in shapes for attack in attacks]
    values += [f"{scheme} {text}" for scheme in ("Basic", "Token", "Bearer:", "", "Bearer\t", "BearerBearer")]
    places = [(start, end) for start in range(len(text) + 1) for end in (start, start + 1)]
    values += [f"Bearer {text[:start]}{attack}{text[end:]}" for attack in attacks for start, end in places]
    return [value for value in values if value != f"Bearer {text}"]


def test_thousands_of_malformed_headers_are_refused_without_being_quoted() -> None:
    for value in malformed_headers():
        error = refusal(keys.read_bearer, value, fault=INVALID_API_KEY)
        assert (error.fault.status, error.message) == (401, INVALID_API_KEY.text), value


PURPOSES = ("api-keys", "uploads", "samples", "cursors", "sessions")


def test_the_secret_is_made_once_and_private_and_refused_where_others_can_read_it(tmp_path: Path) -> None:
    first = keys.open_secrets(tmp_path, {})
    assert keys.open_secrets(tmp_path, {}) == first
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secrets"]
    os.chmod(tmp_path / "secrets", 0o640)
    with pytest.raises(ValueError, match="chmod 600"):
        keys.open_secrets(tmp_path, {})


def test_no_purpose_signs_for_another(tmp_path: Path) -> None:
    opened = keys.open_secrets(tmp_path, {})
    for one, other in product(PURPOSES, PURPOSES):
        ring = opened.derive(one)
        signature = ring.sign(b"message")
        assert opened.derive(other).verify(b"message", ring.kid, signature) == (one == other)


def test_rotation_keeps_one_generation(tmp_path: Path) -> None:
    signatures = []
    for _ in range(3):
        ring = keys.open_secrets(tmp_path, {}).derive("uploads")
        signatures.append((ring.kid, ring.sign(b"m")))
        keys.rotate(tmp_path, {})
    now = keys.open_secrets(tmp_path, {}).derive("uploads")
    assert [now.verify(b"m", kid, signature) for kid, signature in signatures] == [False, False, True]
    assert now.kid not in {kid for kid, _ in signatures}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o600


def test_the_environment_wins_and_writes_nothing(tmp_path: Path) -> None:
    new, old = "ab" * 32, "cd" * 32
    opened = keys.open_secrets(tmp_path, {"PARLANCE_SECRET": f"{new},{old}"})
    assert opened.roots == (bytes.fromhex(new), bytes.fromhex(old))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="PARLANCE_SECRET"):
        keys.rotate(tmp_path, {"PARLANCE_SECRET": new})


def test_a_malformed_secret_is_refused_without_being_quoted(tmp_path: Path) -> None:
    for value in ("", "zz", "ab" * 31, f"{'ab' * 32},{'cd' * 32},{'ef' * 32}"):
        with pytest.raises(ValueError, match="PARLANCE_SECRET must contain") as caught:
            keys.open_secrets(tmp_path, {"PARLANCE_SECRET": value})
        assert not value or value not in str(caught.value)


@pytest.mark.parametrize("act", ["open", "rotate"])
def test_the_secret_survives_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    if act == "rotate":
        keys.open_secrets(tmp_path, {})
    done: list[str] = []
    fsync, link, replace = os.fsync, os.link, Path.replace

    def synced(number: int) -> None:
        done.append("folder" if os.readlink(f"/proc/self/fd/{number}") == str(tmp_path) else "file")
        fsync(number)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", lambda *paths: done.append("named") or link(*paths))
    monkeypatch.setattr(Path, "replace", lambda *paths: done.append("named") or replace(*paths))
    keys.open_secrets(tmp_path, {}) if act == "open" else keys.rotate(tmp_path, {})
    assert done[-3:] == ["file", "named", "folder"]


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


def test_one_spelling_only() -> None:
    query = signatures().sign(NAME, NOW_S + 3600, "GET")
    before, signature = query[:-64], query[-64:]
    assert "a" in signature
    others = ["", "?" + query, query + "&", query + "&download=1", query + "\n", query + "&" + query, query * 10_000]
    others += ["&".join(reversed(query.split("&")))]
    others += [query.replace("expires=1", f"expires={first}") for first in ("01", "+1", "%31", "\u0661")]
    others += [before + other for other in (signature.upper(), "0" * 64, "")]
    assert [other for other in others if not refused(other)] == []


def test_the_name_of_another_generation_does_not_help() -> None:
    both = Secrets((b"n" * 32, b"s" * 32))
    new, old = signatures(both).sign(NAME, NOW_S + 1, "GET"), signatures().sign(NAME, NOW_S + 1, "GET")
    kids = [query.split("&")[1] for query in (new, old)]
    assert not refused(old, by=signatures(both))
    assert refused(old.replace(kids[1], kids[0]), by=signatures(both))
    assert refused(new.replace(kids[0], kids[1]), by=signatures(both))


def test_only_names_of_ours_are_signed() -> None:
    for name in ("../x", "/x", "a b", ""):
        with pytest.raises(ValueError, match="not a valid name of a blob"):
            signatures().sign(name, NOW_S, "GET")
