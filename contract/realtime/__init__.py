"""Live transcription over a websocket, in the events of OpenAI's realtime transcription sessions.

session.py   settings of a session: format, transcriber, detection of turns
events.py    events of the client
replies.py   events of the server
secrets.py   client secrets, with which browsers open sessions
limits.py    limits of sessions
"""
