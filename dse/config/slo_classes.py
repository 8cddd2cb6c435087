"""SLO classes of requests with bounds and priorities, from the settings of a load."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dse.space.errors import DesignError
from dse.space.requests import Requests
from dse.space.workload import SloClass
from dse.space.workload_settings import ServingSettings

SEED_OFFSET = 1
"""Beside the seed of a load: which requests are of which class is drawn apart from when they come."""


def read_slo_classes(settings: ServingSettings) -> tuple[SloClass, ...]:
    """SLO classes of a load, each with the load's bounds where it says none; an empty tuple for one class."""
    if settings.slo_classes is None:
        if settings.class_column is not None:
            raise DesignError(
                "workload.class_column: names the class of each request; set workload.slo_classes too, as in "
                "[{name: chat, ttft: 1 s}, {name: batch, ttft: 60 s, priority: 1}]"
            )
        return ()
    names = [each.name for each in settings.slo_classes]
    if len(set(names)) < len(names):
        raise DesignError(f"workload.slo_classes: a name is listed twice in {', '.join(names)}")
    return tuple(
        SloClass(each.name, each.ttft or settings.ttft, each.tpot or settings.tpot, each.priority)
        for each in settings.slo_classes
    )


def assign_slo_classes(requests: Requests, classes: tuple[SloClass, ...], settings: ServingSettings, seed: int) -> Requests:
    """Requests with their SLO class and rank, from a trace column or drawn by shares.

    Args:
        requests: with `kinds` where a column says them.
        classes: their classes; none leaves requests as they are.
        settings: of the load.
        seed: of the draw.
    """
    if not classes:
        return requests
    shares = [each.share for each in settings.slo_classes or ()]
    if settings.class_column is not None:
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


def _request_shares(shares: Sequence[float | None]) -> list[float]:
    """Of the requests, by class."""
    stated = [share for share in shares if share is not None]
    if len(stated) < len(shares):
        place = shares.index(None)
        raise DesignError(
            f"workload.slo_classes.{place}.share: missing; set the share of the requests, or workload.class_column of a trace"
        )
    if abs(sum(stated) - 1) > 1e-6:
        raise DesignError(f"workload.slo_classes: shares of {' + '.join(f'{share:g}' for share in stated)} are not 1 together")
    return [share / sum(stated) for share in stated]
