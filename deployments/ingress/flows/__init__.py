"""What each capability does for a caller: estimate, bill, call the engine, settle. No HTTP.

    <noun>.py      one flow per capability of the catalogue; chat.py continues prompts and counts tokens, too
    uploads.py     tickets for large recordings, and the recordings
    verdicts.py    speech that is heard back, and spoken again where it differs
    voices.py      the voices that a caller can see, and samples of fixed ones
    designs.py     voices to order: drafts, adoption, suggestions
    realtime/      live sessions: turns, their transcriptions, and a ledger of seconds
    formatting.py  structure for a transcript, beside its transcription

A flow takes a request context and a parsed request and gives back what the engine made of it. Routes call flows, and so
does everything else that needs a capability from inside.
"""
