"""Limits that hold for all models, with their units (docs/api.md#limits). Limits of one model are in its stanza."""

MIB = 1024 * 1024

JSON_BODY_BYTES = 8 * MIB
CHAT_BODY_BYTES = 24 * MIB
"""Chat bodies may carry images."""
SPEECH_BODY_BYTES = 32 * MIB
"""Speech bodies may carry a clip of 30 s in base64, up to 96 kHz, two channels and 32 bits."""
MCP_BODY_BYTES = 4 * MIB
KEYLESS_BODY_BYTES = 64 * 1024
"""Bytes of a message without a key: one of 4 MiB could delay all other requests for a quarter of a second."""

JSON_DEPTH = 32
"""Nesting of any JSON body."""

JSON_VALUES = 20_000
"""Keys and values in a JSON body: reading one takes up to two microseconds in which nobody else is answered."""
JSON_NUMBERS = 100_000
"""The same where token ids are taken by the thousand. Keys, arrays and objects among them are at most JSON_VALUES."""
VALUE_BYTES = 128
"""Bytes of memory that a key or a value takes once it is read, beside the body that it came in."""

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
"""Bodies of more bytes are read one at a time, so that steps of other requests run between them."""

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
"""Bytes of a reply that are sent at a time: the next piece waits until the client has read most of the last one."""
WRITE_LEAST_BYTES_PER_S = 8 * 1024
"""That a client must take on average, while it is waited for and beyond WRITE_S. Time in which there is nothing to send
does not count."""

KEEPALIVE_S = 15
"""Seconds of silence in an event stream before a comment is sent."""

STATUS_EVERY_S = 1.0
"""Seconds between two events that tell of a wait, at least."""
STATUS_SILENCE_S = 10.0
"""Seconds after which the next one is sent though nothing has changed: before a comment is due."""

COLD_RETRY_AFTER_MAX_S = 60
"""SDKs ignore a longer `Retry-After`."""

RATE_WINDOW_S = 60

KEYLESS_REQUESTS = 120
"""Requests without a key that a network address has in each window: an office is often one address. As many keys that
open nothing may come from it."""
KEYLESS_AT_ONCE = 40
"""How many of these may be under way at one time in one ingress process."""

DOCS_QUERY_CHARS = 500
DOCS_RESULTS = 20
"""Sections that one query shows at most."""

USAGE_DAYS = 366
"""That one request for usage may span; USAGE_DEFAULT_DAYS where it does not say since when."""
USAGE_DEFAULT_DAYS = 30
USAGE_ROWS = 1000
"""Rows of a page of usage, one for each day and model, at most; USAGE_DEFAULT_ROWS where it does not say how many."""
USAGE_DEFAULT_ROWS = 100

KEY_CACHE_S = 5
"""A revoked key dies within this time on every ingress replica."""

SCHEMA_COMPILE_S = 10
"""Seconds of processor time for compiling the form of an answer to a grammar."""
SCHEMA_STEP_MS = 5
"""Milliseconds of processor time for finding the tokens that such a grammar allows next, of 50,000 that there are."""
REGEX_STATES = 512
"""States of the automaton of a regular expression that an answer must match."""
KEPT_REPLIES = 100_000
"""Answers that are stored for the `Idempotency-Key`s of one API key."""
KEPT_REPLY_BYTES = 256 * MIB
"""Bytes of the bodies of those answers. Further answers are stored as a fact, without their body."""

IMAGE_PIXELS = 25_000_000
"""Pixels of an image as it is sent: more than most cameras make. Decoding takes up to eleven bytes for each."""
CHAT_PIXELS = 100_000_000
"""Pixels of all images of a chat together: eight photographs of a telephone."""

MAX_MESSAGES = 2048
MAX_PARTS = 256
"""Parts of one message."""
MAX_IMAGES = 16
"""Images of one request."""
MAX_TOOL_CALLS = 128
"""Tool calls of one assistant message."""
MAX_CHOICES = 8
MAX_TOP_LOGPROBS = 20
MAX_STOPS = 4
MAX_STOP_CHARS = 256
MAX_TEMPERATURE = 2.0
MAX_PENALTY = 2.0
MAX_TOP_K = 1000
"""0 is all tokens, and so is -1, which older clients of vLLM send."""
MAX_REPETITION_PENALTY = 2.0
LOGPROB_TOKENS = 65_536
"""Tokens with `logprobs` in all choices of one request together, prompts that are repeated included. Each is a few
objects in an engine and in the ingress, and up to a hundred bytes in the reply."""
LOGPROB_OTHERS = 5
"""Most probable tokens beside each of them; whoever asks for more gets them for fewer tokens."""

CHARS_PER_TOKEN = 16
"""Characters of a text for each token of the window. The rest is cut before tokenization, which takes time and memory.
Ours: languages have two to five."""
TOKENIZE_BYTES_PER_TOKEN = 8
"""Bytes of text that one request may tokenize, for each token of the window: twice what fits."""
DETOKENIZE_IDS = 65_536
"""Token ids that one request may turn into text."""

STREAM_SLICE_OUTPUT_TOKENS = 1024
"""Output tokens of a stream that are reserved at a time."""

SPEECH_INPUT_CHARS = 4000
"""Code points of `input`, for every engine; some take fewer."""
SPEECH_CLIP_S = 30
"""Seconds of a reference clip."""
SPEECH_SPEED = (0.5, 2.0)
SPEECH_STYLE_CHARS = 4096
"""Characters of a style instruction, for engines that follow one: as many as OpenAI's SDK allows."""
SPEECH_STYLE_READ_CHARS = 500
"""Characters of the style that an engine reads: a longer one would take the place of the text."""

RECORDING_BODY_BYTES = 9 * MIB // 2
"""Bytes of a recording in the body of a request: 4.5 MiB. The rest of the form is not counted."""
RECORDING_FORM_BYTES = 64 * 1024
"""Bytes of the rest of the form."""
UPLOAD_BYTES = 100 * MIB
"""Bytes of a recording that is uploaded under a ticket."""
UPLOAD_S = 3600
"""Seconds in which a ticket can be used."""
OPEN_UPLOADS = 100
"""Tickets of an organisation under which bytes lie or may come: those that are not used, and until they expire those
that were used before anything was uploaded. They occupy up to 100 MiB each."""
UPLOADS_OF_ORGANISATION = 32
"""Recordings of an organisation that are on their way under tickets at one time, in one ingress process."""
SPARE_BYTES = 1024 * MIB
"""Bytes that uploads leave free on the disk of the recordings: the database is often on the same disk."""
RECORDING_S = 4 * 3600
"""Length of a recording: no deadline would hold for a longer one."""
FORMAT_TEXT_S = 20 * 60
"""Length of a recording with `format_text`."""
CONTEXT_TERMS = 100
"""Entries of `context_bias`."""
GRANULARITIES_CHARS = 100
"""Characters of `timestamp_granularities`, all of them in one text."""
TRANSCRIPTION_PROMPT_CHARS = 4000
"""Characters at the end of `prompt` that count: Whisper reads the last 223 tokens."""

OWN_VOICES = 10
"""Voices that an organisation may have."""

INSTRUCT_CHARS = 2000
"""Characters of `instruct`, the description that a voice is designed from."""
AGE_YEARS = (16, 90)
TARGET_HZ = (60, 400)
"""Pitch that a voice can be ordered at."""
PENDING_DRAFTS = 3
"""Drafts of an organisation that are made at the same time."""
KEPT_DRAFTS = 100
"""Drafts of an organisation that are made or ready, each with a clip: as many as a list shows."""
DRAFT_S = 20 * 60
"""A draft that is not finished after so long has failed."""
DRAFT_KEPT_S = 30 * 24 * 3600
"""How long a draft that nobody adopted is kept, with its clip."""
VOICE_LABEL_CHARS = 80
FREE_TEXT_CHARS = 500
"""Characters of `free_text` in an order."""
SUGGEST_CHARS = 2000
"""Characters of `text` from which traits are suggested."""

DECISION_BODY_BYTES = 64 * 1024
"""Bytes of a decision's body, without the data of its images."""
DECISION_IMAGES = 2
DECISION_IMAGE_BYTES = 4_000_000
"""Bytes of one image, decoded."""
DECISION_QUESTIONS = 16
DECISION_STATE_CHARS = 16_000
DECISION_QUESTION_CHARS = 1000
DECISION_DESCRIPTION_CHARS = 512
"""Characters of an option's id or description, of a level, and of the meanings of true and false."""
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

CONSOLE_RECORDS = 10_000
"""Requests of an organisation that are remembered for the console: the last ones. Each takes up to a kilobyte."""
CONSOLE_RECORDS_OF_PROCESS = 50_000
"""Of all organisations together in one ingress process; the organisation that has most loses its oldest."""
CONSOLE_SPANS = 64
"""Stages of one request that are remembered."""
CONSOLE_ROWS = 200
"""Requests that a page shows at most; CONSOLE_DEFAULT_ROWS where it does not say how many."""
CONSOLE_DEFAULT_ROWS = 50
CONSOLE_LOOK_S = 0.2
"""Seconds between two events that tell the console of a change, at least."""
CONSOLE_BANDS_S = 3600
"""Seconds of an engine's past whose states the console shows."""
CONSOLE_BUNDLE_BYTES = 150_000
"""Bytes of the console's page with all that it loads, before they are compressed."""


def most_with_logprobs(others: int) -> int:
    """Tokens of all choices of a request together, with so many others beside each."""
    return LOGPROB_TOKENS * (1 + LOGPROB_OTHERS) // (1 + max(others, LOGPROB_OTHERS))
