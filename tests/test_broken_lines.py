import ast
import shutil
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

from tests.broken_lines import ROOT, Break, Copy, Recorded, breaks, key_of, picked

SOURCE = b'''
def taken(self, items, lock, log):
    """Numbers of docstrings, 1 of them."""
    with lock:
        self.count += 1
    if items and not self.closed:
        log.info("%d", 5)
        raise ValueError("at most %d" % 7)
    elif len(items) < 2:
        self.close(timeout=3)
    try:
        return items[0]
    finally:
        self.ended = True
        self.last()
'''
WAYS = {
    "lock taken away: with lock -> if True",
    "assignment removed: self.count += 1 -> pass",
    "number plus one: 1 -> 2",
    "and/or exchanged: items and not self.closed -> (items or not self.closed)",
    "condition negated: items and not self.closed -> (not (items and (not self.closed)))",
    'raise removed: raise ValueError("at most %d" % 7) -> pass',
    "comparison turned: len(items) < 2 -> len(items) <= 2",
    "number plus one: 2 -> 3",
    "call removed: self.close(timeout=3) -> pass",
    "nothing returned: return items[0] -> return None",
    "number plus one: 0 -> 1",
    "finally removed: self.ended = True self.last() -> pass",
    "call removed: self.last() -> pass",
    "assignment removed: self.ended = True -> pass",
}


def test_each_way_is_another_program() -> None:
    ways = [way for of_statement in breaks("taken.py", SOURCE) for way in of_statement]
    assert {str(way).split("  ")[1] for way in ways} == WAYS
    assert (
        len({ast.unparse(ast.parse(source)) for source in (SOURCE, *(way.of(SOURCE) for way in ways))}) == len(WAYS) + 1
    )


def test_a_line_is_found_if_a_test_fails_for_it(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "text").mkdir(parents=True)
    (tree / "tests").mkdir()
    for name in ("broken_lines.py", "tiers.py"):
        shutil.copy(ROOT / "tests" / name, tree / "tests")
    (tree / "text/sums.py").write_text("def more(n):\n    return n + 1\n\n\ndef less(n):\n    return n - 1\n")
    called = "from text.sums import less, more\n\ndef test_sums():\n    assert more(2) == 3\n    less(2)\n"
    (tree / "tests/test_sums.py").write_text(called + "\ndef test_always_red():\n    raise OSError\n")
    copy, tests = Copy(tree, tmp_path / "copy"), [f"tests/test_sums.py::test_{name}" for name in ("always_red", "sums")]
    more, less = (way for way in sorted(picked(tree, 1, 2), key=lambda way: way.line))
    assert picked(tree, 1, 2) == picked(tree, 1, 2)
    assert copy.judged(more, tests, 60).startswith("tests/test_sums.py::test_sums: ")
    assert copy.judged(less, tests[1:], 60) == ""


def test_an_id_is_found_in_the_xml_of_junit() -> None:
    assert key_of("tests/api/test_a.py::Of::test_b[x/y.py::z]") == ("tests.api.test_a.Of", "test_b[x/y.py::z]")


def test_what_imports_the_module_is_tried_first_and_what_takes_long_last() -> None:
    imports, other = "tests/docs/test_snippets.py", "tests/test_health.py"
    names = [f"{other}::test_long", f"{imports}::test_one", f"{other}::test_one", f"{imports}::test_two"]
    recorded, touched = object.__new__(Recorded), {25: [f"{name}|run" for name in names]}
    recorded._data = SimpleNamespace(
        measured_files=lambda: ["/a/launch/welcome.py"], contexts_by_lineno=lambda _: touched
    )
    recorded._seconds, recorded._of_file = {key_of(names[0]): 50.0}, defaultdict(float)
    way = Break("launch/welcome.py", 25, 25, "call removed", 0, 1, "say()", "pass")
    assert recorded.tests_of(way, 9, 100)[:4] == [names[1], names[3], names[2], names[0]]
    touched.clear()
    assert imports in recorded.tests_of(way, 9, 100), "no test is known to touch it"
    recorded._of_file["tests.docs.test_snippets"] = 101
    assert imports not in recorded.tests_of(way, 9, 100), "there is no time for it"
