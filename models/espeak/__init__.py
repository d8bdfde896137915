"""espeak-ng, for what speaks with it and for what only reads with it. GPL: never part of a production image.

library.py      its shared object: sound and phonemes
voices.py       its voices: how each is set, and the one that comes nearest to a height in Hz
"""
