"""Fit undocumented constants of ``chip=ascend910b`` and ``stack=cann_yuzuguler2025`` on table 1.

The fit uses the six seconds of Llama3-8B.

    python -m dse.studies.preserve_table1.fit

The constants are the overhead per operator, vector passes of decode attention, and gap and waste of strided reads.
Nothing else is fitted, and no other model is used.
"""

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from dse.studies.preserve_table1.finding import read_published

ADDRESSES = (
    "mapping.stack.operator_launch",
    "mapping.stack.attention_passes",
    "chip.hbm.strided_row_overhead",
    "chip.hbm.strided_overfetch",
)
START = (15e-6, 15.0, 3e-9, 0.5)


def residuals(scaled: list[float]) -> list[float]:
    """Relative errors of the six times, for constants in multiples of `START`. [1]"""
    values = {address: float(start * scale) for address, start, scale in zip(ADDRESSES, START, scaled, strict=True)}
    errors = []
    for devices, seconds in read_published()["llama3_8b"].items():
        question = find_study("preserve_table1", f"mapping.prefill.tp={devices}").question
        for prefetch, measured in zip(("none", "whole"), seconds, strict=True):
            policy = {"mapping.prefill.prefetch": prefetch, "mapping.decode.prefetch": prefetch}
            design = replace_leaves(question.base, values | policy)
            errors.append(float(evaluate(stack_designs([design]), question.workload).columns["latency"][0]) / measured - 1)
    return errors


def main() -> None:
    """Print the fitted constants and the residuals."""
    from scipy.optimize import least_squares

    fit = least_squares(residuals, [1.0] * len(START), bounds=([0.0] * 4, [5.0, 5.0, 5.0, 2.0]))
    for address, start, scale in zip(ADDRESSES, START, fit.x, strict=True):
        print(f"{address:28} {start * scale:.4g}")
    print("residuals", ", ".join(f"{error:+.1%}" for error in fit.fun))


if __name__ == "__main__":
    main()
