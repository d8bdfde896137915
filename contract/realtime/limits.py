"""Limits of live sessions, with their units (docs/api.md#limits)."""

from contract.limits import MIB

REALTIME_SESSIONS = 500
"""Live sessions of one ingress process: a quarter of its requests at one time. Each also counts as an open stream of
its key."""
REALTIME_SESSION_S = 3600
"""Seconds that a live session may last; its client is informed REALTIME_NOTICE_S before the end."""
REALTIME_NOTICE_S = 60
REALTIME_IDLE_S = 180
"""Seconds without a transcribed turn after which a session is closed for a new one, if the process is full."""
REALTIME_MESSAGE_BYTES = 4 * MIB
"""Bytes of one event of a live session: REALTIME_BUFFER_S at 48 kHz in base64, and some more."""
REALTIME_EVENTS_PER_S = 200
"""Events a second that are read from a live session, after a burst of REALTIME_EVENTS_AT_ONCE. Others wait."""
REALTIME_EVENTS_AT_ONCE = 1_000
REALTIME_FULL_RATE_SESSIONS = 25
"""Open sessions of an organisation up to which each has that rate. More of them share it: 5,000 events a second."""
REALTIME_EVENT_BYTES = 8 * 1024
"""Bytes for each of which an event counts as one more: the rate of events allows twelve times the bytes of 48 kHz."""
REALTIME_BUFFER_S = 30
"""Seconds of audio ahead of real time without a transcript yet. Audio at the pace of speech is always accepted."""
REALTIME_SPEED = 10
"""Largest multiple of the pace of speech at which audio is accepted that needs no transcript, such as silence.
REALTIME_BUFFER_S may come ahead of that pace."""
REALTIME_UNHEARD_S = 120
"""Seconds of audio that wait to be committed or transcribed, at any pace."""
REALTIME_SOUND_BYTES = 256 * MIB
"""Bytes of audio of all live sessions of one ingress process, 32,000 for each second that waits."""
REALTIME_TURN_S = 30
"""Seconds of one turn, the input of a model. A longer turn is cut at its quietest moment."""
REALTIME_RATES_HZ = (8_000, 48_000)
"""Samples a second of PCM."""
REALTIME_PADDING_MS = (0, 5000)
"""Milliseconds of audio before speech that belong to its turn."""
REALTIME_SILENCE_MS = (200, 10_000)
"""Milliseconds of silence that end a turn."""
CLIENT_SECRET_S = (10, 600)
"""Seconds for which a client secret opens sessions; the longer time if a request names none."""
CLIENT_SECRET_SESSIONS = (1, 10)
"""Open sessions of one client secret."""
CLIENT_SECRET_REQUESTS = 30
"""Requests a minute of one client secret, turns included. All secrets of a key have half of its rate and streams."""
