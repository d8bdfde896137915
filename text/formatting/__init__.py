"""Structure for transcripts, and the proof that no wording changed (`docs/api.md#post-audiotranscriptions`).

judge(transcript, formatted) -> Formatted      whether only structure differs
structured(transcript, segments) -> str        paragraphs, lists, salutation and closing, by rules

verdict.py     the alignment of both texts, and what may differ
tokens.py      a text as what must not change: words, numbers and signs
words.py       ordinals, number words and negations of many languages
rules.py       where the rules put breaks and markers: sentences, pauses, spoken lists
letters.py     salutations and closings
request.py     requests to a chat model, piece by piece, and how its answers are read

`deployments.ingress.flows.transcription` runs these functions beside a transcription.
"""
