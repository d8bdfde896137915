"""Voice design.

An order describes a voice, a draft is the order in progress, a design is the work of an engine, and an organisation
adopts the voice.

traits.py        options of an order: traits by axis, age groups, genders, languages; and the words by which
                 `text.descriptions` reads free descriptions
order.py         bodies of orders, their conversion to a spec, and its description in words
pitch.py         target pitch and band, from gender, age and traits
draft.py         the states of a draft, and the spec of its voice
engine.py        job and protocol of a designer, and the resulting voice
replies.py       replies: drafts, options, suggestions
"""
