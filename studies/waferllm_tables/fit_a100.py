"""Fit the six undocumented constants of ``stack=sglang_he2025`` on the calibration rows of GPUs.

The rows are in ``published.csv``.

    python -m dse.studies.waferllm_tables.fit_a100

The constants are the shares of peaks that kernels reach and their launch overheads; one set for all models, both
phases, and 1, 8 and 16 GPUs.
"""

from pathlib import Path

import numpy as np

from dse.config.compose import compose
from dse.config.question import build_question
from dse.space.fields import field_at, leaf_at
from dse.studies.waferllm_tables.fit import rows

ADDRESSES = (
    "mapping.stack.matrix_efficiency",
    "mapping.stack.hbm_efficiency",
    "mapping.stack.network_efficiency",
    "mapping.stack.collective_launch",
    "mapping.stack.inter_node_launch",
    "mapping.stack.operator_launch",
)
START = (0.7, 0.8, 0.1, 200e-6, 50e-6, 5e-6)


def main() -> None:
    """Print the constants and the residuals."""
    from scipy.optimize import least_squares

    known = rows("a100")
    base = build_question(compose(["chip=a100", "stack=sglang_he2025"]), Path()).base

    def constants(scaled: np.ndarray) -> dict[str, float]:
        return {address: float(start * scale) for address, start, scale in zip(ADDRESSES, START, scaled, strict=True)}

    def residuals(scaled: np.ndarray) -> list[float]:
        values = constants(scaled)
        return [error(values) for _, _, error in known]

    highest = [field_at(base, address).metadata["high"] / start for address, start in zip(ADDRESSES, START, strict=True)]
    fit = least_squares(residuals, np.ones(len(START)), bounds=(0.0, highest), diff_step=1e-3)
    for address, value in constants(fit.x).items():
        print(f"{address:28} {value:.4g} {field_at(base, address).metadata['unit']:2} now {leaf_at(base, address):.4g}")
    for (name, _, _), error in zip(known, fit.fun, strict=True):
        print(f"{name:28} {np.expm1(error):+.1%}")


if __name__ == "__main__":
    main()
