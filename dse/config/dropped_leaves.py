"""Settings of a mapping file that the algorithm chosen by the user does not have: they are dropped."""

from collections.abc import Mapping, Sequence
from typing import Any

BESIDE = {("allreduce", "ktree_k"): ("algorithm", "ktree")}
"""Leaves of a part that one algorithm alone has, with the leaf that chooses it and its word."""


def drop_leaves_of_other_algorithms(config: Mapping[str, Any], overrides: Sequence[str]) -> Any:
    """Mapping of a configuration without settings that the chosen algorithm does not read.

    A setting stays if the user set it, or if a knob of the space chooses between algorithms.

    Args:
        config: plain, with its knobs by address.
        overrides: of the user, a field for each phase.
    """
    leaves: Any = config.get("mapping")
    typed = {word.lstrip("+").partition("=")[0] for word in overrides}
    moved = set(config.get("space") or {})
    for (part, leaf), (chooser, word) in BESIDE.items():
        for phase in ("prefill", "decode"):
            own = _field_group(_field_group(_field_group(leaves).get(phase)).get(part))
            if own.get(leaf) is None or own.get(chooser) == word:
                continue
            # decode follows prefill where its file says so
            texts = {f"mapping.{phase_name}.{part}.{leaf}" for phase_name in ("prefill", phase)}
            chose = {f"mapping.{phase_name}.{part}.{chooser}" for phase_name in ("prefill", phase)}
            if typed & chose and not (
                typed & texts or moved & {f"mapping.{phase_name}.{part}.{chooser}" for phase_name in (phase, "both")}
            ):
                leaves = {**leaves, phase: {**leaves[phase], part: {**own, leaf: None}}}
    return leaves


def _field_group(value: Any) -> dict[str, Any]:
    """A group of fields, empty where something else stands."""
    return value if isinstance(value, dict) else {}
