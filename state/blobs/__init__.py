"""Bytes by name: samples of voices, reference clips, recordings.

base.py           what a store does: the protocol `Blobs`
open.py           the store that an address names
folder.py         files in a local folder
s3.py             objects in an S3-compatible store
signatures.py     signed addresses of blobs
"""
