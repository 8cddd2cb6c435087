"""On many dies too, units do each operator of the graph once, as often as its part runs."""

from collections import Counter
from typing import Any

import pytest

from dse.evaluators.account.dies_limits import split
from dse.evaluators.graph.operators import MIXING, Part
from dse.evaluators.graph.routing import routing
from dse.evaluators.graph.step import decode, prefill
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.layouts.attended import Attend
from dse.evaluators.layouts.dies import Crossing, On, passes, plain
from dse.evaluators.layouts.turns import Batch
from dse.evaluators.passes.call import Block, Call
from dse.space.workload import Case
from tests.evaluators.test_mixing import HYBRIDS
from tests.samples import asked

ASKED = {
    "dense": ("model=qwen3_8b", "mapping.both.ep=1"),
    "experts": ("model=qwen3_235b_a22b", "mapping.both.ep=8"),
    "shared experts": ("model=deepseek_v3", "mapping.both.ep=32"),
    "divided": ("model=qwen3_30b_a3b", "mapping.both.ep=1", "mapping.both.tp=4"),
} | {name: ("model=qwen3_1b7", "mapping.both.ep=1", *words) for name, words in HYBRIDS.items()}


def covered(part: Part, attend: Attend) -> Block:
    """A call an operator, that does nothing but name it."""
    assert bool(attend(part.reach)) == (part.kind == MIXING)
    calls = tuple(Call(part.name, one.name, (), part.rows, (1, 1, 1), operators=(one.name,)) for one in part.operators)
    return Block(part.name, calls, (), (), float(part.times))


@pytest.mark.parametrize("whole", [plain, routing])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("name", ASKED)
def test_units_do_each_operator_once(name: str, phase: str, whole: Any) -> None:
    lengths = ("workload.batch=[64]", "workload.prompt=3000", "workload.output=64")
    found = asked("chip=h800_ep", "workload.speculation=none", *ASKED[name], *lengths)
    case: Case = found.workload.cases[0]  # type: ignore[assignment]
    at = prefill(case) if phase == "prefill" else decode(case, "mean")[0][1]
    of = split(found.base, case, phase)
    (one, *_) = passes(Batch(case, phase, "mean"), of, On(case.model, covered, 2.0, 2.0, whole))
    done: Counter[tuple[str, str]] = Counter()
    for unit in one.units:
        for step in unit.steps:
            if not isinstance(step, Crossing):
                done.update({(call.part, name): unit.times for call in step.calls for name in call.operators})
    parts = [whole(case.model, part) for part in transformer(case.model, at)]
    assert done == {(part.name, operator.name): part.times for part in parts for operator in part.operators}
