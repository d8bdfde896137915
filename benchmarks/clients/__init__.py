"""Clients that people use, as they come, against a running graph. What works stands in docs/clients.md.

__main__.py  python -m benchmarks.clients; `make conformance` sets the clients up and starts a graph of its own for them

programs.py     the programs: which file, which client, what it tries
running.py      runs one in its own interpreter, within a time, and judges what it told
table.py        the table, and where it stands in the page

`python/` and `node/` hold the programs. Each is an example to copy: it takes address and key from `PARLANCE_URL` and
`PARLANCE_KEY`, and says of each step whether it works, or why it cannot. Wit is not judged: the embedded model is too
small for it, so tools are called because they must be, and answers are looked at for their form.
"""
