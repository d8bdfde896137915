"""`python -m launch weights`: fetch, verify, list, pin and lock weights. Exit status 1 with one sentence on failure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import configs
from models.weights.files import Digests, WeightsError, pin_all, refuse_code, regular_files
from models.weights.lock import LOCK, update
from models.weights.stanzas import Stanza, repositories
from models.weights.store import ensure, home_folder, is_offline, manifest

EXAMPLES = """examples:
  python -m launch weights list
  python -m launch weights fetch all-minilm-l6-v2 smollm2-135m-instruct
  python -m launch weights fetch --profile production
  python -m launch weights verify --offline
  python -m launch weights lock production
  python -m launch weights lock production --upgrade && git diff models/weights/hub.lock
  python -m launch weights pin my-model dir:/models/my-model --licence MIT >> var/weights.toml

The names are those of `serving.weights` in the catalogue. PARLANCE_HOME (default: var) is where weights lie;
PARLANCE_OFFLINE=1 is the same as --offline."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    options = command_line().parse_args(arguments)
    command: Callable[[argparse.Namespace], None] = options.command
    try:
        command(options)
    except WeightsError as error:
        sys.exit(f"weights: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def command_line() -> argparse.ArgumentParser:
    """The arguments of `python -m launch weights`."""
    parser = argparse.ArgumentParser(
        prog="python -m launch weights",
        description="Weights of the models: fetched once, pinned by hash, verified before they are loaded.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    fetch = commands.add_parser(
        "fetch", help="fetch, verify and convert weights; those on this machine are only verified"
    )
    fetch.add_argument(
        "names", nargs="*", metavar="NAME", help="a name in the manifest; `-` reads names from standard input"
    )
    fetch.add_argument("--profile", choices=configs.PROFILES, help="all of this profile, but folders of your own")
    fetch.set_defaults(command=_fetch)
    verify = commands.add_parser("verify", help="verify the weights on this machine; fetches nothing")
    verify.add_argument("names", nargs="*", metavar="NAME", help="default: all weights on this machine")
    verify.set_defaults(command=_verify)
    listing = commands.add_parser("list", help="show the manifest and which weights are on this machine")
    listing.set_defaults(command=_list)
    pin = commands.add_parser("pin", help="print a stanza with the hashes of a local folder")
    pin.add_argument("name", metavar="NAME")
    pin.add_argument(
        "source", metavar="SOURCE", help="`dir:FOLDER`, or `hub:OWNER/NAME` with --revision (downloads it)"
    )
    pin.add_argument("--revision", help="40-digit revision of a hub source")
    pin.add_argument("--licence", required=True, help="SPDX name, e.g. Apache-2.0")
    pin.set_defaults(command=_pin)
    lock = commands.add_parser("lock", help="lock the weights of the model hub to commits and hashes; fetches none")
    lock.add_argument("profile", metavar="PROFILE", help="lock the weights of this profile; all other locks stay")
    lock.add_argument("--upgrade", action="store_true", help="move existing locks to the newest commits too")
    lock.add_argument("--into", type=Path, default=LOCK, metavar="FILE", help="default: models/weights/hub.lock")
    lock.set_defaults(command=_lock)
    for command in (fetch, verify, listing, pin, lock):
        command.add_argument("--offline", action="store_true", default=None, help="never use the network")
    return parser


def _fetch(options: argparse.Namespace) -> None:
    names = [word for name in options.names for word in (sys.stdin.read().split() if name == "-" else [name])]
    if options.profile:
        there = manifest()
        names += [n for n in sorted(_weights_of(options.profile)) if n not in there or there[n].kind != "dir"]
    if not names:
        raise WeightsError("`fetch` needs names, or --profile for all weights of one")
    for name in dict.fromkeys(names):
        sys.stdout.write(f"{name}  {ensure(name, offline=options.offline, may_lock=True)}\n")


def _verify(options: argparse.Namespace) -> None:
    store = home_folder() / "weights"
    for name in options.names or [name for name in manifest() if (store / name).is_dir()]:
        sys.stdout.write(f"{name}  verified in {ensure(name, offline=True)}\n")


def _list(_options: argparse.Namespace) -> None:
    store = home_folder() / "weights"
    for name, stanza in manifest().items():
        there = stanza.kind == "dir" or (store / name).is_dir()
        state = "here" if there else "not fetched"
        sys.stdout.write(
            f"{name:28} {state:12} {stanza.size_bytes / 1e6:9.1f} MB  {stanza.licence:12} {' '.join(stanza.source)}\n"
        )
    for name, repository in repositories(home_folder()).items():
        if name not in manifest():
            sys.stdout.write(f"{name:28} {'not locked':12} {'?':>9} MB  {repository.licence:12} {repository.source}\n")


def _pin(options: argparse.Namespace) -> None:
    kind, _, place = options.source.partition(":")
    with TemporaryDirectory() as spool:
        if kind == "hub" and options.revision and not options.offline:
            folder = _download(place, options.revision, Path(spool) / "files")
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
    sys.stdout.write("\n".join(lines) + "\n")


def _lock(options: argparse.Namespace) -> None:
    if is_offline() if options.offline is None else options.offline:
        raise WeightsError("`lock` must reach the model hub, but offline mode is on")
    hub = repositories(home_folder())
    selected = {name: hub[name] for name in sorted(_weights_of(options.profile)) if name in hub}
    changed = update(selected, options.into, upgrade=options.upgrade)
    for name, (before, now) in changed.items():
        sys.stdout.write(f"{name:28} {_commit(before)} -> {_commit(now)}  {now.size_bytes / 1e9:6.1f} GB\n")
    sys.stdout.write(f"{len(selected)} weights of `{options.profile}` come from the hub; {len(changed)} changed\n")


def _weights_of(profile: str) -> set[str]:
    try:
        return {model.weights for model in configs.load(profile).deployed() if model.weights}
    except configs.CatalogError as error:
        raise WeightsError(str(error)) from None


def _commit(stanza: Stanza | None) -> str:
    return str(stanza.revision)[:12] if stanza else "not locked  "


def _download(repository: str, revision: str, folder: Path) -> Path:
    import shutil

    from huggingface_hub import snapshot_download

    allowed = ["*.safetensors", "*.json", "*.txt", "*.model", "*.onnx", "*.bin", "*.jinja"]
    ignored = ["pytorch_model*", "training_args*", "onnx/*", "openvino/*"]
    snapshot_download(repository, revision=revision, local_dir=folder, allow_patterns=allowed, ignore_patterns=ignored)
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return folder
