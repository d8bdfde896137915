"""Installs what a lock pins: with uv, ten times as fast as pip, or with pip where uv cannot.

    .venv/bin/python requirements/install.py LOCK [OPTION ...]

Options are those of `pip install` that uv has too. uv shows its own progress. It reads no configuration of pip, so the
indexes of that are passed on to it. Where it fails, pip installs, and this program ends with the exit status of pip.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", " "),
}
"""Setting of pip to the environment variable of uv, and what separates several values there."""


def environment() -> dict[str, str]:
    """Returns variables for uv that say what pip's configuration does; those that are set already stay."""
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    found = dict[str, str]()
    for line in listing.splitlines():  # sections.setting='value'; those of the environment are stronger and come first
        setting, _, value = line.partition("=")
        if known := SETTINGS.get(setting.rpartition(".")[2]):
            variable, separator = known
            found.setdefault(variable, separator.join(filter(exists, str(ast.literal_eval(value)).split())))
    # As pip has it, every index counts: what may be installed is named by its hash.
    return found | {"UV_INDEX_STRATEGY": "unsafe-best-match"} | dict(os.environ)


def exists(place: str) -> bool:
    """Says if an index can be read, as far as that shows without the network. uv fails at a folder that is missing."""
    return not place.startswith("file://") or Path(place.removeprefix("file://")).exists()


def main(lock: str, *options: str) -> int:
    """Returns the exit status of what installed."""
    arguments, started_s = ["install", *options, "-r", lock], time.monotonic()
    uv = [str(Path(sys.executable).with_name("uv")), "pip", *arguments, "--python", sys.executable, "--quiet"]
    if sys.stderr.isatty():
        uv.remove("--quiet")
    if subprocess.run(uv, env=environment()).returncode:
        print("uv could not install that; pip is tried, which takes some minutes", file=sys.stderr)
        if status := subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet"]).returncode:
            return status
    total = sum("==" in line for line in Path(lock).read_text("utf-8").splitlines() if not line.startswith("#"))
    print(f"installed {total} packages of {lock} in {time.monotonic() - started_s:.0f} s")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
