"""The console: the graph as it is, and what became of the last requests, for people who look at it in a browser.

bundle.py    the page's own files, from memory
records.py   what is remembered of the last requests of each organisation
picture.py   what one process sees of engines and traffic, and the picture that all processes make
console.py   Console: all of these in one process, what it shares with others, and the feed of all who watch
"""

from deployments.ingress.console.console import Console

__all__ = ["Console"]
