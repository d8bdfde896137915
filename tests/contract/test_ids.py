"""Ids come from a stock, and are never the same twice: for threads and for children of a fork neither."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

from contract.ids import STOCK, random_id


def test_ids_are_32_digits_and_all_different_over_several_stocks_and_threads() -> None:
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda _: random_id(), range(20 * STOCK)))
    assert len({*ids}) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{32}", text) for text in ids)


def test_a_child_does_not_go_on_from_the_stock_of_its_parent() -> None:
    random_id()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, "".join(random_id() for _ in range(3)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    of_child = os.read(reader, 96).decode()
    os.close(reader)
    os.close(writer)
    ours = {random_id() for _ in range(STOCK)}
    assert len(of_child) == 96
    assert not ours & {of_child[start : start + 32] for start in (0, 32, 64)}
