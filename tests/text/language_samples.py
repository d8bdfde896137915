"""Sentences and short phrases in every language of the four engines, written for these tests."""

from pathlib import Path

parts = Path(__file__).with_suffix(".txt").read_text("utf-8").split("\n\n")
sentences, PHRASES = ([tuple(line.split("\t")) for line in part.splitlines()] for part in parts)
SENTENCES = {language: [text for other, text in sentences if other == language] for language, _ in sentences}
