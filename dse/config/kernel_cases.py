"""Single-kernel cases of a die from the settings of a workload: MoE experts and elementwise operators."""

from collections.abc import Sequence
from itertools import product

from dse.space.errors import DesignError
from dse.space.workload import ElementwiseCase, ExpertsCase
from dse.space.workload_settings import ElementwiseSettings, ExpertsSettings


def read_expert_cases(settings: ExpertsSettings, seed: int, exponent: float) -> Sequence[ExpertsCase]:
    """Experts of one layer, one case for each number of tokens.

    Args:
        settings: of the workload.
        seed: of draws.
        exponent: of the power law, as it was written; 0 for none.

    Raises:
        DesignError: settings that contradict each other.
    """
    name = settings.distribution
    if name == "power_law":
        if not exponent:
            raise DesignError("workload.exponent: missing; a power law needs a number above 1, as in workload.exponent=1.2")
    elif exponent:
        raise DesignError("workload.exponent: balanced rows have none; remove it, or set distribution=power_law")
    sizes = (settings.tokens, settings.hidden, settings.intermediate, settings.experts, settings.top_k, settings.ep)
    expert_cases = []
    for tokens, hidden, inner, experts, top_k, ep in product(*sizes):
        if top_k > experts:
            raise DesignError(f"workload.top_k: a token goes to {top_k} of {experts} experts")
        if experts % ep:
            raise DesignError(f"workload.ep: {ep} devices do not divide {experts} experts")
        where = f" on one of {ep}" if ep > 1 else ""
        label = f"{tokens} tokens to {top_k} of {experts} experts {hidden} x {inner}{where}, {name}"
        expert_cases.append(ExpertsCase(label, tokens, hidden, inner, experts, top_k, ep, name, exponent, seed))
    return expert_cases


def read_elementwise_cases(settings: ElementwiseSettings) -> Sequence[ElementwiseCase]:
    """Elementwise operators, one case for each number of rows and columns."""
    sort = settings.operator
    return [
        ElementwiseCase(f"{sort} {rows} x {columns}", sort, rows, columns)
        for rows, columns in product(settings.rows, settings.columns)
    ]
