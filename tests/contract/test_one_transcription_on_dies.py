"""On many dies too, units do each operator of the graph once, as often as its part runs."""

from collections import Counter
from typing import Any

import pytest

from dse.evaluators.accounting.multi_die_limits import phase_split
from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.graph.operators import MIXING, Segment
from dse.evaluators.graph.router_operators import with_router_operators
from dse.evaluators.graph.step_counts import decode_steps, prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.attention_requests import RequestsOfReach
from dse.evaluators.layouts.micro_batches import BatchWork
from dse.evaluators.layouts.multi_die import DieContext, DieExchange, micro_batch_passes, unchanged_segment
from dse.space.workload import BatchCase
from tests.evaluators.test_mixing import HYBRIDS
from tests.samples import asked

ASKED = {
    "dense": ("model=qwen3_8b", "mapping.both.ep=1"),
    "experts": ("model=qwen3_235b_a22b", "mapping.both.ep=8"),
    "shared experts": ("model=deepseek_v3", "mapping.both.ep=32"),
    "divided": ("model=qwen3_30b_a3b", "mapping.both.ep=1", "mapping.both.tp=4"),
} | {name: ("model=qwen3_1b7", "mapping.both.ep=1", *words) for name, words in HYBRIDS.items()}


def covered(part: Segment, attend: RequestsOfReach) -> CallBlock:
    """A call an operator, that does nothing but name it."""
    assert bool(attend(part.reach)) == (part.kind == MIXING)
    calls = tuple(
        KernelCall(part.name, operator.name, (), part.rows, (1, 1, 1), operators=(operator.name,))
        for operator in part.operators
    )
    return CallBlock(part.name, calls, (), (), float(part.times))


@pytest.mark.sampled
@pytest.mark.parametrize("whole", [unchanged_segment, with_router_operators])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("name", ASKED)
def test_units_do_each_operator_once(name: str, phase: str, whole: Any) -> None:
    lengths = ("workload.batch=[64]", "workload.prompt=3000", "workload.output=64")
    question = asked("chip=h800_ep", "workload.speculation=none", *ASKED[name], *lengths)
    case: BatchCase = question.workload.cases[0]  # type: ignore[assignment]
    at = prefill_step(case) if phase == "prefill" else decode_steps(case, "mean")[0][1]
    die_split = phase_split(question.base, case, phase)
    (forward_pass, *_) = micro_batch_passes(
        BatchWork(case, phase, "mean"), die_split, DieContext(case.model, covered, 2.0, 2.0, whole)
    )
    done: Counter[tuple[str, str]] = Counter()
    for unit in forward_pass.units:
        for step in unit.steps:
            if not isinstance(step, DieExchange):
                done.update({(call.part, name): unit.times for call in step.calls for name in call.operators})
    parts = [whole(case.model, part) for part in transformer_segments(case.model, at)]
    assert done == {(part.name, operator.name): part.times for part in parts for operator in part.operators}
