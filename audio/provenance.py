"""The provenance that every file states: made by an AI, by which engine, when; never the text, never the client.

    Provenance         how the sound of a file was made
      |- tags()        for containers with free text keys (FLAC and Ogg comments, ID3 before MP3 and ADTS)
      `- chunks()      for RIFF: a LIST/INFO for players, a _PMX (XMP) for programs

The digital source type is IPTC's; https://cv.iptc.org/newscodes/digitalsourcetype/ lists its values.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.sax.saxutils import escape, quoteattr

SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
STATEMENT = "AI-generated speech: made by a machine, not spoken by a person."

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_XMP = "http://ns.adobe.com/xap/1.0/"
_DC = "http://purl.org/dc/elements/1.1/"
_IPTC = "http://iptc.org/std/Iptc4xmpExt/2008-02-29/"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of the sound of a file: the engine, and the Unix time in seconds."""

    engine: str
    made_at: int

    @property
    def date(self) -> str:
        """`made_at` in ISO 8601, UTC."""
        return datetime.fromtimestamp(self.made_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def tags(self) -> dict[str, str]:
        """Keys and values; unknown keys become TXXX frames in ID3."""
        return {
            "comment": STATEMENT,
            "date": self.date,
            "DIGITALSOURCETYPE": SOURCE_TYPE,
            "GENERATOR": self.engine,
        }

    def chunks(self) -> bytes:
        """RIFF chunks to stand before `data`, where a reader that stops there, and a file that is cut, have them."""
        info = {b"ICMT": STATEMENT, b"ISFT": self.engine, b"ICRD": self.date, b"IKEY": SOURCE_TYPE}
        listed = b"INFO" + b"".join(_chunk(name, text.encode() + b"\0") for name, text in info.items())
        return _chunk(b"LIST", listed) + _chunk(b"_PMX", self._xmp().encode())

    def _xmp(self) -> str:
        return (
            f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="{_RDF}"><rdf:Description rdf:about=""'
            f' xmlns:xmp="{_XMP}" xmlns:dc="{_DC}" xmlns:Iptc4xmpExt="{_IPTC}"'
            f' Iptc4xmpExt:DigitalSourceType="{SOURCE_TYPE}"'
            f" xmp:CreatorTool={quoteattr(self.engine)} xmp:CreateDate={quoteattr(self.date)}>"
            f'<dc:description><rdf:Alt><rdf:li xml:lang="x-default">{escape(STATEMENT)}</rdf:li></rdf:Alt>'
            "</dc:description></rdf:Description></rdf:RDF></x:xmpmeta>"
        )


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)
