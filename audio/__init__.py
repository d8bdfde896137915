"""Sound in files: encoded with its provenance, signed, and decoded again in a process of its own.

encoding.py     samples to wav, flac, mp3, opus, aac, piece by piece
provenance.py   states in every file that it is AI-generated (IPTC digital source type)
watermark.py    the same, inaudibly
signing.py      the same, under a signature (C2PA)
sandbox.py      files of clients, decoded in a child process with bounds; what an ingress sees of files
listener.py     live sound, resampled and searched for speech by a child process
listening.py    the program of this child
shares.py       how much of the disk an owner's sound may fill
decoding.py     the program of the sandbox: any file to samples
confinement.py  takes every right from the child that it does not need
pitch.py        the fundamental frequency of a voice
"""
