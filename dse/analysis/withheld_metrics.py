"""Metrics of an infeasible design: names are listed, and reading one raises the violated limit."""

from collections.abc import Iterator, Mapping

from dse.evaluators import METRICS
from dse.space.errors import DesignError
from dse.space.former_words import FORMER_METRICS, read_metric


class WithheldMetrics(Mapping[str, float]):
    """Metrics by name; reading one raises the violated limit.

    >>> withheld = WithheldMetrics({"tpot": 0.01}, "needs 2 GB of chip.hbm.capacity, has 1 GB")
    >>> "tpot" in withheld, list(withheld), withheld.get("no such metric")
    (True, ['tpot'], None)
    >>> withheld["tpot"]
    Traceback (most recent call last):
    dse.space.errors.DesignError: tpot: infeasible designs have no metrics: needs 2 GB of chip.hbm.capacity, has 1 GB

    Attributes:
        computed: what the cost models give as if all limits held, for tables that say that they do not.
    """

    def __init__(self, computed: Mapping[str, float], limit: str) -> None:
        self.computed, self._limit = dict(computed), limit

    def __getitem__(self, name: str) -> float:
        name = read_metric(name)
        if name not in self.computed and name not in METRICS:
            raise KeyError(name)
        raise DesignError(f"{name}: infeasible designs have no metrics: {self._limit}")

    def __contains__(self, name: object) -> bool:
        return name in self.computed or FORMER_METRICS.get(str(name)) in self.computed

    def __iter__(self) -> Iterator[str]:
        return iter(self.computed)

    def __len__(self) -> int:
        return len(self.computed)

    def __repr__(self) -> str:
        return f"no metrics: infeasible: {self._limit}"


def computed_metrics(metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Metrics as the cost models give them, also of an infeasible design.

    For output that prints the violated limit beside them.
    """
    return metrics.computed if isinstance(metrics, WithheldMetrics) else metrics


def nan_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics for tables of numbers: NaN each for an infeasible design."""
    return dict.fromkeys(metrics, float("nan")) if isinstance(metrics, WithheldMetrics) else dict(metrics)
