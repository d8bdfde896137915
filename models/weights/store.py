"""Weights on this machine: fetched once, pinned by hash, checked before every load.

    PARLANCE_HOME/weights/<name>/       what is loaded; appears at once, complete and verified
    PARLANCE_HOME/weights/.partial/     downloads under way
    PARLANCE_HOME/weights/.digests/     hashes already computed, by inode, times and size
    PARLANCE_HOME/hub.lock              what of the hub was locked here at its first use, because no lock had it
    PARLANCE_HOME/weights.toml          stanzas of your own, before those of `models/weights/manifest.toml`
                                        and of `models/weights/hub.lock`

Weights that a stanza converts are pinned by `pins.json` in their folder, written at conversion: the result may differ
between library versions, what it was made from may not.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from contract.base import Frozen
from contract.catalog import Model
from models.weights.files import Digests, PinnedFile, Sha256, WeightsError, pin_all, refuse_code, regular_files, verify
from models.weights.lock import LOCK, fits, update
from models.weights.sources import FETCHERS, progress, run_converter, share_in, share_of
from models.weights.stanzas import Stanza, read, repositories

__all__ = ["Stanza", "UnlockedError", "WeightsError", "ensure", "hashes_of", "home_folder", "manifest"]

SHIPPED = Path(__file__).with_name("manifest.toml")
OWN = "weights.toml"
PINS = "pins.json"


class UnlockedError(WeightsError):
    """Weights of the hub that are not locked, or that were locked as something else."""


class Pins(Frozen):
    """Record of a conversion. `made_from` are the hashes of the files that went in."""

    made_from: tuple[Sha256, ...]
    files: dict[str, PinnedFile]


def home_folder() -> Path:
    """`PARLANCE_HOME`, or `var` under the current folder."""
    return Path(os.environ.get("PARLANCE_HOME") or "var").absolute()


def is_offline() -> bool:
    """Says if `PARLANCE_OFFLINE` forbids the network."""
    return os.environ.get("PARLANCE_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def manifest(home: Path | None = None, *, locked_here: bool = True) -> dict[str, Stanza]:
    """Every stanza by name; those of `home` replace the shipped ones. Raises WeightsError for what cannot be read.

    `locked_here` counts in what was locked at its first use, which was not reviewed.
    """
    home = home or home_folder()
    stanzas: dict[str, Stanza] = {}
    for path in (*([home / LOCK.name] if locked_here else []), SHIPPED, LOCK, home / OWN):
        stanzas |= read(path)
    return stanzas


def ensure(name: str, *, offline: bool | None = None, may_lock: bool = False) -> Path:
    """The verified folder of the weights `name`, fetched and converted first if it is not there.

    Args:
        name: a stanza of the manifest.
        offline: never touch the network; None leaves it to `PARLANCE_OFFLINE`.
        may_lock: unlocked weights of the hub are locked now, in the home folder.

    Raises:
        WeightsError: missing, broken, or not to be trusted; its text says what to do.
    """
    home = home_folder()
    offline = is_offline() if offline is None else offline
    if may_lock and not offline:
        _lock_here(name, home)
    stanza = _stanza(name, home)
    store = home / "weights"
    if stanza.kind == "dir":
        return _in_place(name, stanza, home)
    folder = store / name
    if not _is_complete(folder, stanza):
        if offline and not folder.is_dir():
            raise WeightsError(
                f"the weights `{name}` are not in `{folder}`, and offline mode is on: "
                f"run `make weights` with a network, or copy the folder from a machine that has it"
            )
        store.mkdir(parents=True, exist_ok=True)
        (store / ".partial").mkdir(exist_ok=True)
        # A second process waits here and then finds the folder.
        with FileLock(store / ".partial" / f"{name}.lock"):
            if not _is_complete(folder, stanza):
                _fetch(name, stanza, store)
    _verify_stored(name, stanza, store)
    return folder


def is_stored(name: str) -> bool:
    """Says if the weights `name` need not be fetched or converted before they can be verified."""
    stanzas, home = manifest(), home_folder()
    return name in stanzas and (stanzas[name].kind == "dir" or _is_complete(home / "weights" / name, stanzas[name]))


def hashes_of(model: Model, folder: Path) -> dict[str, str]:
    """SHA-256 of each file of the weights of `model`, which lie in `folder`."""
    name = (model.serving and model.serving.weights) or model.id
    return {file: pin.sha256 for file, pin in pin_all(folder, _digests(name, home_folder() / "weights")).items()}


def check(name: str, *, only_pinned: bool = False) -> None:
    """Raises WeightsError for a name that nothing is known of. Fetches and reads no weights.

    With `only_pinned`, weights of the hub that no reviewed lock has are refused too, and so is a folder if its
    stanza lists no files: whatever lies there would be loaded.
    """
    home = home_folder()
    if not only_pinned and name in repositories(home) and name not in manifest(home):
        return  # locked at its first use
    stanza = _stanza(name, home, locked_here=not only_pinned)
    if only_pinned and not stanza.files:
        raise WeightsError(
            f"the weights `{name}` are a folder with files that are not pinned; "
            f"`python -m launch weights pin {name} {stanza.source[0]} --licence ...` prints a stanza that does"
        )


def _lock_here(name: str, home: Path) -> None:
    repository = repositories(home).get(name)
    if repository and name not in manifest(home):
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / f"{LOCK.name}.lock"), progress(f"looking up weights {name}"):
            update({name: repository}, home / LOCK.name)


def _stanza(name: str, home: Path, *, locked_here: bool = True) -> Stanza:
    stanzas, repository = manifest(home, locked_here=locked_here), repositories(home).get(name)
    if repository and name not in stanzas:
        raise UnlockedError(
            f"the weights `{name}` are not locked to a commit of `{repository.repository}`: run `python -m launch "
            f"weights lock PROFILE` where the model hub can be reached, and commit {LOCK.name}"
        )
    is_own = name in read(home / OWN)  # and may differ from what repositories.toml names
    if repository and stanzas[name].kind == "hub" and not is_own and not fits(stanzas[name], repository):
        raise UnlockedError(
            f"the weights `{name}` were locked for another repository, licence or choice of files than "
            f"repositories.toml names now: run `python -m launch weights lock PROFILE`, and commit {LOCK.name}"
        )
    if name not in stanzas:
        raise WeightsError(
            f"there are no weights `{name}`; add a stanza to `{home / 'weights.toml'}` "
            f"(`python -m launch weights pin --help` writes one), or choose another PROFILE"
        )
    return stanzas[name]


def _digests(name: str, store: Path) -> Digests:
    return Digests(store / ".digests" / f"{name}.json")


def _in_place(name: str, stanza: Stanza, home: Path) -> Path:
    """The folder of a `dir:` source, checked where it lies."""
    folder = home / Path(stanza.place).expanduser()
    if not folder.is_dir():
        raise WeightsError(f"the weights `{name}` belong in `{folder}`, which does not exist; put the files there")
    digests = _digests(name, home / "weights")
    verify(folder, stanza.files, digests)
    digests.save()
    return folder


def _verify_stored(name: str, stanza: Stanza, store: Path) -> None:
    folder, digests = store / name, _digests(name, store)
    pins: Mapping[str, PinnedFile] = stanza.files
    if stanza.convert:
        conversion = _read_pins(folder)
        if conversion.made_from != _hashes(stanza):
            raise WeightsError(
                f"`{folder}` was made from weights other than those pinned now; delete it and run `make weights`"
            )
        pins = conversion.files | {PINS: digests.pin(folder / PINS)}
    verify(folder, pins, digests)
    digests.save()


def _is_complete(folder: Path, stanza: Stanza) -> bool:
    """Says if `folder` is there, and not as a release left it that did not convert these weights."""
    return folder.is_dir() and not (stanza.convert and regular_files(folder).keys() == stanza.files.keys())


def _fetch(name: str, stanza: Stanza, store: Path) -> None:
    """Fetches, verifies and converts beside the store, then moves the result there in one step.

    What an older release has fetched and not converted stands for the download, and goes last.
    """
    partial, folder = store / ".partial" / name, store / name
    fetched, digests = partial / "fetched", _digests(name, store)
    if folder.is_dir():
        shutil.copytree(folder, fetched, dirs_exist_ok=True)
    elif not _is_verified(fetched, stanza, digests):  # as a start that was ended amid its conversion has left it
        if stanza.kind != "hub":  # which continues a broken download
            shutil.rmtree(partial, ignore_errors=True)
        fetched.mkdir(parents=True, exist_ok=True)
        size = stanza.size_bytes
        with progress(f"fetching weights {name}, {size >> 20} MiB", lambda: share_in(partial, size)):
            FETCHERS[stanza.kind](stanza, fetched)
    try:
        verify(fetched, stanza.files, digests)
        result = _convert(name, stanza, fetched, digests) if stanza.convert else fetched
    except WeightsError:
        shutil.rmtree(partial, ignore_errors=True)  # never continue from a file that is wrong
        raise
    digests.save()
    if folder.is_dir():
        folder.rename(partial / "unconverted")
    result.rename(folder)
    shutil.rmtree(partial, ignore_errors=True)


def _is_verified(folder: Path, stanza: Stanza, digests: Digests) -> bool:
    """Says if `folder` holds all that the stanza pins, unchanged."""
    with suppress(WeightsError):
        verify(folder, stanza.files, digests)
        return True
    return False


def _convert(name: str, stanza: Stanza, fetched: Path, digests: Digests) -> Path:
    """The folder made by the stanza's converter, with its pins."""
    converted = fetched.parent / "converted"
    shutil.rmtree(converted, ignore_errors=True)
    source = fetched / next(iter(stanza.files)) if len(stanza.files) == 1 else fetched
    with progress(f"converting weights {name} (once)", lambda: share_of(converted)):
        run_converter(str(stanza.convert), source, converted)
    refuse_code(regular_files(converted))
    pins = Pins(made_from=_hashes(stanza), files=pin_all(converted, digests))
    (converted / PINS).write_text(pins.model_dump_json(indent=1))
    return converted


def _hashes(stanza: Stanza) -> tuple[str, ...]:
    return tuple(sorted(file.sha256 for file in stanza.files.values()))


def _read_pins(folder: Path) -> Pins:
    try:
        return Pins.model_validate(json.loads((folder / PINS).read_text()))
    except (OSError, ValueError) as error:
        raise WeightsError(f"`{folder}` has no readable `{PINS}`; delete that folder and run `make weights`") from error
