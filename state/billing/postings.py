"""Money as SQL: every change of a budget is one of these transactions. Spec 5.8 and 8, Billing.

    reserve --> held --> settle --> settled, one usage line
                 | ^
                 | '--- top_up
                 '----> void

The rowcount of one conditional update decides who moves a row out of `held`, so each reservation ends once. Rows are
always locked in the order reservation, organisation, user, so transactions cannot deadlock; budgets come last,
because all requests of an organisation share one.

For every limit at every moment: spent + held <= limit, unless the limit was lowered below that afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import BigInteger, Connection, bindparam, delete, insert, or_, select, update

from state.database.base import insert_new
from state.database.tables import budgets, reservations, usage_lines

_amount = bindparam("amount", type_=BigInteger)
_org = (budgets.c.org_id == bindparam("of_org")) & budgets.c.user_id.is_(None)
_user = budgets.c.user_id == bindparam("of_user")
_fits = or_(
    budgets.c.limit_micro_eur.is_(None),
    budgets.c.spent_micro_eur + budgets.c.held_micro_eur + _amount <= budgets.c.limit_micro_eur,
)
_hold = update(budgets).where(_fits).values(held_micro_eur=budgets.c.held_micro_eur + _amount)
_HOLD_ORG = _hold.where(_org)
_HOLD_USER = _hold.where(_user)

_move = update(budgets).values(
    held_micro_eur=budgets.c.held_micro_eur - bindparam("released"),
    spent_micro_eur=budgets.c.spent_micro_eur + bindparam("charged"),
)
_MOVE_ORG = _move.where(_org)
_MOVE_USER = _move.where(_user)

_LOCK_BUDGETS = select(budgets).where(_org | _user).order_by(budgets.c.id).with_for_update()

_RESERVE = insert(reservations)
_still_held = (reservations.c.id == bindparam("of_id")) & (reservations.c.state == "held")
_TOP_UP = (
    update(reservations)
    .where(_still_held)
    .values(held_micro_eur=reservations.c.held_micro_eur + _amount, lease_until=bindparam("until"))
)
_END = update(reservations).where(_still_held).values(state=bindparam("ended")).returning(reservations.c.held_micro_eur)
_RENEW = update(reservations).where(_still_held).values(lease_until=bindparam("until"))
_ORPHANS = (
    select(reservations)
    .where(reservations.c.state == "held", reservations.c.lease_until < bindparam("now"))
    .order_by(reservations.c.lease_until)
    .limit(100)
)
_FORGET = delete(reservations).where(
    reservations.c.state.in_(("settled", "void")), reservations.c.lease_until < bindparam("before")
)
_COST = select(usage_lines.c.cost_micro_eur).where(usage_lines.c.reservation_id == bindparam("of_id"))


class OverLimit(Exception):
    """A spend limit has no room. `whose` is `organisation` or `user`."""

    def __init__(self, whose: str) -> None:
        super().__init__(whose)
        self.whose = whose


@dataclass(frozen=True, slots=True)
class Entry:
    """What is billed and to whom. `id` is random and unique; `request_id` may not be."""

    id: str
    org_id: int
    user_id: int | None
    key_id: str
    request_id: str
    line: str
    model: str


def reserve(connection: Connection, entry: Entry, amount: int, now_s: int, lease_until: int) -> None:
    """Holds `amount` micro-EUR. Raises OverLimit; the transaction must then roll back."""
    row = asdict(entry) | {"held_micro_eur": amount, "state": "held", "created_at": now_s, "lease_until": lease_until}
    connection.execute(_RESERVE, row)
    _hold_budgets(connection, entry, amount)


def top_up(connection: Connection, entry: Entry, amount: int, lease_until: int) -> bool:
    """Holds `amount` more. Returns False if the reservation has ended; raises OverLimit."""
    topped = connection.execute(_TOP_UP, {"of_id": entry.id, "amount": amount, "until": lease_until})
    if topped.rowcount:
        _hold_budgets(connection, entry, amount)
    return bool(topped.rowcount)


def settle(connection: Connection, entry: Entry, cost: int, quantity: int, unit: str, at_ms: int) -> int:
    """Writes the usage line and moves what was held to spent. Returns the micro-EUR charged. Idempotent.

    A cost above what was held is charged as far as the limits have room: they hold whatever an engine does.
    """
    released = connection.execute(_END, {"of_id": entry.id, "ended": "settled"}).scalar_one_or_none() or 0
    charged = cost if cost <= released else min(cost, max(released, _room(connection, entry, released)))
    line = asdict(entry) | {"quantity": quantity, "unit": unit, "cost_micro_eur": charged, "at_ms": at_ms}
    line["reservation_id"] = line.pop("id")
    if not connection.execute(insert_new(connection, usage_lines), line).rowcount:
        earlier: int = connection.execute(_COST, {"of_id": entry.id}).scalar_one()
        return earlier
    _move_budgets(connection, entry, released, charged)
    return charged


def void(connection: Connection, entry: Entry) -> bool:
    """Releases what was held. Returns False if the reservation had ended already."""
    released = connection.execute(_END, {"of_id": entry.id, "ended": "void"}).scalar_one_or_none()
    if released is not None:
        _move_budgets(connection, entry, released, 0)
    return released is not None


def renew(connection: Connection, ids: Sequence[str], lease_until: int) -> None:
    """Extends the leases of held reservations."""
    connection.execute(_RENEW, [{"of_id": reservation_id, "until": lease_until} for reservation_id in ids])


def orphans(connection: Connection, now_s: int) -> list[Entry]:
    """Up to 100 held reservations whose lease has expired, the oldest first."""
    rows = connection.execute(_ORPHANS, {"now": now_s})
    return [Entry(r.id, r.org_id, r.user_id, r.key_id, r.request_id, r.line, r.model) for r in rows]


def forget(connection: Connection, before_s: int) -> None:
    """Deletes ended reservations whose lease expired before; their usage lines stay."""
    connection.execute(_FORGET, {"before": before_s})


def _hold_budgets(connection: Connection, entry: Entry, amount: int) -> None:
    if not connection.execute(_HOLD_ORG, {"of_org": entry.org_id, "amount": amount}).rowcount:
        raise OverLimit("organisation")
    if entry.user_id is None:
        return
    if not connection.execute(_HOLD_USER, {"of_user": entry.user_id, "amount": amount}).rowcount:
        raise OverLimit("user")


def _move_budgets(connection: Connection, entry: Entry, released: int, charged: int) -> None:
    values = {"released": released, "charged": charged}
    connection.execute(_MOVE_ORG, values | {"of_org": entry.org_id})
    if entry.user_id is not None:
        connection.execute(_MOVE_USER, values | {"of_user": entry.user_id})


def _room(connection: Connection, entry: Entry, released: int) -> int:
    """The most that the entry's limits allow to charge after `released` is returned to them, in micro-EUR."""
    rooms = [
        row.limit_micro_eur - row.spent_micro_eur - row.held_micro_eur + released
        for row in connection.execute(_LOCK_BUDGETS, {"of_org": entry.org_id, "of_user": entry.user_id})
        if row.limit_micro_eur is not None
    ]
    return min(rooms, default=1 << 62)
