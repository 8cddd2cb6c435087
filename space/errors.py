"""The one exception for anything a user can fix."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


class DesignError(ValueError):
    """Says what was expected, what came, and where to go, in the user's addresses."""

    def __str__(self) -> str:
        """One line, whatever it quotes."""
        return " ".join(super().__str__().splitlines())


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint that ends an error message: the closest valid name, and the list.

    >>> nearest("ktreek", ["tp", "ktree_k"])
    "did you mean 'ktree_k'? valid: ktree_k, tp"
    """
    known = sorted(names)
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}valid: {', '.join(known)}"


def chosen(options: Mapping[str, T], name: str, address: str) -> T:
    """The option of a name in a registry.

    Raises:
        DesignError: no such option at that address; the message lists them.
    """
    if name not in options:
        raise DesignError(f"{address}: no option {name!r}; {nearest(name, options)}")
    return options[name]
