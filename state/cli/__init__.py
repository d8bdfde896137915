"""What the command line, `python -m state`, does.

commands.py      what each command does
printing.py      rows as a table, CSV or JSON
"""
