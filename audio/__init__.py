"""Sound in files: made, marked, signed; and taken apart again, in a process of its own.

encoding.py     samples to wav, flac, mp3, opus, aac, piece by piece
marking.py      says in every file that it is AI-generated (IPTC digital source type)
watermark.py    says it inaudibly
signing.py      says it under a signature (C2PA)
sandbox.py      files of clients, decoded in a child process with bounds; all that an ingress sees of this package
shares.py       how much of the disk an owner's sound may fill
decoding.py     any such file to samples; what that child runs
confinement.py  takes from the child all that it does not need
pitch.py        how high a voice speaks
"""
