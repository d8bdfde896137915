"""One router per family of routes. A route parses the body, calls its flow, and makes the response.

<noun>.py                       one router per capability of the catalogue
responses.py  messages.py       chat on OpenAI's newer wire, and on Anthropic's
voices.py  designs.py           voices, samples; voices to order
models.py  me.py  health.py     what there is, what a key may do, whether the server lives
completions.py                  plain prompts, continued
tokens.py                       texts as tokens and back
uploads.py                      tickets for large recordings
files.py                        bytes behind signed addresses, read and written
mcp.py                          tools over the Model Context Protocol
document.py                     the OpenAPI document
images.py                       not available yet, and says so
"""
