"""Number formats of several chips must be equal, so that no front compares 8 bits with 16 silently."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dse.config.record_parser import parse_setting
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, option_field
from dse.space.knobs import Knob
from dse.space.mapping import AS_WEIGHTS
from dse.space.multi_chip_space import CHIP_KNOB, AnySpace

if TYPE_CHECKING:
    import pandas as pd

RULE = option_field("number formats of several chips: equal for all, or those of each mapping", ("equal", "own"))
"""What a study of several chips may say of their formats."""

PRECISION = "mapping.precision."


def formats_of(design: Design) -> dict[str, str]:
    """Number formats of a design by tensor; none if nothing computes."""
    formats = {
        address.removeprefix(PRECISION): word for address, word, _ in iterate_leaves(design) if address.startswith(PRECISION)
    }
    return {name: formats["weights"] if word == AS_WEIGHTS else word for name, word in formats.items()}


def describe_formats(design: Design) -> str:
    """Number formats as text: "fp16" if all are equal, else as in "weights int8, kv fp16"."""
    formats = formats_of(design)
    words = dict.fromkeys(formats.values())
    return next(iter(words)) if len(words) == 1 else ", ".join(f"{name} {word}" for name, word in formats.items())


def describe_chip_formats(bases: Mapping[str, Design], mappings: Mapping[str, str]) -> str:
    """Chips with mapping and formats of each, as text; formats that all share once."""
    formats = {name: describe_formats(base) for name, base in bases.items()}
    alike = next(iter(formats.values())) if len(set(formats.values())) == 1 else ""
    own = {name: f", {word}" if word and not alike else "" for name, word in formats.items()}
    each = ", ".join(f"{name} ({mappings[name]}{own[name]})" for name in bases)
    return f"{each}, all in {alike}" if alike else each


def formats_column(space: AnySpace, frame: "pd.DataFrame") -> "pd.Series":
    """Formats of each design of a frame as text: those of its chip, or of its format knobs."""
    moved = [knob.address for knob in space.knobs if knob.address.startswith(PRECISION)]
    texts = {}
    for cells in frame[[CHIP_KNOB, *moved]].drop_duplicates().itertuples(index=False, name=None):
        values = {name: cell for name, cell in zip((CHIP_KNOB, *moved), cells, strict=True) if isinstance(cell, str)}
        texts[cells] = describe_formats(space.design_at(values))
    return frame[[CHIP_KNOB, *moved]].apply(lambda row: texts[tuple(row)], axis=1)


def check_equal_formats(bases: Mapping[str, Design], knobs: Sequence[Knob], config: Mapping[str, Any]) -> None:
    """Refuse chips with different formats, unless knobs move them or the study sets formats=own.

    Raises:
        DesignError: says which formats they have and what to set.
    """
    if parse_setting(config.get("formats", "equal"), RULE, "formats") == "own":
        return
    common = {knob.address for knob in knobs if not any(other == CHIP_KNOB for other, _ in knob.when)}
    formats = {name: formats_of(base) for name, base in bases.items()}
    for field in dict.fromkeys(field for formats in formats.values() for field in formats):
        words = {name: formats[field] for name, formats in formats.items() if field in formats}
        if len(set(words.values())) > 1 and PRECISION + field not in common:
            formats_said = "; ".join(f"{name} {describe_formats(base)}" for name, base in bases.items() if formats_of(base))
            raise DesignError(
                f"chips: number formats of their default mappings differ ({formats_said}); set precision={{weights: fp16, "
                "activations: fp16, kv: fp16}, or formats=own to compare them as they are"
            )
