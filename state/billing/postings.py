"""Money as SQL: every change of a budget is one of these transactions.

    reserve --> held --> settle --> settled, one usage line
                 | ^
                 | '--- top_up; mark: what was used so far
                 |----> recover: its process died; settled from the last mark, void without one
                 '----> void

The rowcount of one conditional update decides who moves a row out of `held`, so each reservation ends once. Rows are
always locked in the order reservations by id, organisation, users, so transactions cannot deadlock; budgets come last,
because all requests of an organisation share one. Leases are written and compared by the database's clock.

For every limit at every moment: spent + held <= limit, unless the limit was lowered below that afterwards.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import BigInteger, Connection, Text, bindparam, case, insert, not_, or_, select, update

from state.billing.usage import NO_USAGE, Bill, Entry, OverLimit, Usage
from state.database.base import NOW_MS, NOW_S, Quantities, insert_new
from state.database.tables import budgets, reservations, usage_lines

LEASE_S = 120
"""A reservation that is not renewed for this long is taken for orphaned, and ended."""

_amount = bindparam("amount", type_=BigInteger)
_org = (budgets.c.org_id == bindparam("of_org")) & budgets.c.user_id.is_(None)
_user = budgets.c.user_id == bindparam("of_user")
_users = budgets.c.user_id.in_(bindparam("of_users", expanding=True))
_fits = or_(
    budgets.c.limit_micro_eur.is_(None),
    budgets.c.spent_micro_eur + budgets.c.held_micro_eur + _amount <= budgets.c.limit_micro_eur,
)
_NO_ROOM = select(budgets.c.user_id).where(_org | _user, not_(_fits)).order_by(budgets.c.id)
_hold = update(budgets).where(_fits).values(held_micro_eur=budgets.c.held_micro_eur + _amount)
_HOLD_ORG = _hold.where(_org)
_HOLD_USER = _hold.where(_user)

_move = update(budgets).values(
    held_micro_eur=budgets.c.held_micro_eur - bindparam("released"),
    spent_micro_eur=budgets.c.spent_micro_eur + bindparam("charged"),
)
_MOVE_ORG = _move.where(_org)
_MOVE_USER = _move.where(_user)

_LOCK_BUDGETS = select(budgets).where(_org | _users).order_by(budgets.c.id).with_for_update()

_leased = {"lease_until": NOW_S + LEASE_S}
_marked = {
    "used_micro_eur": bindparam("cost", type_=BigInteger),
    "used_quantity": bindparam("quantity", type_=BigInteger),
    "used_unit": bindparam("unit", type_=Text),
    "used_quantities": bindparam("quantities", type_=Quantities),
}
_RESERVE = insert(reservations).values(state="held", created_at=NOW_S, lease_until=NOW_S + bindparam("lease_s"))
_still_held = (reservations.c.id == bindparam("of_id")) & (reservations.c.state == "held")
_renew = update(reservations).where(_still_held).values(**_leased)
_MARK = _renew.values(**_marked)
_TOP_UP = _MARK.values(held_micro_eur=reservations.c.held_micro_eur + _amount)
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
EXPIRED = (reservations.c.state == "held") & (reservations.c.lease_until < NOW_S)
_RECOVER = (
    update(reservations)
    .where(reservations.c.id == bindparam("of_id"), EXPIRED)
    .values(state=case((reservations.c.used_quantity > 0, "settled"), else_="void"))
    .returning(*reservations.c)
)
_COSTS = select(usage_lines.c.reservation_id, usage_lines.c.cost_micro_eur).where(
    usage_lines.c.reservation_id.in_(bindparam("of_ids", expanding=True))
)


def require_room(connection: Connection, org_id: int, user_id: int | None) -> None:
    """Raises OverLimit where not even 1 micro-EUR could be held. Holds nothing."""
    row = connection.execute(_NO_ROOM, {"of_org": org_id, "of_user": user_id, "amount": 1}).first()
    if row is not None:
        raise OverLimit("organisation" if row.user_id is None else "user")


def reserve(connection: Connection, entry: Entry, amount: int, lease_s: int = LEASE_S) -> None:
    """Holds `amount` micro-EUR for so long. Raises OverLimit; the transaction must then roll back."""
    connection.execute(_RESERVE, asdict(entry) | {"held_micro_eur": amount, "lease_s": lease_s})
    _hold_budgets(connection, entry, amount)


def top_up(connection: Connection, entry: Entry, amount: int, used: Usage) -> bool:
    """Holds `amount` more, and marks. Returns False if the reservation has ended; raises OverLimit."""
    topped = connection.execute(_TOP_UP, _values(used) | {"of_id": entry.id} | {"amount": amount})
    if topped.rowcount:
        _hold_budgets(connection, entry, amount)
    return bool(topped.rowcount)


def mark(connection: Connection, marks: Mapping[Entry, Usage], new: Collection[Entry] = ()) -> None:
    """Records what requests have used so far, and extends their leases. `new` ones hold nothing and have no row yet."""
    if new:
        row = {"state": "held", "created_at": NOW_S, "held_micro_eur": 0, **_leased}
        connection.execute(insert_new(connection, reservations).values(**row), [asdict(entry) for entry in new])
    ordered = sorted(marks.items(), key=lambda item: item[0].id)
    connection.execute(_MARK, [_values(used) | {"of_id": entry.id} for entry, used in ordered])


def settle(connection: Connection, bills: Sequence[Bill]) -> list[int]:
    """Writes the usage lines and moves what was held to spent. All of one organisation. Idempotent.

    Returns the micro-EUR charged for each. A cost above what was held is charged as far as the limits have room: they
    hold whatever an engine does.
    """
    once = list({bill.entry.id: bill for bill in bills}.values())
    released = _end(connection, [bill.entry for bill in once], "settled")
    charged = _charges(connection, once, released)
    earlier = _write_lines(connection, once, charged)
    _move_budgets(connection, [b.entry for b in once if b.entry.id not in earlier], released, charged)
    final = charged | earlier
    return [final[bill.entry.id] for bill in bills]


def void(connection: Connection, entry: Entry) -> bool:
    """Releases what was held. Returns False if the reservation had ended already."""
    released = _end(connection, [entry], "void")
    _move_budgets(connection, [entry], released, {})
    return bool(released)


def renew(connection: Connection, ids: Collection[str]) -> None:
    """Extends the leases of held reservations."""
    connection.execute(_renew, [{"of_id": reservation_id} for reservation_id in sorted(ids)])


def recover(connection: Connection, reservation_id: str) -> Usage | None:
    """Ends a reservation whose lease has expired: bills what was marked, releases what was held.

    Returns what was used, NOTHING if no mark was made, None if somebody was faster or the lease was renewed.
    """
    row = connection.execute(_RECOVER, {"of_id": reservation_id}).one_or_none()
    if row is None:
        return None
    entry = Entry(row.id, row.org_id, row.user_id, row.key_id, row.request_id, row.line, row.model)
    used = Usage(row.used_micro_eur, row.used_quantity, row.used_unit or "", row.used_quantities)
    released = {entry.id: row.held_micro_eur}
    if not used.quantity:
        _move_budgets(connection, [entry], released, {})
        return NO_USAGE
    bill = Bill(entry, used)
    charged = _charges(connection, [bill], released)
    line = _line(bill, charged) | {"at_ms": 1000 * (row.lease_until - LEASE_S), "recovered": 1}
    is_new = connection.execute(insert_new(connection, usage_lines), line).rowcount
    _move_budgets(connection, [entry], released, charged if is_new else {})
    return used


def _values(used: Usage) -> dict[str, Any]:
    values = {"quantity": used.quantity, "unit": used.unit, "quantities": used.quantities}
    return values | {"cost": used.cost_micro_eur}


def _end(connection: Connection, entries: Sequence[Entry], state: str) -> dict[str, int]:
    """Moves what is still held of `entries` to `state`. Returns the micro-EUR released, by id."""
    rows = connection.execute(_END, {"of_ids": [entry.id for entry in entries], "ended": state})
    return {row.id: row.held_micro_eur for row in rows}


def _charges(connection: Connection, bills: Sequence[Bill], released: Mapping[str, int]) -> dict[str, int]:
    """What each of `bills` can be charged, by id. They are of one organisation."""
    costs = {bill.entry.id: bill.used.cost_micro_eur for bill in bills}
    if all(cost <= released.get(id, 0) for id, cost in costs.items()):
        return costs
    who = {"of_org": bills[0].entry.org_id, "of_users": sorted({b.entry.user_id for b in bills if b.entry.user_id})}
    room = {
        row.user_id: row.limit_micro_eur - row.spent_micro_eur - row.held_micro_eur
        for row in connection.execute(_LOCK_BUDGETS, who)
        if row.limit_micro_eur is not None
    }
    charged = {}
    for bill in bills:
        id, cost, released_here = bill.entry.id, bill.used.cost_micro_eur, released.get(bill.entry.id, 0)
        limited = {None, bill.entry.user_id} & room.keys()
        most = max(released_here, min((room[whose] for whose in limited), default=cost) + released_here)
        charged[id] = min(cost, most)
        for whose in limited:
            room[whose] += released_here - charged[id]
    return charged


def _write_lines(connection: Connection, bills: Sequence[Bill], charged: Mapping[str, int]) -> dict[str, int]:
    """Returns the charges of those that have a line already, by id."""
    late = bindparam("late_ms", type_=BigInteger)
    lines = insert_new(connection, usage_lines).values(at_ms=NOW_MS - late).returning(usage_lines.c.reservation_id)
    now_s = time.monotonic()
    rows = [_line(bill, charged) | {"late_ms": int(1000 * (now_s - bill.made_s))} for bill in bills]
    new_ids = set(connection.execute(lines, rows).scalars())
    missing = [bill.entry.id for bill in bills if bill.entry.id not in new_ids]
    if not missing:
        return {}
    return {row.reservation_id: row.cost_micro_eur for row in connection.execute(_COSTS, {"of_ids": missing})}


def _line(bill: Bill, charged: Mapping[str, int]) -> dict[str, Any]:
    used = bill.used
    line = asdict(bill.entry) | {"quantity": used.quantity, "unit": used.unit, "quantities": used.quantities}
    id = line.pop("id")
    return line | {"reservation_id": id, "cost_micro_eur": charged[id]}


def _hold_budgets(connection: Connection, entry: Entry, amount: int) -> None:
    if not connection.execute(_HOLD_ORG, {"of_org": entry.org_id, "amount": amount}).rowcount:
        raise OverLimit("organisation")
    if entry.user_id is None:
        return
    if not connection.execute(_HOLD_USER, {"of_user": entry.user_id, "amount": amount}).rowcount:
        raise OverLimit("user")


def _move_budgets(
    connection: Connection, entries: Sequence[Entry], released: Mapping[str, int], charged: Mapping[str, int]
) -> None:
    """Takes what was held from the budgets of one organisation and its users, and adds what was charged."""
    if not entries:
        return
    sums: Counter[tuple[int | None, str]] = Counter()
    for entry in entries:
        for whose in {None, entry.user_id}:
            sums[whose, "released"] += released.get(entry.id, 0)
            sums[whose, "charged"] += charged.get(entry.id, 0)
    connection.execute(_MOVE_ORG, {"of_org": entries[0].org_id} | _moved(sums, None))
    for user_id in sorted({entry.user_id for entry in entries if entry.user_id is not None}):
        connection.execute(_MOVE_USER, {"of_user": user_id} | _moved(sums, user_id))


def _moved(sums: Mapping[tuple[int | None, str], int], whose: int | None) -> dict[str, int]:
    return {name: sums[whose, name] for name in ("released", "charged")}
