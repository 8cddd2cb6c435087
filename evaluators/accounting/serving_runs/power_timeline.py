"""Power of a serving run over time, from the mean power of each kept iteration and stage.

Static power continues during and between iterations. A run of more iterations than are kept ends, here, when the last
kept one begins. Its maximum is at most the peak power of `peak_power.py`, to within 2 %.
"""

import numpy as np

from dse.evaluators.accounting.power_profile import PowerProfile, profile_of_intervals
from dse.evaluators.accounting.serving_runs.peak_power import PowerFunction, composition_columns
from dse.evaluators.accounting.serving_runs.run_metrics import iteration_intervals
from dse.evaluators.serving.simulator import ServingRun
from dse.space.array_math import Array


def run_power_profile(run: ServingRun, watts: PowerFunction, rest: float) -> PowerProfile:
    """Power profile from the first arrival to the last token, or to the last kept iteration. [W]

    Args:
        run: of one design, which has kept iterations.
        watts: of iterations.
        rest: power while nothing is done. [W]
    """
    places, starts, ends = (
        np.array([(place, start, end) for place, _, _, start, end in iteration_intervals(run)]).reshape(-1, 3).T
    )
    whole = len(run.log) == int(run.total["iterations"])
    last = float(np.nanmax(run["completed"]) if whole else run.log["start"].max())
    return profile_of_intervals(starts, ends, _each(run, watts)[places.astype(int)], rest, float(run.requests.arrival[0]), last)


def _each(run: ServingRun, watts: PowerFunction) -> Array:
    """Power of each iteration that is kept. [W]"""
    power, pools = np.zeros(len(run.log)), run.state.instances["pool"][run.log["instance"]]
    for number in range(len(run.pools)):
        for prompts in (True, False):
            mine = np.flatnonzero((pools == number) & ((run.log["prompt"] > 0) == prompts))
            if len(mine):
                power[mine] = np.broadcast_to(watts(number, composition_columns(run.log[mine])), (len(mine), 1))[:, 0]
    return power
