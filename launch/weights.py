"""Weights of the models: fetched once, pinned by hash, verified before they are loaded.

examples:
  python -m launch weights list
  python -m launch weights fetch all-minilm-l6-v2 smollm2-135m-instruct
  python -m launch weights fetch --profile production
  python -m launch weights verify --offline
  python -m launch weights lock production
  python -m launch weights lock production --upgrade && git diff models/weights/hub.lock
  python -m launch weights pin my-model dir:/models/my-model --licence MIT >> var/weights.toml

The names are those of `serving.weights` in the catalogue. PARLANCE_HOME (default: var) is where weights lie;
PARLANCE_OFFLINE=1 is the same as --offline.
"""  # noqa: D405

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import configs
from contract.base import ProfileError
from deployments.fork_server.plan import QUIET_S
from deployments.fork_server.server import wait_until_idle
from models.weights.files import Digests, WeightsError, pin_all, refuse_code, regular_files
from models.weights.lock import LOCK, update
from models.weights.sources import download
from models.weights.stanzas import USUAL, repositories
from models.weights.store import ensure, home_folder, is_offline, manifest

NOT_LOADED = ("pytorch_model*", "training_args*", "onnx/*", "openvino/*")
"""Files of a repository that engines do not load, with the usual endings of those that they do."""

DESCRIPTION, _, EXAMPLES = __doc__.strip().partition("\n\n")


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    options = command_line().parse_args(arguments)
    try:
        options.command(options)
    except ProfileError as error:
        sys.exit(f"weights: {error}")


def command_line() -> argparse.ArgumentParser:
    """The arguments of `python -m launch weights`."""
    parser = argparse.ArgumentParser(
        prog="python -m launch weights",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(run: Callable[[argparse.Namespace], None], about: str) -> Callable[..., Any]:
        subparser = commands.add_parser(run.__name__.removeprefix("_"), help=about)
        subparser.set_defaults(command=run)
        return subparser.add_argument

    fetch = command(_fetch, "fetch, verify and convert weights; those on this machine are only verified")
    fetch("names", nargs="*", metavar="NAME", help="a name in the manifest; `-` reads names from standard input")
    fetch("--profile", choices=configs.PROFILES, help="all of this profile, but folders of your own")
    fetch("--when-idle", action="store_true", help="begin when the processor has been idle for some seconds")
    verify = command(_verify, "verify the weights on this machine; fetches nothing")
    verify("names", nargs="*", metavar="NAME", help="default: all weights on this machine")
    listing = command(_list, "show the manifest and which weights are on this machine")
    pin = command(_pin, "print a stanza with the hashes of a local folder")
    pin("name", metavar="NAME")
    pin("source", metavar="SOURCE", help="`dir:FOLDER`, or `hub:OWNER/NAME` with --revision (downloads it)")
    pin("--revision", help="40-digit revision of a hub source")
    pin("--licence", required=True, help="SPDX name, e.g. Apache-2.0")
    lock = command(_lock, "lock the weights of the model hub to commits and hashes; fetches none")
    lock("profile", metavar="PROFILE", help="lock the weights of this profile; all other locks stay")
    lock("--upgrade", action="store_true", help="move existing locks to the newest commits too")
    lock("--into", type=Path, default=LOCK, metavar="FILE", help="default: models/weights/hub.lock")
    for add in (fetch, verify, listing, pin, lock):
        add("--offline", action="store_true", default=None, help="never use the network")
    return parser


def _fetch(options: argparse.Namespace) -> None:
    names = [word for name in options.names for word in (sys.stdin.read().split() if name == "-" else [name])]
    if options.profile:
        there = manifest()
        names += [n for n in sorted(_weights_of(options.profile)) if n not in there or there[n].kind != "dir"]
    if options.when_idle and not wait_until_idle(os.pidfd_open(os.getppid()), QUIET_S):
        return
    if not names:
        raise WeightsError("`fetch` needs names, or --profile for all weights of one")
    for name in dict.fromkeys(names):
        print(f"{name}  {ensure(name, offline=options.offline, may_lock=True)}")


def _verify(options: argparse.Namespace) -> None:
    store = home_folder() / "weights"
    for name in options.names or [name for name in manifest() if (store / name).is_dir()]:
        print(f"{name}  verified in {ensure(name, offline=True)}")


def _list(_options: argparse.Namespace) -> None:
    store = home_folder() / "weights"
    pinned = manifest()
    for name, stanza in pinned.items():
        state = "here" if stanza.kind == "dir" or (store / name).is_dir() else "not fetched"
        size = f"{stanza.size_bytes / 1e6:9.1f} MB"
        print(f"{name:28} {state:12} {size}  {stanza.licence:12} {' '.join(stanza.source)}")
    for name, repository in repositories(home_folder()).items():
        if name not in pinned:
            print(f"{name:28} {'not locked':12} {'?':>9} MB  {repository.licence:12} {repository.source}")


def _pin(options: argparse.Namespace) -> None:
    kind, _, place = options.source.partition(":")
    with TemporaryDirectory() as spool:
        if kind == "hub" and options.revision and not options.offline:
            folder = Path(spool) / "files"
            download(place, options.revision, folder, (*USUAL, "*.onnx", "*.bin"), NOT_LOADED)
        elif kind == "dir":
            folder = home_folder() / Path(place).expanduser()
        else:
            raise WeightsError("`pin` needs `dir:FOLDER`, or `hub:OWNER/NAME` with --revision and a network")
        refuse_code(regular_files(folder))
        pins = pin_all(folder, Digests(Path(spool) / "digests"))
    lines = [f'["{options.name}"]', f'source = "{options.source}"', f'licence = "{options.licence}"']
    lines += [f'revision = "{options.revision}"'] if options.revision else []
    lines += ["", f'["{options.name}".files]']
    lines += [f'"{name}" = {{ size = {pin.size}, sha256 = "{pin.sha256}" }}' for name, pin in pins.items()]
    print("\n".join(lines))


def _lock(options: argparse.Namespace) -> None:
    if is_offline() if options.offline is None else options.offline:
        raise WeightsError("`lock` must reach the model hub, but offline mode is on")
    hub = repositories(home_folder())
    selected = {name: hub[name] for name in sorted(_weights_of(options.profile)) if name in hub}
    changed = update(selected, options.into, upgrade=options.upgrade)
    for name, (before, now) in changed.items():
        known = str(before.revision)[:12] if before else "not locked  "
        print(f"{name:28} {known} -> {str(now.revision)[:12]}  {now.size_bytes / 1e9:6.1f} GB")
    print(f"{len(selected)} weights of `{options.profile}` come from the hub; {len(changed)} changed")


def _weights_of(profile: str) -> set[str]:
    return {model.weights for model in configs.load(profile).deployed() if model.weights}
