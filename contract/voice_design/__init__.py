"""Voice design.

An order describes a voice, a draft is the order under way, a design is the work of an engine, and a voice is what an
organisation adopts.

traits.py        what a voice may be ordered to be: traits by axis, age groups, genders, languages; and the words by
                 which descriptions are understood (`text.descriptions` reads with them)
order.py         bodies of orders, the spec that is made of one, and its description in words
pitch.py         target pitch and band, from gender, age and traits
draft.py         the states of a draft, and the spec of its voice
engine.py        what crosses to a designer: job, voice
replies.py       what is answered: drafts, options, suggestions
"""
