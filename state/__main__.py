"""`python -m state`: organisations, keys, budgets and usage on the command line."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from contract import VERSION
from contract.access import TARIFFS, Scope
from contract.errors import ApiError
from state.cli import commands, reports
from state.cli.run import run
from state.open import DATABASE_VARIABLE, HOME_VARIABLE

ABOUT = f"""Manage the organisations, API keys, budgets and usage of a Parlance server.

The command opens the database of the server ({HOME_VARIABLE}, default var/, or {DATABASE_VARIABLE}) and works beside a
running server, which sees changes within 5 seconds."""

FIRST_STEPS = f"""first steps:
  python -m state org create acme --plan standard
  python -m state key create --org acme --scopes chat,embeddings    prints the key, once
  python -m state budget set --org acme --limit-micro-eur 5000000   5 EUR
  python -m state usage --org acme

plans:  {", ".join(TARIFFS)}
scopes: {", ".join(Scope)} (or all)
1 EUR is 1,000,000 micro-EUR."""


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one sentence instead of a page."""

    def error(self, message: str) -> NoReturn:
        """Exits with 2 and one sentence on stderr."""
        self.exit(2, f"{message}; see `{self.prog} --help`\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    options = command_line().parse_args(words)
    home = Path(os.environ.get(HOME_VARIABLE, "var"))
    try:
        asyncio.run(run(options, shlex.join(words), home, os.environ.get(DATABASE_VARIABLE)))
    except ValueError as mistake:
        print(mistake, file=sys.stderr)
        return 2
    except (ApiError, OSError) as error:
        print(getattr(error, "message", error), file=sys.stderr)
        return 1
    return 0


def command_line() -> Parser:
    """The arguments of `python -m state`."""
    parser = Parser(
        prog="python -m state",
        description=ABOUT,
        epilog=FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"Parlance {VERSION}")
    nouns = parser.add_subparsers(metavar="org|key|budget|usage|audit|secret|check|migrate", required=True)
    _org_commands(nouns.add_parser("org", help="organisations: create, list, change, models, default-decision-model"))
    _key_commands(nouns.add_parser("key", help="API keys: create, list, revoke"))
    _budget_commands(nouns.add_parser("budget", help="spend limits: set, list"))
    _usage_command(_command(nouns, "usage", "what was billed, as a table, CSV or JSON", report=reports.usage_report))
    about = "what was done on this command line, by whom, and with which result"
    add = _command(nouns, "audit", about, report=reports.audit_report)
    add("--since", **SINCE)
    add("--format", **FORMAT)
    _secret_commands(nouns.add_parser("secret", help="the service's own secret: rotate, list"))
    _command(nouns, "check", "verify that usage, budgets and reservations add up", reading=reports.check)
    _migrate_command(nouns.add_parser("migrate", help="upgrade the schema of the database, or downgrade it"))
    return parser


SINCE: dict[str, Any] = {"metavar": "YYYY-MM-DD", "help": "from the start of this day, UTC"}
FORMAT: dict[str, Any] = {"choices": ("table", "json", "csv"), "default": "table"}
Add = Callable[..., argparse.Action]
"""`add_argument` of a command."""


def _command(names: Any, name: str, about: str, **what: object) -> Add:
    """Adds a command to those of `names`. `what` it does is what `run` looks for."""
    parser: argparse.ArgumentParser = names.add_parser(name, help=about)
    parser.set_defaults(**what)
    return parser.add_argument


def _org_commands(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="create|list|change|models|default-decision-model", required=True)
    add = _command(verbs, "create", "add an organisation", act=commands.org_create, creates=True)
    add("name")
    add("--plan", required=True, help=", ".join(TARIFFS))
    add("--entitle", default="", metavar="voices", help="entitlements beyond the plan")
    _command(verbs, "list", "show all organisations", reading=reports.org_list)

    add = _command(verbs, "change", "change plan, entitlements or agreed limits", act=commands.org_change)
    add("name")
    add("--plan", help=", ".join(TARIFFS))
    add("--entitle", metavar="voices", help="the new list of entitlements; '' for none")
    add("--requests-per-minute", type=int, metavar="N", help="limit of each key; 0 means the plan's limit")
    add("--concurrent-streams", type=int, metavar="N", help="limit of each key; 0 means the plan's limit")

    models = verbs.add_parser("models", help="show or set the models that an organisation may use")
    models.add_argument("name")
    which = models.add_mutually_exclusive_group()
    which.add_argument("--only", metavar="ID,ID", help="only these models")
    which.add_argument("--all", action="store_true", help="all models of the server")
    models.set_defaults(act=commands.org_models, shows_without=("only", "all"))

    about, act = "show or set the model for decisions that name none", commands.org_default_decision_model
    add = _command(verbs, "default-decision-model", about, act=act, shows_without=("model",))
    add("name")
    add("model", nargs="?", help="a model id, or `none` for the server's default")


def _key_commands(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="create|list|revoke", required=True)
    about = "create a key; prints the key alone, and never shows it again"
    add = _command(verbs, "create", about, act=commands.key_create)
    add("--org", required=True, metavar="NAME")
    add("--scopes", required=True, metavar="A,B", help=f"{', '.join(Scope)}, or all")
    add("--user", metavar="NAME", help="a person with a separate count and limit of spending")
    add("--label", metavar="TEXT", help="a note for `key list`")
    add("--for", dest="valid_for", metavar="8h", help="30m, 8h or 7d: it expires then (default never)")
    add("--prefix", default="prl", metavar="TEXT", help="first part of the key (default prl)")
    add = _command(verbs, "list", "show the keys of an organisation", reading=reports.key_list)
    add("--org", required=True, metavar="NAME")
    about = "revoke a key; every server refuses it within 5 seconds"
    _command(verbs, "revoke", about, act=commands.key_revoke)("id", help="first column of `key list`")


def _budget_commands(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="set|list", required=True)
    about = "limit what an organisation or one of its users may spend, in all or each month"
    setting = verbs.add_parser("set", help=about)
    add = setting.add_argument
    add("--org", required=True, metavar="NAME")
    add("--user", metavar="NAME")
    amount = setting.add_mutually_exclusive_group(required=True)
    amount.add_argument("--limit-micro-eur", type=int, metavar="N", help="0 forbids every billed request")
    amount.add_argument("--unlimited", action="store_true")
    add("--every", choices=("month", "never"), help="spending counts from 0 each month (default as it is)")
    add("--time-zone", metavar="Europe/Berlin", help="of the months (default UTC)")
    setting.set_defaults(act=commands.budget_set)
    about = "show limits, spending and reservations in micro-EUR"
    add = _command(verbs, "list", about, reading=reports.budget_list)
    add("--org", required=True, metavar="NAME")


def _usage_command(add: Add) -> None:
    add("--org", metavar="NAME", help="only this organisation (default: all)")
    add("--user", metavar="NAME")
    add("--key", metavar="ID")
    add("--model", metavar="ID")
    add("--since", **SINCE)
    add("--until", metavar="YYYY-MM-DD", help="before the start of this day, UTC")
    add("--by", metavar="A,B", help="sum per organisation, user, key, model, line, unit or day")
    add("--format", **FORMAT)


def _secret_commands(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="list|rotate", required=True)
    about = "show the generations, and how many keys still depend on each"
    _command(verbs, "list", about, reading=reports.secret_list)
    about = "add a generation and drop the oldest; restart the server afterwards"
    add = _command(verbs, "rotate", about, act=commands.secret_rotate)
    add("--force", action="store_true", help="rotate even if keys become invalid with the oldest generation")


def _migrate_command(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run it once before servers of a new version start on a database that several use. A server that is alone with "
        "its SQLite file does so itself."
    )
    about = "a revision such as 0006; default: the newest of this version"
    parser.add_argument("--to", default="head", metavar="REVISION", dest="migrate_to", help=about)


if __name__ == "__main__":
    sys.exit(main())
