"""`python -m state`: organisations, keys, budgets and usage on the command line."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

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
    _usage_command(nouns.add_parser("usage", help="what was billed, as a table, CSV or JSON"))
    _audit_command(nouns.add_parser("audit", help="what was done on this command line, by whom, and with which result"))
    _secret_commands(nouns.add_parser("secret", help="the service's own secret: rotate, list"))
    check = nouns.add_parser("check", help="verify that usage, budgets and reservations add up")
    check.set_defaults(reading=reports.check)
    _migrate_command(nouns.add_parser("migrate", help="upgrade the schema of the database, or downgrade it"))
    return parser


def _org_commands(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="create|list|change|models|default-decision-model", required=True)
    create = verbs.add_parser("create", help="add an organisation")
    create.add_argument("name")
    create.add_argument("--plan", required=True, help=", ".join(TARIFFS))
    create.add_argument("--entitle", default="", metavar="voices", help="entitlements beyond the plan")
    create.set_defaults(act=commands.org_create)
    verbs.add_parser("list", help="show all organisations").set_defaults(reading=reports.org_list)

    change = verbs.add_parser("change", help="change plan, entitlements or agreed limits")
    change.add_argument("name")
    change.add_argument("--plan", help=", ".join(TARIFFS))
    change.add_argument("--entitle", metavar="voices", help="the new list of entitlements; '' for none")
    change.add_argument(
        "--requests-per-minute", type=int, metavar="N", help="limit of each key; 0 means the plan's limit"
    )
    change.add_argument(
        "--concurrent-streams", type=int, metavar="N", help="limit of each key; 0 means the plan's limit"
    )
    change.set_defaults(act=commands.org_change)

    models = verbs.add_parser("models", help="show or set the models that an organisation may use")
    models.add_argument("name")
    which = models.add_mutually_exclusive_group()
    which.add_argument("--only", metavar="ID,ID", help="only these models")
    which.add_argument("--all", action="store_true", help="all models of the server")
    models.set_defaults(act=commands.org_models, shows_without=("only", "all"))

    decision = verbs.add_parser("default-decision-model", help="show or set the model for decisions that name none")
    decision.add_argument("name")
    decision.add_argument("model", nargs="?", help="a model id, or `none` for the server's default")
    decision.set_defaults(act=commands.org_default_decision_model, shows_without=("model",))


def _key_commands(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="create|list|revoke", required=True)
    create = verbs.add_parser("create", help="create a key; prints the key alone, and never shows it again")
    create.add_argument("--org", required=True, metavar="NAME")
    create.add_argument("--scopes", required=True, metavar="A,B", help=f"{', '.join(Scope)}, or all")
    create.add_argument("--user", metavar="NAME", help="a person whose spend is counted and limited separately")
    create.add_argument("--label", metavar="TEXT", help="a note for `key list`")
    create.add_argument("--for", dest="valid_for", metavar="8h", help="30m, 8h or 7d: it expires then (default never)")
    create.add_argument("--prefix", default="prl", metavar="TEXT", help="first part of the key (default prl)")
    create.set_defaults(act=commands.key_create)
    listing = verbs.add_parser("list", help="show the keys of an organisation")
    listing.add_argument("--org", required=True, metavar="NAME")
    listing.set_defaults(reading=reports.key_list)
    revoke = verbs.add_parser("revoke", help="revoke a key; every server refuses it within 5 seconds")
    revoke.add_argument("id", help="first column of `key list`")
    revoke.set_defaults(act=commands.key_revoke)


def _budget_commands(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="set|list", required=True)
    setting = verbs.add_parser(
        "set", help="limit what an organisation or one of its users may spend, in all or each month"
    )
    setting.add_argument("--org", required=True, metavar="NAME")
    setting.add_argument("--user", metavar="NAME")
    amount = setting.add_mutually_exclusive_group(required=True)
    amount.add_argument("--limit-micro-eur", type=int, metavar="N", help="0 forbids every billed request")
    amount.add_argument("--unlimited", action="store_true")
    setting.add_argument(
        "--every", choices=("month", "never"), help="what is spent counts anew each month (default as it is)"
    )
    setting.add_argument("--time-zone", metavar="Europe/Berlin", help="whose months (default UTC)")
    setting.set_defaults(act=commands.budget_set)
    listing = verbs.add_parser("list", help="show limits, spending and reservations in micro-EUR")
    listing.add_argument("--org", required=True, metavar="NAME")
    listing.set_defaults(reading=reports.budget_list)


def _usage_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--org", metavar="NAME", help="only this organisation (default: all)")
    parser.add_argument("--user", metavar="NAME")
    parser.add_argument("--key", metavar="ID")
    parser.add_argument("--model", metavar="ID")
    parser.add_argument("--since", metavar="YYYY-MM-DD", help="from the start of this day, UTC")
    parser.add_argument("--until", metavar="YYYY-MM-DD", help="before the start of this day, UTC")
    parser.add_argument("--by", metavar="A,B", help="sum per organisation, user, key, model, line, unit or day")
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    parser.set_defaults(report=reports.usage_report)


def _audit_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--since", metavar="YYYY-MM-DD", help="from the start of this day, UTC")
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    parser.set_defaults(report=reports.audit_report)


def _secret_commands(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="list|rotate", required=True)
    verbs.add_parser("list", help="show the generations, and how many keys still depend on each").set_defaults(
        reading=reports.secret_list
    )
    rotate = verbs.add_parser("rotate", help="add a generation and drop the oldest; restart the server afterwards")
    rotate.add_argument(
        "--force", action="store_true", help="rotate even if keys become invalid with the oldest generation"
    )
    rotate.set_defaults(act=commands.secret_rotate)


def _migrate_command(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run it once before servers of a new version start on a database that several use. A server that is alone with "
        "its SQLite file does so itself."
    )
    parser.add_argument(
        "--to",
        default="head",
        metavar="REVISION",
        dest="migrate_to",
        help="a revision such as 0006; default: the newest of this version",
    )


if __name__ == "__main__":
    sys.exit(main())
