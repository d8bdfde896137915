"""Work of each capability for a caller: estimate, bill, call the engine, settle. No HTTP.

    <noun>.py      one flow per capability of the catalogue; chat.py continues prompts and counts tokens, too; speech.py
                   has the voices, transcription.py the structure of a transcript
    encoders.py    texts to vectors, and documents by their relevance to a query
    uploads.py     tickets for large recordings, and the recordings
    verdicts.py    speech that is verified, and spoken again where it differs
    designs.py     voices to order: drafts, adoption, suggestions
    realtime/      live sessions: turns, their transcriptions, and a ledger of seconds

A flow takes a request context and a parsed request and gives back what the engine made of it. Routes call flows, and so
does everything else that needs a capability from inside.
"""
