import os
from itertools import product
from pathlib import Path

import pytest

from state import keys as secrets

PURPOSES = ("api-keys", "uploads", "samples", "cursors", "sessions")


def test_the_secret_is_made_once_and_private(tmp_path: Path) -> None:
    first = secrets.open_secrets(tmp_path, {})
    assert secrets.open_secrets(tmp_path, {}) == first
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secrets"]


def test_no_purpose_signs_for_another(tmp_path: Path) -> None:
    opened = secrets.open_secrets(tmp_path, {})
    for one, other in product(PURPOSES, PURPOSES):
        ring = opened.derive(one)
        signature = ring.sign(b"message")
        assert opened.derive(other).verify(b"message", ring.kid, signature) == (one == other)


def test_another_message_or_generation_does_not_verify(tmp_path: Path) -> None:
    ring = secrets.open_secrets(tmp_path, {}).derive("uploads")
    signature = ring.sign(b"message")
    assert not ring.verify(b"massage", ring.kid, signature)
    assert not ring.verify(b"message", "00000000", signature)
    assert not ring.verify(b"message", ring.kid, signature[:-1])


def test_rotation_keeps_one_generation(tmp_path: Path) -> None:
    signatures = []
    for _ in range(3):
        ring = secrets.open_secrets(tmp_path, {}).derive("uploads")
        signatures.append((ring.kid, ring.sign(b"m")))
        secrets.rotate(tmp_path, {})
    now = secrets.open_secrets(tmp_path, {}).derive("uploads")
    assert [now.verify(b"m", kid, signature) for kid, signature in signatures] == [False, False, True]
    assert now.kid not in {kid for kid, _ in signatures}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o600


def test_the_environment_wins_and_writes_nothing(tmp_path: Path) -> None:
    new, old = "ab" * 32, "cd" * 32
    opened = secrets.open_secrets(tmp_path, {"PARLANCE_SECRET": f"{new},{old}"})
    assert opened.roots == (bytes.fromhex(new), bytes.fromhex(old))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="PARLANCE_SECRET"):
        secrets.rotate(tmp_path, {"PARLANCE_SECRET": new})


@pytest.mark.parametrize("value", ["", "zz", "ab" * 31, f"{'ab' * 32},{'cd' * 32},{'ef' * 32}"])
def test_a_malformed_secret_is_refused_without_being_quoted(tmp_path: Path, value: str) -> None:
    with pytest.raises(ValueError, match="PARLANCE_SECRET must contain") as caught:
        secrets.open_secrets(tmp_path, {"PARLANCE_SECRET": value})
    assert not value or value not in str(caught.value)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    secrets.open_secrets(tmp_path, {})
    os.chmod(tmp_path / "secrets", 0o640)
    with pytest.raises(ValueError, match="chmod 600"):
        secrets.open_secrets(tmp_path, {})


def test_neither_secrets_nor_keyrings_show_themselves(tmp_path: Path) -> None:
    opened = secrets.open_secrets(tmp_path, {})
    shown = repr(opened) + repr(opened.derive("uploads")) + str(opened)
    assert opened.roots[0].hex() not in shown
    assert repr(opened.roots[0]) not in shown
