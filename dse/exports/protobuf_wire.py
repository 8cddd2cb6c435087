"""Protocol-buffer wire format: varints, fields and messages, written and read without a compiler.

The format is that of protobuf.dev/programming-guides/encoding. Files have the length of each message in front of it.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dse.space.errors import DesignError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of fields in the encoding of Protocol Buffers."""

MAX_VARINT_BYTES = 10
"""Bytes of the longest varint, that of a negative number of 64 bits."""

MAX_MESSAGE_BYTES = 16_000_000
"""Largest message that is read. [B]"""


def encode_varint(value: int) -> bytes:
    """Varint of a whole number; negative ones have 64 bits in two's complement.

    >>> encode_varint(0).hex(), encode_varint(300).hex(), len(encode_varint(-1))
    ('00', 'ac02', 10)
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_field(number: int, value: int | float | str | bytes) -> bytes:
    """Field of a message: whole numbers as varints, floats in 8 bytes, text with its length.

    >>> encode_field(2, "ab").hex(), encode_field(1, 5).hex(), encode_field(3, 1.0)[:1].hex()
    ('12026162', '0805', '19')
    """
    if isinstance(value, float):
        return encode_varint(number << 3 | FIXED64) + struct.pack("<d", value)
    if isinstance(value, int):
        return encode_varint(number << 3 | VARINT) + encode_varint(int(value))
    content = value.encode() if isinstance(value, str) else value
    return encode_varint(number << 3 | BYTES) + encode_varint(len(content)) + content


def encode_packed(number: int, values: list[int]) -> bytes:
    """Repeated field of whole numbers, packed as proto3 has them; nothing without values."""
    return encode_field(number, b"".join(map(encode_varint, values))) if values else b""


def delimit_message(message: bytes) -> bytes:
    """Message with its length in front of it, as files of messages have them."""
    return encode_varint(len(message)) + message


def decode_fields(message: bytes, place: str = "message") -> Iterator[tuple[int, Any]]:
    """Fields of a message as (number, value): whole numbers, floats, or bytes.

    Raises:
        DesignError: the message is cut, or has a wire type that the format does not have.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(message, at, place)
            yield number, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at, place)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise DesignError(f"{place}: field {number} has wire type {kind}, which protocol buffers do not have")
        content = message[at : at + size]
        if len(content) < size:
            raise DesignError(f"{place}: field {number} needs {size} B, but {len(content)} B are left; the file is cut")
        at += size
        yield number, content if kind == BYTES else struct.unpack("<d" if kind == FIXED64 else "<f", content)[0]


def decode_packed(content: bytes, place: str = "message") -> list[int]:
    """Whole numbers of a packed field."""
    values, at = [], 0
    while at < len(content):
        value, at = _varint(content, at, place)
        values.append(value)
    return values


def read_messages(path: Path) -> Iterator[bytes]:
    """Messages of a file of length-delimited messages.

    Raises:
        DesignError: the file cannot be read, is cut, or has a message that is too large.
    """
    try:
        with path.open("rb") as file:
            while head := file.read(1):
                while head[-1] & 0x80:
                    more = file.read(1)
                    if not more or len(head) == MAX_VARINT_BYTES:
                        raise DesignError(f"{path}: a length is cut; the file is no list of length-delimited messages")
                    head += more
                size = _varint(head, 0, str(path))[0]
                if size > MAX_MESSAGE_BYTES:
                    raise DesignError(f"{path}: a message of {size:,} B exceeds {MAX_MESSAGE_BYTES:,} B")
                message = file.read(size)
                if len(message) < size:
                    raise DesignError(f"{path}: a message of {size:,} B has {len(message):,} B left; the file is cut")
                yield message
    except OSError as error:
        raise DesignError(f"{path}: {error.strerror}; name a file that can be read") from None


def _varint(content: bytes, at: int, place: str) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(content) or shift >= 7 * MAX_VARINT_BYTES:
            raise DesignError(f"{place}: a number is cut or longer than {MAX_VARINT_BYTES} B")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
