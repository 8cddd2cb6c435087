"""Files as a stranger may hand them over: samples with bytes flipped, rows cut, columns doubled, fields of other kinds."""

import random
from collections.abc import Callable

FIELDS = [
    "", " ", "0", "-1", "1e9", "1000000000", "9" * 30, "9" * 5000, "nan", "inf", "-Infinity", "1e400", "2.5", "x", "true",
    "null", '"', "'", '"open', "\x00", "\x1b[31m", "½", "٣", "a\nb", "[1]", "{}", "y" * 140_000, "../x", "${seed}",
    "chip=nothing", "2024-13-45",
]  # fmt: skip
"""What stands where something else is expected."""


def mutant(sample: bytes, seed: int) -> bytes:
    """A sample with one to three changes, by its number."""
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 2, 3))):
        sample = rng.choice(CHANGES)(sample, rng)
    return sample


def _flipped(sample: bytes, rng: random.Random) -> bytes:
    if not sample:
        return sample
    place = rng.randrange(len(sample))
    return sample[:place] + bytes([rng.randrange(256)]) + sample[place + 1 :]


def _cut(sample: bytes, rng: random.Random) -> bytes:
    return sample[: rng.randrange(len(sample) + 1)]


def _gone(sample: bytes, rng: random.Random) -> bytes:
    """A stretch left out."""
    start = rng.randrange(len(sample) + 1)
    return sample[:start] + sample[start + rng.randrange(40) :]


def _field(sample: bytes, rng: random.Random) -> bytes:
    """One field replaced, or one more put in."""
    lines = sample.splitlines(keepends=True) or [b""]
    row = rng.randrange(len(lines))
    parts = lines[row].split(b",")
    new = rng.choice(FIELDS).encode()
    place = rng.randrange(len(parts))
    head, colon, _ = parts[place].partition(b": ")
    parts[place] = head + colon + new + (b"}\n" if parts[place].endswith(b"}\n") else b"") if colon else new
    if rng.random() < 0.2:
        parts.insert(place, new)
    lines[row] = b",".join(parts)
    return b"".join(lines)


def _short(sample: bytes, rng: random.Random) -> bytes:
    """A row with fewer columns."""
    lines = sample.splitlines(keepends=True) or [b""]
    row = rng.randrange(len(lines))
    lines[row] = b",".join(lines[row].split(b",")[: rng.randrange(3)]) + b"\n"
    return b"".join(lines)


def _doubled(sample: bytes, rng: random.Random) -> bytes:
    """A column twice in every row."""
    lines = sample.splitlines(keepends=True)
    place = rng.randrange(4)
    result = []
    for line in lines:
        parts = line.split(b",")
        result.append(b",".join([*parts[: place + 1], *parts[place:]]))
    return b"".join(result)


def _shuffled(sample: bytes, rng: random.Random) -> bytes:
    lines = sample.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


def _marked(sample: bytes, rng: random.Random) -> bytes:
    """Another encoding, or another end of lines."""
    kinds: list[Callable[[bytes], bytes]] = [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.replace(b"\n", b"\r"),
        lambda text: text.decode(errors="replace").encode("utf-16"),
        lambda text: text.replace(b",", b";"),
        lambda text: b"\n\n" + text,
        lambda text: b"[" * 100_000 + text,
    ]
    return rng.choice(kinds)(sample)


CHANGES = [_flipped, _cut, _gone, _field, _field, _field, _short, _doubled, _shuffled, _marked]
