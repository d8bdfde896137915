"""Images as clients send them, and the beginning of one that is larger than anybody may send."""

import base64
import io
import struct
import zlib

from PIL import Image


def flat(colour: str | int | tuple[int, ...], size: tuple[int, int] = (80, 40), mode: str = "RGB") -> Image.Image:
    return Image.new(mode, size, colour)


def encoded(image: Image.Image, kind: str = "png") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def address(image: Image.Image | bytes, kind: str = "png") -> str:
    data = image if isinstance(image, bytes) else encoded(image, kind)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def announced(width: int, height: int) -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return address(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )
