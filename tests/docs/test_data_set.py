"""The script that puts a data set through a model: what it refuses, how many calls it makes, and that it goes on."""

import asyncio
import json
from pathlib import Path

import pytest

from docs.examples.data_set import DataSetError, answered, read, run

ROWS = {str(number): {"id": str(number), "text": f"text {number}"} for number in range(20)}


class Killed(BaseException):
    """Stands for a signal. Not KeyboardInterrupt: asyncio leaves its task behind, to be reported amid another test."""


class Model:
    """Answers with what it was asked, and counts. `fails` names prompts that it refuses."""

    def __init__(self, fails: tuple[str, ...] = (), dies_after: int = 10**9) -> None:
        self.asked: list[str] = []
        self.most = self.under_way = 0
        self.fails, self.dies_after = fails, dies_after

    async def __call__(self, prompt: str) -> str:
        self.asked.append(prompt)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if len(self.asked) > self.dies_after:
            raise Killed
        if prompt in self.fails:
            raise ValueError("no")
        return prompt.upper()


def lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


async def test_each_row_is_asked_once_and_no_more_than_allowed_at_a_time(tmp_path: Path) -> None:
    model, out = Model(), tmp_path / "out.jsonl"
    assert await run(ROWS, "say {text}", out, model, 4) == (20, 0)
    assert model.most == 4
    assert {line["id"]: line["answer"] for line in lines(out)} == {id: f"SAY TEXT {id}" for id in ROWS}
    again = Model()
    assert await run(ROWS, "say {text}", out, again, 4) == (0, 0)
    assert again.asked == []


def test_a_run_that_was_killed_goes_on_without_asking_twice(tmp_path: Path) -> None:
    killed, out = Model(dies_after=7), tmp_path / "out.jsonl"
    with pytest.raises(BaseExceptionGroup):
        asyncio.run(run(ROWS, "{text}", out, killed, 1))
    assert len(lines(out)) == 7
    out.write_bytes(out.read_bytes() + b'{"id": "7", "ans')  # the machine died while it wrote
    rest = Model()
    assert asyncio.run(run(ROWS, "{text}", out, rest, 1)) == (13, 0)
    assert sorted(line["id"] for line in lines(out)) == sorted(ROWS)
    assert set(rest.asked).isdisjoint(killed.asked[:7])


async def test_a_row_that_fails_is_a_line_and_is_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert await run(ROWS, "{text}", out, Model(fails=("text 3",)), 4) == (19, 1)
    assert [line for line in lines(out) if "error" in line] == [{"id": "3", "error": "ValueError: no"}]
    assert answered(out) == ROWS.keys() - {"3"}
    again = Model()
    assert await run(ROWS, "{text}", out, again, 4) == (1, 0)
    assert again.asked == ["text 3"]


def test_both_formats_hold_the_same_rows(tmp_path: Path) -> None:
    texts = {
        "rows.csv": 'id,text\n1,"a, b"\n2,"ü\nx"\n',
        "rows.jsonl": '{"id": 1, "text": "a, b"}\n{"id": 2, "text": "ü\\nx"}\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        rows = read(tmp_path / name, "id")
        assert {id: row["text"] for id, row in rows.items()} == {"1": "a, b", "2": "ü\nx"}, name


UNUSABLE = [
    ("a.csv", b"", "a.csv has no rows"),
    ("a.csv", b"id,text\n", "a.csv has no rows"),
    ("a.csv", b"name\nx\n", "row 1: there is no `id`; choose another with --id"),
    ("a.csv", b"id\n1\n1\n", "row 2: the id `1` is there twice"),
    ("a.csv", b"id\n\xff\n", "a.csv cannot be read as UTF-8 csv"),
    ("a.jsonl", b'{"id": 1}\nnonsense\n', "a.jsonl cannot be read as UTF-8 jsonl"),
    ("a.jsonl", b"[1]\n", "row 1: there is no `id`"),
    ("gone.csv", None, "gone.csv cannot be read"),
]


def test_a_file_that_cannot_be_used_is_refused_with_its_place(tmp_path: Path) -> None:
    for name, content, says in UNUSABLE:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(DataSetError, match=says):
            pytest.fail(f"{content!r} gave {read(tmp_path / name, 'id')}")


def test_parquet_is_read_where_pyarrow_is_and_said_to_need_it_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        file.write_bytes(b"PAR1")
        with pytest.raises(DataSetError, match=r"rows\.parquet needs pyarrow: make setup-batch"):
            read(file, "id")
        return
    parquet.write_table(pyarrow.table({"id": [1, 2], "text": ["a, b", "ü"]}), file)
    assert {id: row["text"] for id, row in read(file, "id").items()} == {"1": "a, b", "2": "ü"}
