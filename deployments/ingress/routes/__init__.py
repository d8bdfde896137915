"""One router per family of routes. A route parses the body, calls its flow, and makes the response.

<noun>.py                  one router per capability; chat.py continues plain prompts, and counts tokens, too
responses.py  messages.py  chat on OpenAI's newer wire, and on Anthropic's
voices.py  designs.py      voices, samples; voices to order
realtime.py                live transcription over a websocket; client secrets
files.py                   tickets for large recordings; bytes behind signed addresses, read and written
mcp.py                     tools over the Model Context Protocol
console.py                 the console: its page, events, requests and keys
service.py                 health, models, the caller's key, the OpenAPI document; images, which are not there yet
"""
