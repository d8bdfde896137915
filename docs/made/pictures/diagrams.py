"""The pictures of boxes and arrows: the graph, the states of an engine, a deployment, and what stops threats."""

from __future__ import annotations

from collections.abc import Sequence

from docs.made.pictures.style import WIDTH, Drawing

ENGINES = (
    ("chat", "language models (vLLM)", 2),
    ("embeddings", "texts to vectors", 1),
    ("rerank", "documents by relevance", 0),
    ("speech", "marked as made by AI", 1),
    ("transcription", "decoded in a sandbox", 0),
    ("voice design", "voices at a pitch", 0),
    ("decisions", "probabilities of answers", 0),
)
"""Name, what it does, and how many of its two replicas run."""
MIDDLE = WIDTH // 2


def graph() -> str:
    """What a request meets on its way, and what each engine does."""
    drawing = Drawing(
        612,
        "The graph of Parlance",
        "A client speaks to HAProxy, that to the ingress with keys, limits and bills, and the ingress to seven kinds "
        "of engines, each with replicas that run or sleep.",
    )
    drawing.box(110, 6, 260, 56, "your client", ["OpenAI’s package, curl, your own"])
    drawing.room(6, 86, 468, 518)
    drawing.text(20, 110, "one Ray Serve graph")
    drawing.text(262, 110, "on one machine or many")
    drawing.way("M240 62V122")
    drawing.box(160, 124, 160, 54, "HAProxy", ["the one port"])
    drawing.way("M240 178V204")
    drawing.box(
        20, 206, 270, 106, "ingress", ["keys and scopes, rates, budgets", "one bill per request", "one shape of errors"]
    )
    drawing.way("M290 259H312", "thread")
    drawing.box(312, 218, 148, 82, "what it keeps", ["SQL, Redis, files", "(or SQLite alone)"])
    drawing.way("M240 312V558", "thread")
    for number, (name, note, running) in enumerate(ENGINES):
        x, y = (20, 260)[number % 2], 336 + number // 2 * 65
        drawing.room(x, y, 200, 55, "box")
        drawing.text(x + 12, y + 22, name, "name")
        drawing.text(x + 12, y + 43, note)
        for replica in range(2):
            kind = "awake" if replica < running else "asleep"
            drawing.add(
                f'<rect x="{x + 152 + 19 * replica}" y="{y + 9}" width="14" height="14" rx="3" class="{kind}"/>'
            )
        drawing.way(f"M240 {y + 27}H{222 if x == 20 else 258}")
    for y, kind, words in ((545, "awake", "a replica that runs"), (571, "asleep", "asleep, no memory")):
        drawing.add(f'<rect x="266" y="{y}" width="14" height="14" rx="3" class="{kind}"/>')
        drawing.text(288, y + 12, words)
    return str(drawing)


def engine() -> str:
    """The states of an engine, and what a client gets in each."""
    drawing = Drawing(
        462,
        "The states of an engine",
        "An engine sleeps, starts with a request, runs, is busy when every slot is taken, and sleeps again after "
        "idle_s without a request. Beside each state stands what a client gets.",
    )
    states: Sequence[tuple[str, str, str, Sequence[str]]] = (
        ("asleep", "no replica, no memory", "room", ("its answer, later; or 503", "warming_up (when_cold)")),
        ("starting", "weights are loaded", "hot", ("the same; a stream gets", "a comment every 15 s")),
        ("running", "a slot is free", "cold", ("its answer; 502 if the engine", "dies, 504 if it is too slow")),
        ("busy", "every slot is taken", "full", ("its answer after a queue;", "or 429 busy (when_busy)")),
    )
    drawing.text(264, 18, "the client gets", "name")
    for number, (name, note, kind, replies) in enumerate(states):
        y = 36 + 110 * number
        drawing.box(60, y, 180, 58, name, [note], kind)
        for line, reply in enumerate(replies):
            drawing.text(264, y + 25 + 20 * line, reply)
    for y, words in ((94, "request"), (204, "loaded")):
        drawing.way(f"M150 {y}V{y + 50}")
        drawing.text(162, y + 30, words)
    drawing.way("M130 314V364")
    drawing.way("M170 366V316")
    drawing.text(122, 344, "requests", anchor="end")
    drawing.text(180, 344, "answers")
    drawing.way("M60 285H20V65H58")
    drawing.text(28, 128, "idle_s")
    drawing.way("M240 188H252V78H242")
    drawing.text(264, 112, "503 engine_failed, where")
    drawing.text(264, 131, "it cannot start")
    return str(drawing)


def deployment() -> str:
    """A deployment on Kubernetes: what stands where, and on which ports it is reached."""
    drawing = Drawing(
        640,
        "A deployment of Parlance",
        "Clients reach a proxy with TLS on port 443, that HAProxy on port 8000, HAProxy two ingress replicas, and "
        "those the replicas of engines in pods for CPUs and GPUs. The ingress keeps state in PostgreSQL, Redis and an "
        "object store; engines read weights from a shared folder.",
    )
    drawing.box(150, 6, 180, 40, "clients")
    drawing.way("M240 46V82")
    drawing.text(252, 68, "443, TLS")
    drawing.box(90, 84, 300, 56, "your proxy with TLS", ["bodies of 100 MiB, waits of 960 s"])
    drawing.way("M240 140V206")
    drawing.text(252, 162, "8000")
    drawing.room(6, 170, 468, 354)
    drawing.way("M240 140V206")
    drawing.text(20, 194, "pods of one Ray cluster")
    drawing.box(20, 208, 440, 56, "HAProxy", ["in every pod that has a replica"])
    for x in (85, 225):
        drawing.way(f"M{x} 264V302")
        drawing.box(x - 65, 304, 130, 56, "ingress", ["keys, limits, bills"])
        drawing.way(f"M{x} 360V418")
    drawing.text(97, 288, "30000 to 31000")
    drawing.text(97, 394, "calls of Ray")
    drawing.box(310, 304, 150, 76, "head", ["Ray: 6379", "dashboard: 8265"])
    drawing.box(20, 420, 130, 76, "CPU engines", ["pods from zero,", "as requests come"], "cold")
    drawing.box(160, 420, 130, 76, "GPU engines", ["pods from zero,", "as requests come"], "cold")
    drawing.box(310, 420, 150, 76, "every pod", ["metrics: 8080", "health: 52365"], "room")
    stores = (
        ("PostgreSQL", "5432", "money, keys"),
        ("Redis", "6379", "rates, head"),
        ("objects", "443", "files"),
        ("folder", "shared", "weights"),
    )
    for number, (name, port, content) in enumerate(stores):
        x = 6 + 118 * number
        drawing.way(f"M{x + 57} 524V556")
        drawing.box(x, 558, 114, 76, name, [port, content])
    return str(drawing)


def threats() -> str:
    """Who could do harm, and what stands in the way."""
    drawing = Drawing(
        624,
        "Who could do harm, and what stands in the way",
        "Strangers, clients with keys and text of others reach HAProxy, then the ingress with its checks in order, "
        "the gate and the engines; stored data lies below the ingress.",
    )
    actors = (
        ("strangers", ("no key: health,", "samples, docs")),
        ("clients", ("a key: scopes,", "plan, budget")),
        ("third-party text", ("inside a good", "client’s message")),
    )
    for number, (actor, marks) in enumerate(actors):
        x = 6 + 160 * number
        drawing.box(x, 6, 148, 76, actor, marks)
        drawing.way(f"M{x + 74} 82V100", "thread")
    drawing.way("M80 100H400", "thread")
    drawing.room(6, 118, 468, 500)
    drawing.text(145, 142, "what an operator trusts: its machines")
    drawing.way("M125 100V158")
    steps = (
        (
            20,
            160,
            "1 HAProxy",
            ("10 s for headers", "a malformed request: 400", "connections per address", "headers for Serve dropped"),
        ),
        (
            250,
            160,
            "2 ingress",
            (
                "length, key, scope, rate:",
                "before a byte of the body",
                "body: bytes, time, depth",
                "plan, budget reserved",
            ),
        ),
        (
            20,
            336,
            "3 gate",
            ("slots are counted", "organisations take turns", "queue, deadline", "who leaves frees a slot"),
        ),
        (
            250,
            336,
            "4 engines",
            ("fields cross, no body", "grammars are bounded", "audio: a child process", "that can do nothing else"),
        ),
    )
    for x, y, name, notes in steps:
        drawing.box(x, y, 210, 130, name, notes)
    drawing.way("M230 225H248")
    drawing.way("M355 290V313H125V334")
    drawing.way("M230 401H248")
    drawing.way("M460 225H467V543H460", "thread")
    drawing.box(20, 504, 440, 78, "5 stored data", ("hashes of keys, money, usage lines,", "bytes by signed address"))
    return str(drawing)
