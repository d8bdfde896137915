"""One live session: its sound comes in, turns are found in it, and each is transcribed like a recording.

session.py       each event of the client, in order
turns.py         where turns begin and end, and the samples that are still needed
transcriber.py   calls the engine, one call at a time: drafts while a turn is open, then its text
notifier.py      reports to the client, keeps the account of every second and bills
"""
