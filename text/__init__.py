"""Functions of texts, with tables of words. Nothing here knows Ray, HTTP or a model.

language.py      the language of a text
sentences.py     ends of sentences, and a long text in parts that are spoken one after another
speakable.py     a text without the marks that are for the eye alone; speakable.toml: fractions and signs in words
spoken.py        comparison of a transcript with its text; spoken.toml: units and titles
formatting/      structure for transcripts, and the proof that no wording changed
descriptions/    traits that fit a free description of a voice
"""
