"""Limits that hold for all models, with their units (docs/api.md#limits). Limits of one model are in its stanza."""

MIB = 1024 * 1024

JSON_BODY_BYTES = 8 * MIB
CHAT_BODY_BYTES = 24 * MIB
"""Bytes of a chat body, images included."""
SPEECH_BODY_BYTES = 32 * MIB
"""Bytes of a speech body: it fits a clip of 30 s in base64, up to 96 kHz, two channels and 32 bits."""
MCP_BODY_BYTES = 4 * MIB
KEYLESS_BODY_BYTES = 64 * 1024
"""Bytes of a body without a key: one of 4 MiB could delay all other requests for a quarter of a second."""

JSON_DEPTH = 32
"""Nesting of any JSON body."""

JSON_VALUES = 20_000
"""Keys and values in a JSON body: reading each blocks the event loop for up to two microseconds."""
JSON_NUMBERS = 100_000
"""Keys and values of a body of token ids, of which keys, arrays and objects are JSON_VALUES at most."""
VALUE_BYTES = 128
"""Bytes of memory of each parsed key or value, in addition to the body."""

JSON_ESCAPES = 1_000_000
"""Backslashes in any JSON body: reading one takes a tenth of a microsecond. Images with escaped slashes have fewer than
half of that number."""

REQUESTS_OF_PROCESS = 2000
"""Requests at one time in one ingress process, with a key or without. One organisation may have half of them."""

REQUESTS_PER_STREAM = 4
"""Requests of a key at one time in one ingress process, for each stream that its plan allows."""

BODIES_OF_KEY_BYTES = 128 * MIB
"""Bytes in the memory of one ingress process for one key: bodies, until their requests end; their parsed values, by
VALUE_BYTES; and replies longer than REPLY_PIECE_BYTES, until they are sent. Requests without a key count by network
address, and all of them together have the bound of an organisation."""
BODIES_OF_ORGANISATION_BYTES = 256 * MIB
BODIES_OF_PROCESS_BYTES = 512 * MIB

LONG_BODY_BYTES = 16 * 1024
"""Length above which bodies are parsed one at a time, so that other requests run between them."""

BODY_IDLE_S = 20
"""Seconds without a byte of a body."""
BODY_S = 300
"""Seconds for a whole body. A body under a ticket has until the ticket expires."""
BODY_LEAST_BYTES_PER_S = 8 * 1024
"""Average rate of a body after BODY_GRACE_S, under a ticket too."""
BODY_GRACE_S = 30

WRITE_S = 60
"""Seconds in which a client reads nothing of its reply. After that the connection is closed and the engine is freed."""
REPLY_PIECE_BYTES = 256 * 1024
"""Bytes of a reply that are sent at a time: the next piece waits until the client has read most of the last one."""
WRITE_LEAST_BYTES_PER_S = 8 * 1024
"""Average rate at which a client must read after WRITE_S. Only time in which the server waits for the client counts."""

KEEPALIVE_S = 15
"""Seconds of silence in an event stream before a comment is sent."""

STATUS_EVERY_S = 1.0
"""Least seconds between two events that report a wait."""
STATUS_SILENCE_S = 10.0
"""Seconds after which such an event is sent without a change, before a comment is due."""

COLD_RETRY_AFTER_MAX_S = 60
"""Longest `Retry-After`: SDKs ignore longer ones."""

RATE_WINDOW_S = 60

KEYLESS_REQUESTS = 120
"""Requests without a key from one network address in each window: an office is often one address. The same limit
applies to requests with invalid keys."""
KEYLESS_AT_ONCE = 40
"""Requests without a key from one address at one time in one ingress process."""

DOCS_QUERY_CHARS = 500
DOCS_RESULTS = 20
"""Most sections in the result of one query."""

USAGE_DAYS = 366
"""Longest range of one request for usage; USAGE_DEFAULT_DAYS if it names no start."""
USAGE_DEFAULT_DAYS = 30
USAGE_ROWS = 1000
"""Most rows of a page of usage, one for each day and model; USAGE_DEFAULT_ROWS if a request names no limit."""
USAGE_DEFAULT_ROWS = 100

KEY_CACHE_S = 5
"""Seconds within which every ingress replica refuses a revoked key."""

SCHEMA_COMPILE_S = 10
"""Seconds of processor time to compile the form of an answer to a grammar."""
SCHEMA_STEP_MS = 5
"""Milliseconds of processor time to find the tokens that such a grammar allows next, in a vocabulary of 50,000."""
REGEX_STATES = 512
"""States of the automaton of a regular expression that an answer must match."""
KEPT_REPLIES = 100_000
"""Answers that are stored for the `Idempotency-Key`s of an organisation."""
KEPT_REPLY_BYTES = 256 * MIB
"""Bytes of the bodies of those answers. Beyond that, an answer is recorded without its body."""

IMAGE_PIXELS = 25_000_000
"""Pixels of an image as it is sent, more than most cameras produce. Decoding takes up to eleven bytes for each."""
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
MAX_STOPS = 16
"""Stop sequences of one request. OpenAI's API allows 4; editors send up to 14."""
MAX_STOP_CHARS = 256
MAX_TEMPERATURE = 2.0
MAX_PENALTY = 2.0
MAX_REPETITION_PENALTY = 2.0
LOGPROB_TOKENS = 65_536
"""Tokens with `logprobs` in all choices of one request together, including repeated prompts. Each is a few objects in
an engine and in the ingress, and up to a hundred bytes in the reply."""
LOGPROB_OTHERS = 5
"""Most probable tokens for each of them; a request for more gets them for fewer tokens."""

CHARS_PER_TOKEN = 16
"""Characters of a text for each token of the window: languages have two to five. The rest is cut before tokenization,
which takes time and memory."""
TOKENIZE_BYTES_PER_TOKEN = 8
"""Bytes of text that one request may tokenize, for each token of the window: twice what fits."""
DETOKENIZE_IDS = 65_536
"""Token ids that one request may turn into text."""

STREAM_SLICE_OUTPUT_TOKENS = 1024
"""Output tokens of a stream that are reserved at a time."""

SPEECH_INPUT_CHARS = 4000
"""Code points of `input`, for every engine; some accept fewer."""
SPEECH_CLIP_S = 30
"""Seconds of a reference clip."""
SPEECH_CLIP_VOICE_S = 0.5
"""Least seconds of speech in a reference clip: a shorter one has no voice to imitate."""
SPEECH_SPEED = (0.5, 2.0)
SPEECH_STYLE_CHARS = 4096
"""Characters of a style instruction, for engines that follow one, as in OpenAI's SDK."""
SPEECH_STYLE_READ_CHARS = 500
"""Characters of the style that an engine reads: a longer one would displace the text."""

RECORDING_BODY_BYTES = 9 * MIB // 2
"""Bytes of a recording in the body of a request: 4.5 MiB. The rest of the form is not counted."""
RECORDING_FORM_BYTES = 64 * 1024
"""Bytes of the rest of the form."""
UPLOAD_BYTES = 100 * MIB
"""Bytes of a recording that is uploaded under a ticket."""
UPLOAD_S = 3600
"""Seconds in which a ticket can be used."""
OPEN_UPLOADS = 100
"""Tickets of an organisation with an upload, present or possible: unused ones, and until they expire those that were
used before anything was uploaded. Each occupies up to 100 MiB."""
UPLOADS_OF_ORGANISATION = 32
"""Uploads of an organisation under tickets at one time, in one ingress process."""
SPARE_BYTES = 1024 * MIB
"""Bytes that uploads leave free on the disk of the recordings: the database is often on the same disk."""
RECORDING_S = 4 * 3600
"""Seconds of a recording: a longer one would miss every deadline."""
FORMAT_TEXT_S = 20 * 60
"""Seconds of a recording with `format_text`."""
CONTEXT_TERMS = 100
"""Entries of `context_bias`."""
GRANULARITIES_CHARS = 100
"""Characters of `timestamp_granularities`, joined in one text."""
TRANSCRIPTION_PROMPT_CHARS = 4000
"""Characters at the end of `prompt` that are used: Whisper reads the last 223 tokens."""

OWN_VOICES = 10
"""Voices that an organisation may have."""

INSTRUCT_CHARS = 2000
"""Characters of `instruct`, the description that a voice is designed from."""
AGE_YEARS = (16, 90)
TARGET_HZ = (60, 400)
"""Range of the pitch of an order, in Hz."""
PENDING_DRAFTS = 3
"""Drafts of an organisation that are generated at the same time."""
KEPT_DRAFTS = 100
"""Pending and ready drafts of an organisation, each with a clip. A list shows the same number."""
DRAFT_S = 20 * 60
"""Seconds after which an unfinished draft has failed."""
DRAFT_KEPT_S = 30 * 24 * 3600
"""Seconds for which a draft without adoption is stored, with its clip."""
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
"""Probability on the allowed options below which their distribution is an artefact."""

SAMPLES_IN_MEMORY = 256
"""Samples of fixed voices that an ingress process keeps in memory, of some 50 KB each."""

SAMPLE_IN_MEMORY_S = 3600
"""Seconds for which it keeps each."""

EARLY_LEAVERS = 10_000
"""Organisations that an ingress process remembers because one of their clients left before the end of an answer that is
not streamed."""

EARLY_LEAVER_S = 86_400.0
"""Seconds for which it does: meanwhile it counts the tokens of such answers while they are generated."""

CONSOLE_RECORDS = 10_000
"""Latest requests of an organisation that are stored for the console. Each takes up to a kilobyte."""
CONSOLE_RECORDS_OF_PROCESS = 50_000
"""Stored requests of all organisations in one ingress process; the organisation with most of them loses its oldest."""
CONSOLE_SPANS = 64
"""Stored stages of one request."""
CONSOLE_ROWS = 200
"""Most requests of a page; CONSOLE_DEFAULT_ROWS if a request names no limit."""
CONSOLE_DEFAULT_ROWS = 50
CONSOLE_LOOK_S = 1.0
"""Least seconds between two events that report a change to the console."""
CONSOLE_BANDS_S = 3600
"""Seconds of the history of an engine's states in the console."""
CONSOLE_BUNDLE_BYTES = 150_000
"""Bytes of the page of the console and all that it loads, before compression."""


def most_with_logprobs(others: int) -> int:
    """Returns the most tokens of all choices of a request together, with `others` alternatives for each."""
    return LOGPROB_TOKENS * (1 + LOGPROB_OTHERS) // (1 + max(others, LOGPROB_OTHERS))
