"""Attacks a running graph, and says in a table what each attack tried, saw, and was allowed to see.

    python -m benchmarks.attacks                                           a graph of its own, all attacks, some minutes
    python -m benchmarks.attacks --base-url http://127.0.0.1:8000            one that runs, with the key in PARLANCE_KEY
    python -m benchmarks.attacks --short schema-bombs held-bodies            small ones, and only these
    python -m benchmarks.attacks --list

Exit 0: every attack that could be tried was held; where `CI` is set, every attack was tried and held. Only addresses
of this machine are attacked, unless it is said that the host is one's own. Without the key of another organisation in
PARLANCE_OTHER_KEY, what one organisation does to another cannot be tried.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager

from benchmarks.attacks import (  # noqa: F401  # each puts its attacks on the list
    bodies,
    connections,
    engines,
    frames,
    grammars,
    idempotency,
    messages,
    recordings,
    requests,
    sockets,
    tenants,
    turns,
    voices,
)
from benchmarks.attacks.attack import ATTACKS, Attack, Verdict, judge
from benchmarks.attacks.target import is_loopback, opened
from benchmarks.servers import customer, parlance, working_folder

OTHER = "PARLANCE_OTHER_KEY"
PLAN = "pro"
WORDS = {True: "held", False: "**not held**", None: "not tried"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exits with 1 if an attack was not held, in CI also if one could not be tried."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(ATTACKS):
        parser.error(f"there is no attack {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}")
    if options.list:
        print("\n".join(f"{attack.name:<30}{attack.tries}" for attack in ATTACKS.values()))
        return
    if options.base_url and not is_loopback(options.base_url) and not options.i_own_this_host:
        parser.error(f"{options.base_url} is not on this machine; --i-own-this-host says that you may attack it")
    chosen = [ATTACKS[name] for name in options.names] or list(ATTACKS.values())
    with ExitStack() as running:
        url, key, other_key = options.base_url, os.environ.get("PARLANCE_KEY", ""), os.environ.get(OTHER, "")
        if not url:
            url, key, other_key = running.enter_context(graph())
        if not key:
            parser.error("PARLANCE_KEY must hold a key with every scope; its organisation pays")
        verdicts = asyncio.run(attack_all(url.rstrip("/"), key, other_key, chosen, is_short=options.short))
    # What nobody noticed to be missing would stay missing: in CI nothing may be.
    allowed = {True} if os.environ.get("CI") else {True, None}
    sys.exit(any(verdict.passed not in allowed for verdict in verdicts))


@contextmanager
def graph() -> Iterator[tuple[str, str, str]]:
    """The graph of `embedded` as `make serve` runs it: its address, and a key of each of two organisations."""
    with working_folder("attacks-") as folder, parlance(folder) as server:
        key, other_key = (customer({"PARLANCE_HOME": server.home}, name, PLAN) for name in ("attacker", "bystander"))
        yield server.url, key, other_key


async def attack_all(url: str, key: str, other_key: str, chosen: Sequence[Attack], *, is_short: bool) -> list[Verdict]:
    """The verdicts on `chosen`, one after the other, each as a row on standard output as soon as it is known."""
    target = await opened(url, key, other_key, is_short=is_short)
    print("| attack | tried | saw | allowed | |\n|---|---|---|---|---|", flush=True)
    verdicts = []
    async with aclosing(target.client):
        for attack in chosen:
            if attack.is_long and is_short:
                continue
            verdicts.append(verdict := await judge(attack, target))
            print(
                f"| {attack.name} | {attack.tries} | {verdict.saw} | {attack.allowed} | {WORDS[verdict.passed]} |",
                flush=True,
            )
    return verdicts


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__, formatter_class=form)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of attacks; all of them, where none is named")
    parser.add_argument("--base-url", help="of a graph that runs, without a path")
    parser.add_argument("--short", action="store_true", help="small attacks, and none that takes a minute")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--i-own-this-host", action="store_true", help="attack a host that is not this machine")
    return parser


if __name__ == "__main__":
    main()
