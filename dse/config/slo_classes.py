"""SLO classes of requests with bounds and priorities, from the configuration."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dse.config.record_parser import parse_value
from dse.space.errors import DesignError, suggest_nearest
from dse.space.requests import Requests
from dse.space.workload import SloClass

FIELDS = ("name", "share", "ttft", "tpot", "priority")

EXAMPLE = "[{name: chat, share: 0.7, ttft: 1 s}, {name: batch, share: 0.3, ttft: 60 s, tpot: 1 s, priority: 1}]"

SEED_OFFSET = 1
"""Beside the seed of a load: which requests are of which class is drawn apart from when they come."""


def read_slo_classes(spec: Mapping[str, Any], ttft: float, tpot: float) -> tuple[SloClass, ...]:
    """SLO classes from `workload.slo_classes`; none if it is empty.

    Args:
        spec: fields of the workload.
        ttft, tpot: bounds of those that say none. [s]
    """
    classes = spec.get("slo_classes")
    if classes is None:
        if spec.get("class_column") is not None:
            raise DesignError(
                f"workload.class_column: names the class of each request; set workload.slo_classes too, as in {EXAMPLE}"
            )
        return ()
    if not isinstance(classes, list) or not classes or not all(isinstance(entry, Mapping) for entry in classes):
        raise DesignError(f"workload.slo_classes: {classes!r} is not a list of classes, as in {EXAMPLE}")
    slo_classes = tuple(_parse_class(place, entry, ttft, tpot) for place, entry in enumerate(classes))
    names = [slo_class.name for slo_class in slo_classes]
    if len(set(names)) < len(names):
        raise DesignError(f"workload.slo_classes: a name is listed twice in {', '.join(names)}")
    return slo_classes


def assign_slo_classes(requests: Requests, classes: tuple[SloClass, ...], spec: Mapping[str, Any], seed: int) -> Requests:
    """Requests with their SLO class and rank, from a trace column or drawn by shares.

    Args:
        requests: with `kinds` where a column says them.
        classes: their classes; none leaves requests as they are.
        spec: fields of the workload.
        seed: of the draw.
    """
    if not classes:
        return requests
    shares = [slo_class.get("share") for slo_class in spec["slo_classes"]]
    if spec.get("class_column") is not None:
        if any(share is not None for share in shares):
            raise DesignError("workload.slo_classes: class_column names the class of each request; remove share")
        kinds = requests.kinds
    else:
        kinds = (
            np.random.default_rng((seed, SEED_OFFSET))
            .choice(len(classes), len(requests), p=_request_shares(shares))
            .astype(np.int32)
        )
        kinds = kinds[requests.sessions] if len(requests.before) else kinds  # all turns of a session are of one
    ranks = np.unique([slo_class.priority for slo_class in classes], return_inverse=True)[1][kinds]
    return replace(requests, kinds=kinds, ranks=ranks.astype(np.int32) if ranks.any() else requests.ranks)


def _parse_class(place: int, entry: Mapping[str, Any], ttft: float, tpot: float) -> SloClass:
    where = f"workload.slo_classes.{place}"
    if unknown := [key for key in entry if key not in FIELDS]:
        raise DesignError(f"{where}: no field {unknown[0]!r}; {suggest_nearest(str(unknown[0]), FIELDS)}")
    if not isinstance(entry.get("name"), str) or not entry["name"]:
        raise DesignError(f"{where}.name: {entry.get('name')!r} is not a name, as in {EXAMPLE}")
    priority = entry.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise DesignError(f"{where}.priority: {priority!r} is not a whole number; the class with the least is served first")
    first, each = (
        parse_value(entry[key], "s", f"{where}.{key}") if key in entry else usual
        for key, usual in (("ttft", ttft), ("tpot", tpot))
    )
    if min(first, each) <= 0:
        raise DesignError(f"{where}: bounds of {first:g} s and {each:g} s; each must be above 0")
    return SloClass(entry["name"], first, each, priority)


def _request_shares(shares: list[Any]) -> list[float]:
    """Of the requests, by class."""
    for place, share in enumerate(shares):
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise DesignError(
                f"workload.slo_classes.{place}.share: {share!r} is not a share of the requests above 0 and at most 1; set it, "
                "or workload.class_column of a trace"
            )
    if abs(sum(shares) - 1) > 1e-6:
        raise DesignError(f"workload.slo_classes: shares of {' + '.join(f'{share:g}' for share in shares)} are not 1 together")
    return [share / sum(shares) for share in shares]
