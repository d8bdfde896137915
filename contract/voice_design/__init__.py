"""Voice design: what can be ordered, what an order becomes, and what is answered (`docs/api.md#voice-design`).

traits.py        what a voice may be ordered to be: traits by axis, age groups, genders, languages
order.py         bodies of orders, and the plan that is made of one
description.py   the words that a voice is designed from
pitch.py         target pitch and band, from gender, age and traits
draft.py         the states of a draft, and what an order decided
slugs.py         a slug for a voice that was ordered without one
engine.py        what crosses to a designer: job, voice
replies.py       what is answered: drafts, options, suggestions
vocabulary.py    types of the words by which descriptions are understood; `text.descriptions` reads with them
"""
