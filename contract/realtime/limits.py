"""Limits of live sessions, with their units (docs/api.md#limits)."""

from contract.limits import MIB

REALTIME_SESSIONS = 500
"""Live sessions of one ingress process: a quarter of the requests that it has under way. Each is one of its key's open
streams, too."""
REALTIME_SESSION_S = 3600
"""Seconds that a live session may last; REALTIME_NOTICE_S before their end it is told."""
REALTIME_NOTICE_S = 60
REALTIME_MESSAGE_BYTES = 15 * MIB
"""Bytes of one event of a live session."""
REALTIME_BUFFER_S = 30
"""Seconds of sound that are ahead of real time and not heard yet. What comes at the pace of speech is always taken."""
REALTIME_UNHEARD_S = 120
"""Seconds of sound that wait to be committed or heard, at whatever pace they came."""
REALTIME_SOUND_BYTES = 256 * MIB
"""Bytes of sound of all live sessions of one ingress process, 32,000 for each second that waits."""
REALTIME_TURN_S = 30
"""Seconds of one turn: what models hear at once. A longer one is cut where it is most silent."""
REALTIME_RATES_HZ = (8_000, 48_000)
"""Samples a second of PCM."""
REALTIME_PADDING_MS = (0, 5000)
"""Milliseconds of sound before speech that belong to its turn."""
REALTIME_SILENCE_MS = (200, 10_000)
"""Milliseconds of silence that end a turn."""
CLIENT_SECRET_S = (10, 600)
"""Seconds for which a client secret opens sessions; the longer time where a request names none."""
