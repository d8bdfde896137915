"""Money as SQL: every change of a budget is one of these transactions, or of `upkeep.py` (mark, recover).

    reserve --> held --> settle --> settled, one usage line
                 | ^
                 | '--- top_up; mark: what was used so far
                 |----> recover: its process died; settled from the last mark, void without one
                 '----> void

A purse (`purse.py`) is held, too, and pays for requests without a row: their costs (settle), or the row that they get
after a while (mark).

The rowcount of one conditional update decides who moves a row out of `held`, so each reservation ends once. Rows are
always locked in the order reservations by id, organisation, users, so transactions cannot deadlock; budgets come last,
because all requests of an organisation share one. Ids of purses come after all others. Leases are written and compared
by the database's clock.

For every limit at every moment: spent (`months.py`) + held <= limit, unless the limit was lowered afterwards.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, Text, bindparam, insert, not_, or_, select, update

from state.billing.months import IS_CURRENT, SPENT, renew
from state.billing.usage import Bill, Entry, OverLimit, PurseGone, Usage
from state.database.base import INSERTS, NOW_MS, NOW_S
from state.database.tables import budgets, reservations, usage_lines

_as_json = json.JSONEncoder(sort_keys=True).encode

LEASE_S = 120
"""A reservation that is not renewed for this long is taken for orphaned, and ended."""

_amount = bindparam("amount", type_=BigInteger)
_org = (budgets.c.org_id == bindparam("of_org")) & budgets.c.user_id.is_(None)
_user = budgets.c.user_id == bindparam("of_user")
_users = budgets.c.user_id.in_(bindparam("of_users", expanding=True))
_left = budgets.c.limit_micro_eur - SPENT - budgets.c.held_micro_eur
_fits = or_(budgets.c.limit_micro_eur.is_(None), _amount <= _left)
_EXCEEDED = select(budgets.c.user_id).where(_org | _user, not_(_fits)).order_by(budgets.c.id)
_update = update(budgets).execution_options(by_driver=True)
_hold = _update.where(_fits).values(held_micro_eur=budgets.c.held_micro_eur + _amount)
_HOLD_ORG = _hold.where(_org)
_HOLD_USER = _hold.where(_user)
_move = _update.where(IS_CURRENT).values(
    held_micro_eur=budgets.c.held_micro_eur - bindparam("released"),
    spent_micro_eur=budgets.c.spent_micro_eur + bindparam("charged"),
)
_MOVE_ORG = _move.where(_org)
_MOVE_USER = _move.where(_user)
_LOCK_LEFT = (
    select(budgets.c.user_id, _left.label("left")).where(_org | _users).order_by(budgets.c.id).with_for_update()
)

_leased = {"lease_until": NOW_S + LEASE_S}
_marked = {
    "used_micro_eur": bindparam("cost", type_=BigInteger),
    "used_quantity": bindparam("quantity", type_=BigInteger),
    "used_unit": bindparam("unit", type_=Text),
    "used_quantities": bindparam("quantities", type_=Text),
}
_RESERVE = insert(reservations).values(state="held", created_at=NOW_S, lease_until=NOW_S + bindparam("lease_s"))
_still_held = (reservations.c.id == bindparam("of_id")) & (reservations.c.state == "held")
RENEW = update(reservations).where(_still_held).values(**_leased).execution_options(by_driver=True)
MARK = RENEW.values(**_marked)
_TOP_UP = MARK.values(held_micro_eur=reservations.c.held_micro_eur + _amount)
_PAY = RENEW.where(reservations.c.held_micro_eur >= _amount).values(
    held_micro_eur=reservations.c.held_micro_eur - _amount
)
# The inner query locks by id; the update alone would lock in any order.
_by_id = (
    select(reservations.c.id)
    .where(reservations.c.id.in_(bindparam("of_ids", expanding=True)), reservations.c.state == "held")
    .order_by(reservations.c.id)
    .with_for_update()
)
_END = (
    update(reservations)
    .where(reservations.c.id.in_(_by_id), reservations.c.state == "held")
    .values(state=bindparam("ended"))
    .returning(reservations.c.id, reservations.c.held_micro_eur)
)
_LINES = {
    dialect: new(usage_lines)
    .on_conflict_do_nothing()
    .values(at_ms=NOW_MS - bindparam("late_ms", type_=BigInteger))
    .returning(usage_lines.c.reservation_id)
    .execution_options(by_driver=True)
    for dialect, new in INSERTS.items()
}
COSTS = select(usage_lines.c.reservation_id, usage_lines.c.cost_micro_eur).where(
    usage_lines.c.reservation_id.in_(bindparam("of_ids", expanding=True))
)


def require_funds(connection: Connection, org_id: int, user_id: int | None) -> None:
    """Raises OverLimit where not even 1 micro-EUR could be held. Holds nothing."""
    if row := connection.execute(_EXCEEDED, {"of_org": org_id, "of_user": user_id, "amount": 1}).first():
        raise OverLimit("organisation" if row.user_id is None else "user")


def reserve(connection: Connection, entry: Entry, amount: int, lease_s: int = LEASE_S) -> None:
    """Holds `amount` micro-EUR for `lease_s` seconds. Raises OverLimit; the transaction must then roll back."""
    connection.execute(_RESERVE, columns(entry) | {"held_micro_eur": amount, "lease_s": lease_s})
    hold_budgets(connection, entry, amount)


def top_up(connection: Connection, entry: Entry, amount: int, used: Usage) -> bool:
    """Holds `amount` more, and marks. Returns False if the reservation has ended; raises OverLimit."""
    topped = connection.execute(_TOP_UP, values(used) | {"of_id": entry.id} | {"amount": amount})
    if topped.rowcount:
        hold_budgets(connection, entry, amount)
    return bool(topped.rowcount)


def settle(connection: Connection, bills: Sequence[Bill]) -> list[int]:
    """Writes the usage lines and moves what was held to spent. All of one organisation. Idempotent.

    Returns the micro-EUR charged for each: of a cost above what was held, as far as limits allow. Raises PurseGone.
    """
    once = {bill.entry.id: bill for bill in bills}
    with_rows = [bill.entry for bill in once.values() if bill.has_row]
    released = _end(connection, with_rows, "settled") if with_rows else {}
    from_purses = {id: bill for id, bill in once.items() if bill.purse_id and id not in released}
    pay(connection, covered(from_purses.values()))
    released |= {id: bill.covered_micro_eur for id, bill in from_purses.items()}
    charged = charges(connection, [*once.values()], released, from_purses)
    earlier = _write_lines(connection, [*once.values()], charged)
    # The first time, too, their purses have paid. A row is released by who ends it, even where the line came first.
    again = from_purses.keys() & earlier.keys()
    pay(connection, covered((from_purses[id] for id in again), -1))
    released |= dict.fromkeys(again, 0)
    move_budgets(connection, [bill.entry for bill in once.values()], released, charged | dict.fromkeys(earlier, 0))
    final = charged | earlier
    return [final[bill.entry.id] for bill in bills]


def void(connection: Connection, entry: Entry) -> bool:
    """Releases what was held. Returns False if the reservation had ended already."""
    released = _end(connection, [entry], "void")
    move_budgets(connection, [entry], released, {})
    return bool(released)


def left_of(connection: Connection, org_id: int, user_ids: Collection[int | None]) -> dict[int | None, int]:
    """Returns what each limit of the organisation (None) and these users has left. Locks them."""
    who = {"of_org": org_id, "of_users": sorted(id for id in user_ids if id is not None)}
    return {row.user_id: row.left for row in connection.execute(_LOCK_LEFT, who) if row.left is not None}


def covered(bills: Iterable[Bill], sign: int = 1) -> Counter[str]:
    """Returns what each purse holds for `bills`."""
    sums: Counter[str] = Counter()
    for bill in bills:
        if bill.purse_id:
            sums[bill.purse_id] += sign * bill.covered_micro_eur
    return sums


def pay(connection: Connection, sums: Mapping[str, int]) -> None:
    """Takes that amount out of each purse."""
    for id, amount in sorted(sums.items()):
        if amount and not connection.execute(_PAY, {"of_id": id, "amount": amount}).rowcount:
            raise PurseGone(id)


def columns(entry: Entry) -> dict[str, Any]:
    """Payer of a bill as columns: `asdict` would copy each value deeply."""
    return {name: getattr(entry, name) for name in Entry.__slots__}


def values(used: Usage) -> dict[str, Any]:
    """Usage of a bill as columns."""
    text = None if used.quantities is None else _as_json(dict(used.quantities))
    return {"cost": used.cost_micro_eur, "quantity": used.quantity, "unit": used.unit, "quantities": text}


def _end(connection: Connection, entries: Sequence[Entry], state: str) -> dict[str, int]:
    """Moves what is still held of `entries` to `state`. Returns the micro-EUR released, by id."""
    rows = connection.execute(_END, {"of_ids": [entry.id for entry in entries], "ended": state})
    return {row.id: row.held_micro_eur for row in rows}


def charges(
    connection: Connection, bills: Sequence[Bill], released: Mapping[str, int], from_purses: Collection[str] = ()
) -> dict[str, int]:
    """Returns what each of `bills` can be charged, by id. They are of one organisation.

    A retried bill, which has a line already, takes nothing from the others. What its purse has paid for it does not
    count as released, because `settle` puts it back.
    """
    costs = {bill.entry.id: bill.used.cost_micro_eur for bill in bills}
    if all(cost <= released.get(id, 0) for id, cost in costs.items()):
        return costs
    rest = left_of(connection, bills[0].entry.org_id, {bill.entry.user_id for bill in bills})
    again = {*connection.execute(COSTS, {"of_ids": [*costs]}).scalars()} if rest else ()
    charged = {}
    for bill in bills:
        id, limited = bill.entry.id, {None, bill.entry.user_id} & rest.keys()
        cost = 0 if id in again else costs[id]
        released_here = 0 if id in again and id in from_purses else released.get(id, 0)
        most = released_here + max(0, min((rest[payer] for payer in limited), default=cost))
        charged[id] = min(cost, most)
        for payer in limited:
            rest[payer] += released_here - charged[id]
    return charged


def _write_lines(connection: Connection, bills: Sequence[Bill], charged: Mapping[str, int]) -> dict[str, int]:
    """Returns the charges of those that have a line already, by id."""
    now_s = time.monotonic()
    rows = [line(bill, charged) | {"late_ms": int(1000 * (now_s - bill.made_s))} for bill in bills]
    new_ids = {id for (id,) in connection.execute(_LINES[connection.dialect.name], rows)}
    missing = [bill.entry.id for bill in bills if bill.entry.id not in new_ids]
    earlier = connection.execute(COSTS, {"of_ids": missing}) if missing else ()
    return {row.reservation_id: row.cost_micro_eur for row in earlier}


def line(bill: Bill, charged: Mapping[str, int]) -> dict[str, Any]:
    """The columns of a usage line, without its time."""
    row = columns(bill.entry) | values(bill.used)
    row |= {"reservation_id": row.pop("id"), "cost_micro_eur": charged[bill.entry.id]}
    del row["cost"]
    return row | {"took_ms": bill.took_ms, "waited_ms": bill.waited_ms}


def hold_budgets(connection: Connection, entry: Entry, amount: int) -> None:
    """Holds `amount` more on the budgets of an organisation and its user. Raises OverLimit."""
    if not connection.execute(_HOLD_ORG, {"of_org": entry.org_id, "amount": amount}).rowcount:
        raise OverLimit("organisation")
    of_user = {"of_user": entry.user_id, "amount": amount}
    if entry.user_id is not None and not connection.execute(_HOLD_USER, of_user).rowcount:
        raise OverLimit("user")


def move_budgets(
    connection: Connection, entries: Sequence[Entry], released: Mapping[str, int], charged: Mapping[str, int]
) -> None:
    """Takes what was held from the budgets of one organisation and its users, and adds what was charged."""
    sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for entry in entries:
        for payer in {0, entry.user_id or 0}:  # 0 is the organisation
            sums[payer][0] += released.get(entry.id, 0)
            sums[payer][1] += charged.get(entry.id, 0)
    for payer, (less, more) in sorted(sums.items()):
        move, of = (_MOVE_USER, {"of_user": payer}) if payer else (_MOVE_ORG, {"of_org": entries[0].org_id})
        amounts = of | {"released": less, "charged": more}
        if not connection.execute(move, amounts).rowcount:
            renew(connection, entries[0].org_id, payer or None)
            connection.execute(move, amounts)
