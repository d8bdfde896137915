import random
import string

import pytest

from contract.errors import INVALID_API_KEY, ApiError
from state import keys

KEY = keys.mint()


def test_a_key_has_the_documented_shape() -> None:
    prefix, public_id, rest = KEY.text.split("_")
    assert (prefix, len(public_id), len(rest)) == ("prl", 8, 49)
    assert public_id == KEY.public_id
    assert set(rest) <= set(string.ascii_letters + string.digits)


def test_keys_never_repeat() -> None:
    assert len({keys.mint().text for _ in range(500)}) == 500


def test_a_key_reads_back() -> None:
    assert keys.read(KEY.text) == KEY


@pytest.mark.parametrize("prefix", ["a", "prl", "Acme2026", "a" * 16])
def test_the_prefix_is_free(prefix: str) -> None:
    key = keys.mint(prefix)
    assert keys.read(key.text) == key


@pytest.mark.parametrize("prefix", ["", "1a", "a_b", "a" * 17, "é", "a b"])
def test_a_malformed_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        keys.mint(prefix)


def test_every_typo_in_one_character_is_noticed() -> None:
    for position, old in enumerate(KEY.text):
        new = "Q" if old != "Q" else "R"
        assert keys.read(KEY.text[:position] + new + KEY.text[position + 1 :]) is None, position


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t + "0", lambda t: t + "\n", lambda t: " " + t])
def test_a_key_of_another_length_is_none(change) -> None:
    assert keys.read(change(KEY.text)) is None


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_ignores_case(scheme: str) -> None:
    assert keys.read_bearer(f"{scheme} {KEY.text}") == KEY


@pytest.mark.parametrize("header", [None, ""])
def test_no_header_is_a_missing_key(header: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        keys.read_bearer(header)
    assert caught.value.fault.name == "MISSING_API_KEY"


def malformed_headers(count: int = 2000) -> list[str]:
    """Values that no client sends by accident."""
    text = KEY.text
    attacks = [
        "' OR '1'='1", "'; DROP TABLE api_keys;--", "1 UNION SELECT * FROM api_keys", "%27%20OR%201=1", "\\'", '"',
        "${jndi:ldap://x}", "{{7*7}}", "../../etc/passwd", "\x00", "\r\nX-Admin: 1", "\u202e", "ключ", "🔑", "null",
        "undefined", "true", "0", "-1", "[]", "{}", "\ud800", "Bearer", "Basic dXNlcjpwYXNz", "a" * 65_536,
    ]  # fmt: skip
    shapes = ["{}", "Bearer {}", "bearer  {}", "Bearer\t{}", "Token {}", " Bearer {}", "Bearer {} {}", "Bearer={}"]
    values = [shape.replace("{}", attack) for shape in shapes for attack in attacks]
    values += [f"Bearer {text[:i]}{attack}{text[i:]}" for attack in attacks for i in (0, 3, 4, 12, 13, 40, len(text))]
    values += [f"{scheme} {text}" for scheme in ("Basic", "Token", "Bearer:", "", "Bearer\t", "BearerBearer")]
    seeded = random.Random(7)
    while len(values) < count:
        chars = list(f"Bearer {text}")
        for _ in range(seeded.randint(1, 4)):
            chars[seeded.randrange(7, len(chars))] = chr(
                seeded.choice([seeded.randrange(128), seeded.randrange(0xD7FF)])
            )
        if "".join(chars)[7:].strip(" ") != text:
            values.append("".join(chars))
    return values


def test_two_thousand_malformed_headers_are_refused_without_being_quoted() -> None:
    values = malformed_headers()
    assert len(values) >= 2000
    for value in values:
        with pytest.raises(ApiError) as caught:
            keys.read_bearer(value)
        assert caught.value.fault.status == 401
        assert caught.value.fault.name == "INVALID_API_KEY"
        assert caught.value.message == INVALID_API_KEY.text


def test_a_key_does_not_show_itself() -> None:
    assert KEY.text[13:] not in repr(KEY)
