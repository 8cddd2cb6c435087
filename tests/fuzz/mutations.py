"""Changes to a file or a line as accidents and enemies make them: flipped bits, cuts, copies, other numbers, other words."""

import random
import re
from collections.abc import Callable

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
NUMBERS = (
    b"0 -1 1 1e9 1e400 -1e-9 nan NaN inf -Infinity 010 0x10 1_000 12:30 9223372036854775808 1e308 .5 5. 0.1.2 null true "
    b"99999999999999999999999999 3.5 '7'"
).split()
WORDS = (
    b"null",
    b"~",
    b"true",
    b"''",
    b"[]",
    b"{}",
    b"[1, 2]",
    b"{a: 1}",
    b'"',
    b"'",
    b",",
    b"\n",
    b"\r\n",
    b"\t",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\x1b[31m",
    b"${oc.env:HOME}",
    b"${seed}",
    b"_target_: os.system",
    b"hydra:",
    b"!!python/object:os.system",
    b"=cmd()",
    b"../../etc/passwd",
    b"\xe6\x9d\xb1\xe4\xba\xac",
    b"&a [*a]",
    b"<<: *a",
    b"---",
    b"#",
    b"KiB",
    b"-",
    b":",
    b"A" * 140_000,
)
TOKENS = re.compile(rb"[A-Za-z_][\w.]*")


def mutated(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """The data after one change or several.

    Args:
        data: a sound input.
        others: sound inputs of the same kind, of which parts are taken.
        rng: of this input.
    """
    for _ in range(min(1 + int(rng.expovariate(1.5)), 6)):
        data = rng.choice(CHANGES)(data, others, rng)
    return data


def _flipped(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    if not data:
        return b"\x01"
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _cut(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    start, end = _range(data, rng)
    return data[:start] + data[end:]


def _shortened(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    return data[: _range(data, rng)[1]]


def _copied(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    start, end = _range(data, rng)
    return data[:end] + data[start:end] + data[end:]


def _crossed(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    other = rng.choice(others)
    (start, end), (begin, stop) = _range(data, rng), _range(other, rng)
    return data[:start] + other[begin:stop] + data[end:]


def _word_put_in(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    start, _ = _range(data, rng)
    return data[:start] + rng.choice(WORDS) + data[start:]


def _other_number(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    return _replaced(NUMBER, data, rng, lambda old: rng.choice((*NUMBERS, old + b"000000", old + b" MB", b"-" + old)))


def _other_word(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    words = TOKENS.findall(rng.choice(others)) or [b"x"]
    return _replaced(TOKENS, data, rng, lambda old: rng.choice((rng.choice(words), rng.choice(WORDS), old + b"x", old[:-1])))


def _lines_moved(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    line = lines.pop(rng.randrange(len(lines)))
    lines.insert(rng.randrange(len(lines) + 1), line if rng.random() < 0.5 else b"  " + line)
    return b"\n".join(lines)


CHANGES = (
    _flipped, _cut, _shortened, _copied, _crossed, _word_put_in, _word_put_in, _other_number, _other_number, _other_word,
    _other_word, _lines_moved,
)  # fmt: skip


def _range(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + 1 + int(rng.expovariate(0.05)))


def _replaced(pattern: re.Pattern[bytes], data: bytes, rng: random.Random, new: Callable[[bytes], bytes]) -> bytes:
    matches = list(pattern.finditer(data))
    if not matches:
        return data
    match = rng.choice(matches)
    return data[: match.start()] + new(match[0]) + data[match.end() :]
