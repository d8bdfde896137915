"""A slug for a voice that was ordered without one, made of its label."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container
from itertools import chain, count

BASE_CHARS = (2, 34)
"""Of a slug before its number."""

OTHERS = re.compile(r"[^a-z0-9]+")


def free_slug(label: str, otherwise: str, taken: Container[str]) -> str:
    """`label` as a slug, with a number where it is taken; `otherwise` stands for labels in another script."""
    plain = unicodedata.normalize("NFKD", label.casefold()).encode("ascii", "ignore").decode()
    low, high = BASE_CHARS
    base = OTHERS.sub("-", plain).strip("-")[:high].strip("-")
    base = base if len(base) >= low else otherwise
    return next(slug for slug in chain((base,), (f"{base}-{n}" for n in count(2))) if slug not in taken)
