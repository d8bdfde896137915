"""The programs that draw the pictures of the pages, each in a light and a dark theme: `make docs`.

style.py         colours, type, boxes and arrows, charts; what makes a theme
plots.py         plots, from the results of the benchmarks
diagrams.py      the graph, the states of an engine, a deployment, threats
simulation.py    waits and costs that a simulation has foretold
journey.py       the way of a request, with its measured times
terminal.py      the first two minutes in a terminal, from `first_minutes.json`
panels.py        panels of the dashboard over some minutes, from `panels.json`; records them, too
record.py        records those two minutes
"""
