"""What the command line, `python -m state`, does.

run.py           runs one command, and records it where it is an act
commands.py      what each act does
reports.py       what each command that only reads shows
words.py         lists, times and secrets that arguments mean
printing.py      rows as a table, CSV or JSON
"""
