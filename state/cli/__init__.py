"""Implementation of the command line, `python -m state`.

run.py           runs one command, and records it where it is an act
commands.py      what each act does, and what the words of its arguments mean
reports.py       what each command that only reads shows
printing.py      rows as a table, CSV or JSON
"""
