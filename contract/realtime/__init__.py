"""Live transcription over a websocket, in the events of OpenAI's realtime transcription sessions.

session.py   settings of a session: format, transcriber, detection of turns; client secrets, which open some
events.py    events of the client, and parts of those of the server
limits.py    limits of sessions
"""
