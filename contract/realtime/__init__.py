"""Live transcription over a websocket, in the events of OpenAI's realtime transcription sessions.

session.py   what a session is set to: format, transcriber, where turns end
events.py    what a client sends
replies.py   what a client is told
secrets.py   client secrets, by which browsers open sessions
limits.py    limits of sessions
"""
