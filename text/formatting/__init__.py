"""Structure for transcripts, and the proof that no wording changed (`docs/api.md#post-audiotranscriptions`).

judge(transcript, formatted) -> Formatted      whether only structure differs
structured(transcript, segments) -> str        paragraphs, lists, salutation and closing, by rules

verdict.py     the alignment of both texts, and what may differ
tokens.py      a text as what must not change: words, numbers and signs
words.py       number words and negations of many languages
ordinals.py    "erstens", "second", "point three": what begins an item of a list
rules.py       where the rules put breaks and markers
sentences.py   where sentences begin, and how long the speaker was silent before
lists.py       items of spoken lists
letters.py     salutations and closings
request.py     what a chat model is asked, piece by piece, and how its answer is read

`deployments.ingress.flows.formatting` runs these functions beside a transcription.
"""
