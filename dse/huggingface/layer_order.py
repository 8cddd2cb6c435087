"""Order of layer kinds: lists with one entry per layer become an order, as a model states it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from dse.huggingface.config_file import ConfigFile, Entry, shorten

ATTENTIONS = {"sliding_attention": "local", "full_attention": "full"}
"""Kinds of layers by the words that `layer_types` has for them, where some attend within a window."""


WIDEST = 32
"""Layers that are looked for as one group that repeats."""


def read_layer_list(
    file: ConfigFile, name: str, words: Mapping[Any, str], *, layers: int = 0, more: int = 0
) -> tuple[str, ...] | None:
    """Layer kinds from a list in the file; None if there is no such list.

    Args:
        words: what its entries may be, and what they are called here.
        layers: of the model; 0 for `num_hidden_layers`.
        more: modules that predict tokens, whose entries may come after those of the layers.
    """
    given, layers = file.get(name), layers or file.count_layers()
    if given is None:
        return None
    if not isinstance(given, list | str):
        raise file.refuse(name, f"{shorten(given)} is not a list with an entry a layer")
    known = {(type(word), word): kind for word, kind in words.items()}
    for word in given:
        if isinstance(word, list | dict) or (type(word), word) not in known:
            valid = ", ".join(map(shorten, words))
            raise file.refuse(name, f"{shorten(word)} is no kind of layer that is understood here; valid: {valid}")
    if len(given) not in (layers, layers + more):
        wanted = f"{layers} layers" + (f" and {more} modules that predict tokens" if more else "")
        raise file.refuse(name, f"{len(given)} entries, for {wanted}; list one for each")
    return tuple(known[type(word), word] for word in given[:layers])


def every_nth_layer(interval: int, layers: int, usual: str, other: str) -> tuple[str, ...]:
    """Layer kinds with another kind in every `interval`-th layer."""
    return tuple(usual if (place + 1) % interval else other for place in range(layers))


def kinds_and_order(turns: Sequence[str], kinds: Mapping[str, Entry]) -> Entry:
    """Layer kinds and their order; the fields of the kind itself if there is only one plain kind."""
    used = {name: kinds[name] for name in dict.fromkeys(turns)}
    (first, *others) = used.values()
    if not others and not {"mixing", "ffn"} & first.keys():
        return first
    return {"order": order_text(turns), "kinds": used}


def order_text(turns: Sequence[str]) -> str:
    """Layer kinds in order, as text with repetitions.

    >>> order_text(["local"] * 5 + ["full"])
    '5 local, full'
    >>> order_text((["local"] * 5 + ["full"]) * 3 + ["local"] * 2)
    '3 (5 local, full), 2 local'
    """
    return _order_text(tuple(turns))


@lru_cache(maxsize=1024)
def _order_text(turns: tuple[str, ...]) -> str:
    spellings = [""] * (len(turns) + 1)
    for place in reversed(range(len(turns))):
        ways = []
        for width, times in _find_repeats(turns, place):
            block = turns[place : place + width]
            term = block[0] if width == 1 else f"({_order_text(block)})"
            rest = spellings[place + width * times]
            ways.append((f"{times} {term}" if times > 1 else term) + (f", {rest}" if rest else ""))
        spellings[place] = min(ways, key=len)
    return spellings[0]


def _find_repeats(turns: tuple[str, ...], place: int) -> Iterator[tuple[int, int]]:
    """Widths of what is repeated from a place on, and how often; one kind at least once."""
    for width in range(1, max(min((len(turns) - place) // 2, WIDEST), 1) + 1):
        block, times = turns[place : place + width], 1
        while turns[place + times * width : place + (times + 1) * width] == block:
            times += 1
        if times > 1 or width == 1:
            yield width, times
        if times > 2:
            yield width, times - 1


def leading_dense_layers(file: ConfigFile, name: str, turns: Iterable[str]) -> int:
    """Number of dense layers if they are the first ones and all others have experts."""
    words = list(turns)
    dense = words.count("dense")
    if words[:dense] != ["dense"] * dense:
        raise file.refuse(name, f"{shorten(file.get(name))} is not understood; dense layers are the first ones")
    return dense


def window_layers(file: ConfigFile, turns: Sequence[str], *, local: Entry | None = None, full: Entry | None = None) -> Entry:
    """Order of layers that attend within a window and layers that attend to everything.

    Args:
        turns: which are "local" and which "full".
        local, full: what these have besides.
    """
    size = file.read_count("sliding_window", default=0 if "local" not in turns else None)
    return kinds_and_order(turns, {"local": {"window": size, **(local or {})}, "full": full or {}})
