"""The command line of evaluations."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.quality.__main__ import EVALUATIONS, main


@pytest.mark.parametrize("name", EVALUATIONS)
def test_each_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert f"python -m benchmarks.quality {name}" in capsys.readouterr().out


def test_no_name_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "NAME" in capsys.readouterr().err


def test_a_model_that_is_not_set_up() -> None:
    with pytest.raises(SystemExit, match="decision-v9"):
        main(["decisions", "--models", "decision-v9"])


def test_a_folder_without_recordings_beside_their_words(tmp_path: Path) -> None:
    (tmp_path / "memo.wav").write_bytes(b"")
    (tmp_path / "memo.txt").write_text(" \n")
    with pytest.raises(SystemExit, match="no recording beside a text"):
        main(["transcription", "--recordings", str(tmp_path)])


@pytest.mark.parametrize("listed", [None, "[[clip]", "[[clips]]", "[[clip]]\nfile = 'a.flac'", "clip = 3"])
def test_a_folder_whose_list_of_clips_cannot_be_read(listed: str | None, tmp_path: Path) -> None:
    if listed is not None:
        (tmp_path / "clips.toml").write_text(listed)
    with pytest.raises(SystemExit, match=r"no clips\.toml as --help describes it"):
        main(["transcription", "--clips", str(tmp_path)])
