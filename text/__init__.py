"""What words are: functions of texts, with tables of words. Nothing here knows Ray, HTTP or a model.

language.py      which language a text is in
sentences.py     where sentences end, and a long text in parts that are spoken one after another
spoken.py        whether a transcript says what a text says; spoken.toml: units and titles
formatting/      structure for transcripts, and the proof that no wording changed
descriptions/    what a free description of a voice says, and the traits that fit it
"""
