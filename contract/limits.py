"""Numbers of the spec's section 8 that hold for all models, with their units. What holds for one is in its stanza."""

MIB = 1024 * 1024

JSON_BODY_BYTES = 8 * MIB
CHAT_BODY_BYTES = 24 * MIB
"""Chat bodies may carry images."""
SPEECH_BODY_BYTES = 32 * MIB
"""Speech bodies may carry a clip of 30 s in base64, up to 96 kHz, two channels and 32 bits. Ours."""
MCP_BODY_BYTES = 4 * MIB
"""Of a message to the MCP endpoint."""
KEYLESS_BODY_BYTES = 64 * 1024
"""Of a message without a key: one of 4 MiB could hold up everybody else for a quarter of a second. Ours."""

JSON_DEPTH = 32
"""Nesting of any JSON body."""

JSON_VALUES = 20_000
"""Keys and values in a JSON body: reading one takes up to two microseconds in which nobody else is answered."""
JSON_NUMBERS = 100_000
"""The same where token ids are taken by the thousand. Keys, arrays and objects among them are at most JSON_VALUES."""
VALUE_BYTES = 128
"""That a key or a value takes in memory once it is read, beside the body that it came in. Ours."""

JSON_ESCAPES = 1_000_000
"""Backslashes in any JSON body: reading one takes a tenth of a microsecond. Images whose slashes are escaped have fewer
than half as many."""

REQUESTS_OF_PROCESS = 2000
"""Under way at one time in one ingress process, with a key or without; half of them may be of one organisation."""

REQUESTS_PER_STREAM = 4
"""Requests of a key under way at one time in one ingress process, for each stream that its plan allows."""

BODIES_OF_KEY_BYTES = 128 * MIB
"""Bodies in the memory of one ingress process that came with one key, held until their requests are over; what they
are as values, by VALUE_BYTES; and replies that are longer than REPLY_PIECE_BYTES, until they are sent. Without a key,
those of a network address; and all of them together are bounded like an organisation's."""
BODIES_OF_ORGANISATION_BYTES = 256 * MIB
BODIES_OF_PROCESS_BYTES = 512 * MIB

LONG_BODY_BYTES = 16 * 1024
"""A longer body is read in turn: steps of other requests come between two of them. Ours."""

BODY_IDLE_S = 20
"""Seconds in which nothing of a body came."""
BODY_S = 300
"""Seconds for a whole body. One under a ticket has as long as its ticket."""
BODY_LEAST_BYTES_PER_S = 8 * 1024
"""On average, once BODY_GRACE_S are over; of bodies under a ticket, too."""
BODY_GRACE_S = 30

WRITE_S = 60
"""Seconds in which a client reads nothing of what is sent to it. Then it is dropped, and its engine is free."""
REPLY_PIECE_BYTES = 256 * 1024
"""Of a reply that are sent at a time: the next piece waits until its client has read most of the one before. Ours."""
WRITE_LEAST_BYTES_PER_S = 8 * 1024
"""That a client must take on average, while it is waited for and beyond WRITE_S. Time in which there is nothing to send
does not count."""

KEEPALIVE_S = 15
"""Seconds of silence in an event stream before a comment is sent."""

COLD_RETRY_AFTER_MAX_S = 60
"""SDKs ignore a longer `Retry-After`."""

RATE_WINDOW_S = 60

KEYLESS_REQUESTS = 120
"""Requests without a key that a network address has in each window: an office is often one address. As many keys that
open nothing may come from it. Ours: the spec has no figure."""
KEYLESS_AT_ONCE = 40
"""Of these, under way at one time in one ingress process."""

DOCS_QUERY_CHARS = 500
"""Of a query to the documentation. Ours."""
DOCS_RESULTS = 20
"""Sections that one query shows at most. Ours."""

KEY_CACHE_S = 5
"""A revoked key dies within this time on every ingress replica."""

SCHEMA_COMPILE_S = 10
"""Processor time in which what the answer of a chat must follow is compiled to a grammar. Ours."""
SCHEMA_STEP_MS = 5
"""Processor time in which the tokens that may come next are found, in such a grammar. Ours."""
REGEX_STATES = 512
"""Of the automaton of a regular expression that an answer must match. Ours."""
KEPT_REPLIES = 100_000
"""Answers that are kept for the `Idempotency-Key`s of one API key. Ours."""
KEPT_REPLY_BYTES = 256 * MIB
"""Of the bodies of those answers. What comes then is kept as a fact, without its body. Ours."""

IMAGE_PIXELS = 25_000_000
"""Of an image as it is sent: more than most cameras make. Decoding takes up to eleven bytes for each. Ours."""
CHAT_PIXELS = 100_000_000
"""Of all images of a chat together: eight of a telephone. Ours."""

CHARS_PER_TOKEN = 16
"""Of a text, for each token of the window. What is beyond is cut before it is made tokens, which takes time and memory.
Ours: languages have two to five."""
TOKENIZE_BYTES_PER_TOKEN = 8
"""Of the text that one request has made tokens, for each token of the window: twice what fits. Ours."""
DETOKENIZE_IDS = 65_536
"""Token ids that one request has made text. Ours."""

STREAM_SLICE_OUTPUT_TOKENS = 1024
"""Output tokens of a stream that are reserved at a time."""

SPEECH_INPUT_CHARS = 4000
"""Code points of `input`, for every engine; some take fewer."""
SPEECH_CLIP_S = 30
"""Of a reference clip."""
SPEECH_SPEED = (0.5, 2.0)
SPEECH_STYLE_CHARS = 4096
"""Of a style instruction, for engines that follow one: as long as OpenAI's SDK allows."""
SPEECH_STYLE_READ_CHARS = 500
"""Of these an engine reads so many: a longer style would take the place of the text. Ours."""

RECORDING_BODY_BYTES = 9 * MIB // 2
"""Of a recording in the body of a request: 4.5 MiB. The rest of the form is not counted."""
RECORDING_FORM_BYTES = 64 * 1024
"""Of the rest of the form."""
UPLOAD_BYTES = 100 * MIB
"""Of a recording that is uploaded under a ticket."""
UPLOAD_S = 3600
"""Seconds in which a ticket can be used. Ours: the spec has no figure."""
OPEN_UPLOADS = 100
"""Tickets of an organisation under which bytes lie or may come: those that are not used, and until they expire those
that were used before anything was uploaded. Ours: they occupy up to 100 MiB each."""
UPLOADS_OF_ORGANISATION = 32
"""Recordings of an organisation that are on their way under tickets at one time, in one ingress process. Ours."""
SPARE_BYTES = 1024 * MIB
"""That uploads leave free on the disk where recordings lie in a folder: the database is often on the same. Ours."""
RECORDING_S = 4 * 3600
"""Length of a recording. Ours: no deadline would hold for a longer one."""
FORMAT_TEXT_S = 20 * 60
"""Length of a recording with `format_text`."""
CONTEXT_TERMS = 100
"""Entries of `context_bias`."""
GRANULARITIES_CHARS = 100
"""Of `timestamp_granularities`, all of them in one text. Ours."""
TRANSCRIPTION_PROMPT_CHARS = 4000
"""Of the end of `prompt`, which is what is kept of it: Whisper reads the last 223 tokens. Ours."""

OWN_VOICES = 10
"""That an organisation may have. Spec 8 (Adopted voices)."""

INSTRUCT_CHARS = 2000
"""Of `instruct`, the description that a voice is designed from."""
AGE_YEARS = (16, 90)
TARGET_HZ = (60, 400)
"""Pitch that a voice can be ordered at."""
PENDING_DRAFTS = 3
"""Drafts of an organisation that are made at the same time. Spec 8 (Concurrent drafts)."""
KEPT_DRAFTS = 100
"""Drafts of an organisation that are made or ready, each with a clip: as many as a list shows. Ours."""
DRAFT_S = 20 * 60
"""A draft that is not finished after so long has failed."""
DRAFT_KEPT_S = 30 * 24 * 3600
"""How long a draft that nobody adopted is kept, with its clip. Ours: the spec has no figure."""
VOICE_LABEL_CHARS = 80
"""Of the `label` of a designed voice. Ours."""
FREE_TEXT_CHARS = 500
"""Of `free_text`, in an order. Ours."""
SUGGEST_CHARS = 2000
"""Of `text`, to suggest traits from. Ours."""

DECISION_BODY_BYTES = 64 * 1024
"""Of a decision's body, not counting what its images hold."""
DECISION_IMAGES = 2
DECISION_IMAGE_BYTES = 4_000_000
"""Of one image, decoded."""
DECISION_QUESTIONS = 16
DECISION_STATE_CHARS = 16_000
DECISION_QUESTION_CHARS = 1000
DECISION_DESCRIPTION_CHARS = 512
"""Of an option's id or description, a level, and what true and false mean."""
DECISION_OPTIONS = (2, 26)
DECISION_LEVELS = (2, 10)
LOW_LABEL_MASS = 0.5
"""Below this probability on the allowed options, a distribution over them is an artefact."""

SAMPLES_IN_MEMORY = 256
"""Samples of fixed voices that an ingress process keeps in memory, of some 50 KB each."""

SAMPLE_IN_MEMORY_S = 3600
"""Seconds for which it keeps each."""

EARLY_LEAVERS = 10_000
"""Organisations that an ingress process remembers because a client of theirs left a whole answer."""

EARLY_LEAVER_S = 86_400.0
"""Seconds for which it does: their whole answers are counted while they are made."""
