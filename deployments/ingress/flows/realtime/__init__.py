"""One live session: sound comes in, turns are found in it, and each is written down as an ordinary transcription.

session.py   what each event of the client does, in order
turns.py     where turns begin and end
sound.py     the samples that are not done with yet
ear.py       asks the engine about turns, one call at a time: drafts while somebody speaks, then the text
teller.py    tells the client, keeps the ledger and bills; wire.py: the way to that client
ledger.py    what became of every second
"""
