"""One file per step. A step that was released is never edited: databases have taken it.

v0011_initial.py   the schema of 0.3.0
"""
