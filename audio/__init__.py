"""Sound in files: made, marked, signed; and taken apart again, in a process of its own.

encoding.py     samples to wav, flac, mp3, opus, aac, piece by piece
marking.py      says in every file that it is AI-generated (IPTC digital source type)
watermark.py    says it inaudibly
signing.py      says it under a signature (C2PA)
decoding.py     any file of a client to samples; run as a child process by `audio.sandbox`
confinement.py  takes from that process all that it does not need
"""
