"""The command line, `python -m state`.

arguments.py     commands and options
commands.py      what each command does
printing.py      rows as a table, CSV or JSON
"""
