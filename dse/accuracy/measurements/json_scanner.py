"""Streaming reader of JSON of any size: small values are kept, long ones are passed over.

The standard library decodes single values. What lies between two values, and what nobody wants, is passed over by a regular
expression, so that a gigabyte takes some ten seconds and some megabytes.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from dse.space.errors import DesignError

CHUNK_CHARS = 1 << 20
"""Characters that are read at once."""
MAX_VALUE_CHARS = 16 << 20
"""Largest single value that is decoded: an element of an array, or a member of an object."""
MAX_CHARS = 8 << 30
"""Characters of an unpacked file at most."""

STRUCTURE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}"]', re.DOTALL)
"""A string, a bracket, or the quote of a string whose end has not been read."""
BLANK = re.compile(r"[ \t\r\n]*")
DECODER = json.JSONDecoder()


class JsonScanner:
    """Place in a stream of JSON values, moved on by reading or passing over one value after the other."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self.path, self._file = path, file
        self._text, self._place, self._before, self._ended = "", 0, 0, False

    def has_more(self) -> bool:
        """Whether anything but blanks is left."""
        return bool(self._peek())

    def next_character(self) -> str:
        """First character of the next value, which is not taken; empty string at the end."""
        return self._peek()

    def read_value(self) -> Any:
        """Decode the next value of the stream.

        Raises:
            DesignError: no JSON, a file that ends inside the value, or one of more than `MAX_VALUE_CHARS`.
        """
        self._peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._place)
            except (ValueError, RecursionError) as error:
                if self._ended or isinstance(error, RecursionError):
                    raise self._error(f"not JSON, or cut off: {getattr(error, 'msg', 'nested too deeply')}") from None
            else:
                if end < len(self._text) or self._ended:  # else a number may go on
                    self._place = end
                    return value
            if len(self._text) - self._place > MAX_VALUE_CHARS:
                raise self._error(f"no end of a value within {MAX_VALUE_CHARS >> 20} million characters")
            self._fill(max(CHUNK_CHARS, len(self._text) - self._place))

    def skip_value(self) -> None:
        """Pass over the next value, of any size.

        Raises:
            DesignError: the file ends inside the value.
        """
        if self._peek() not in ("{", "[", '"'):
            self.read_value()
            return
        depth = 0
        while True:
            rest = len(self._text)
            for match in STRUCTURE.finditer(self._text, self._place):
                mark = match[0]
                if mark == '"':
                    rest = match.start()
                    break
                depth += (mark in "{[") - (mark in "}]")
                if depth <= 0:
                    self._place = match.end()
                    return
            self._place = rest
            if self._ended:
                raise self._error("the file ends inside a value: it is cut off")
            if len(self._text) - self._place > MAX_VALUE_CHARS:
                raise self._error(f"no end of a string within {MAX_VALUE_CHARS >> 20} million characters")
            self._fill(max(CHUNK_CHARS, len(self._text) - self._place))

    def iterate_elements(self) -> Iterator[Any]:
        """Decode the elements of the next array, one by one."""
        yield from (self.read_value() for _ in self._parts("[", "]"))

    def iterate_members(self) -> Iterator[str]:
        """Names of the members of the next object; the caller reads or passes over the value after each."""
        for _ in self._parts("{", "}"):
            name = self.read_value()
            if not isinstance(name, str) or self._peek() != ":":
                raise self._error("expected the name of a member and a colon")
            self._place += 1
            yield name

    def _parts(self, first: str, last: str) -> Iterator[None]:
        """Before each part of an array or object, up to its end."""
        if self._peek() != first:
            raise self._error(f"expected {first}, got {self._peek() or 'the end'!r}")
        self._place += 1
        if self._peek() == last:
            self._place += 1
            return
        while True:
            yield
            mark = self._peek()
            self._place += 1
            if mark == last:
                return
            if mark != ",":
                raise self._error(f"expected , or {last}, got {mark!r}" if mark else "the file ends too early: it is cut off")

    def _peek(self) -> str:
        while True:
            match = BLANK.match(self._text, self._place)
            self._place = match.end() if match else self._place
            if self._place < len(self._text) or self._ended:
                return self._text[self._place : self._place + 1]
            self._fill(CHUNK_CHARS)

    def _fill(self, count: int) -> None:
        more = self._file.read(count)
        self._before += self._place
        self._text, self._place, self._ended = self._text[self._place :] + more, 0, not more
        if self._before > MAX_CHARS:
            raise DesignError(f"{self.path}: more than {MAX_CHARS >> 30} billion characters; cut the file")

    def _error(self, what: str) -> DesignError:
        return DesignError(f"{self.path}: character {self._before + self._place + 1:,}: {what}")
