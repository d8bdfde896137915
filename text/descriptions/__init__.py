"""Free descriptions of voices, in German or English, understood by tables of words.

suggest(text, traits) -> SuggestReply     traits for an order, with a reason and hints

suggest.py     decides between the findings, and words the reply
findings.py    traits, negations, degrees and people in a description
ages.py        ages in it
lexicon.py     a text as words, and words by their meanings
"""
