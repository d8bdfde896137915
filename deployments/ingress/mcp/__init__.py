"""Tools for editors, desktop clients and agents, over MCP. The protocol is the official SDK's.

    tools.py          the tools of both endpoints: arguments, flow, answer. No HTTP, no SDK
    documentation.py  finds and reads what this repository's pages say; wakes no model
    exchange.py       tools as a server of the SDK; one admitted message through it, and its reply

Only the last one imports the SDK, which takes 1.7 s and 20 MB: the first message loads them, not the start.
"""
