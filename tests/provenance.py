"""Reads back the provenance that `audio.provenance` puts into every file."""

import io
from xml.etree import ElementTree

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XMP = "http://ns.adobe.com/xap/1.0/"
IPTC = "http://iptc.org/std/Iptc4xmpExt/2008-02-29/"


def read_provenance(data: bytes) -> dict[str, str]:
    """`source_type`, `statement`, `engine` and `date` of a file, as far as it has them."""
    return _read_riff(data) if data[:4] == b"RIFF" else _read_tags(data)


def _read_tags(data: bytes) -> dict[str, str]:
    import av

    with av.open(io.BytesIO(data)) as file:
        tags = file.metadata | file.streams.audio[0].metadata  # Ogg has them in the stream
    keys = {"source_type": "DIGITALSOURCETYPE", "statement": "comment", "engine": "GENERATOR", "date": "date"}
    return {name: tags[key] for name, key in keys.items() if key in tags}


def _read_riff(data: bytes) -> dict[str, str]:
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"_PMX":
            return _read_xmp(data[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
    return {}


def _read_xmp(packet: bytes) -> dict[str, str]:
    description = ElementTree.fromstring(packet).find(f".//{{{RDF}}}Description")
    if description is None:
        return {}
    values = {
        "source_type": description.get(f"{{{IPTC}}}DigitalSourceType"),
        "statement": description.findtext(f".//{{{RDF}}}li"),
        "engine": description.get(f"{{{XMP}}}CreatorTool"),
        "date": description.get(f"{{{XMP}}}CreateDate"),
    }
    return {name: value for name, value in values.items() if value}
