"""The exception for everything that a user can fix, and hints for its messages."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from dse.space.safe_text import mask_passwords, strip_control_codes

T = TypeVar("T")

CONFIGURATION_FIELDS = (
    *("chip", "chips", "formats", "inference_engine", "mapping", "mappings", "model", "pools", "precision", "search"),
    *("space", "stack", "verify", "workers"),
    *("constraints", "fidelity", "metrics", "name", "objectives", "question", "ray", "report", "run_dir", "screen", "seed"),
    *("store", "workload"),
)
"""Fields at the top of a configuration, with which every address begins."""

REFUSED_ADDRESS = re.compile(r"no (?:field|knob) '([^']+)'")
"""An address in a message that a configuration does not have."""

LEADING_ADDRESS = re.compile(r"([a-z_]\w*)((?:[.@/][\w.@/-]+)?): ", re.ASCII)
"""An address with which a message begins."""


class DesignError(ValueError):
    """A user's error: the setting, what was expected, what came and what to do.

    Args:
        message: one line.
        address: the wrong setting, as it was typed; without it, the address that the message names.
    """

    def __init__(self, *message: object, address: str = "") -> None:
        super().__init__(*message)
        self._address = address

    @property
    def address(self) -> str:
        """Address of the wrong setting; empty string of an error that is not about one setting.

        >>> DesignError("chip.l2.size: '64' has no unit").address, DesignError("evaluate: one design").address
        ('chip.l2.size', '')
        """
        if self._address:
            return self._address
        text = str(self)
        if refused := REFUSED_ADDRESS.search(text):
            return refused[1]
        leading = LEADING_ADDRESS.match(text)
        return leading[1] + leading[2] if leading and leading[1] in CONFIGURATION_FIELDS else ""

    def __str__(self) -> str:
        """One line, whatever it quotes: without passwords, and without what a terminal would obey."""
        return strip_control_codes(mask_passwords(" ".join(super().__str__().splitlines())))


MAX_LISTED, MAX_NEAREST = 80, 20
"""Names that a hint lists at most, and how many of the nearest it lists where there are more."""


def suggest_nearest(name: str, names: Iterable[str]) -> str:
    """Hint for an error message: the closest valid name, and valid names: the nearest where they are many.

    >>> suggest_nearest("ktreek", ["tp", "ktree_k"])
    "did you mean 'ktree_k'? valid: ktree_k, tp"
    >>> suggest_nearest("A100", ["a100", "h100"])
    "did you mean 'a100'? valid: a100, h100"
    """
    known = sorted(names)
    close = [name_known for name_known in known if name_known.lower() == name.lower()] or get_close_matches(
        name, known, n=1, cutoff=0.5
    )
    hint = f"did you mean {close[0]!r}? " if close else ""
    shown = known
    if len(known) > MAX_LISTED:
        shown = sorted(get_close_matches(name, known, n=MAX_NEAREST, cutoff=0.0))
    more = f" and {len(known) - len(shown)} more" if len(shown) < len(known) else ""
    return f"{hint}valid: {', '.join(shown)}{more}"


def choose_option(options: Mapping[str, T], name: str, address: str) -> T:
    """Option of a name in a registry, shipped or added by an installed package (`space.registry`).

    Raises:
        DesignError: no such option at that address; the message lists them.
    """
    try:
        return options[name]
    except KeyError:
        names: Iterable[str] = getattr(options, "names", options.keys)()
        raise DesignError(f"{address}: no option {name!r}; {suggest_nearest(name, names)}") from None
