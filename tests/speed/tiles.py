"""How fast engines, products over groups and models on a mesh of tiles are priced."""

import numpy as np

from evaluators import evaluate
from evaluators.machine.engine import engines
from space.design import stacked
from space.fields import replaced
from tests.samples import asked
from tests.speed.clock import cpu

DESIGNS = 100_000


def priced() -> list[tuple[str, str, str]]:
    """Products of random sizes on a tile's engine; a model on tiles, by formulas and played."""
    rng = np.random.default_rng(0)
    m, k, n = (rng.integers(1, 4096, DESIGNS).astype(float) for _ in range(3))
    of = engines(asked("chip=tile32", "workload=collective").base.chip)  # type: ignore[arg-type]
    roofline = cpu(lambda: m * k * n / 512 / 965e6)
    engine = cpu(lambda: of.product(m, k, n, 2))
    question = asked("chip=npu64", "model=qwen3_4b", "workload.batch=[16]", "workload.prompt=1024", "workload.output=256")
    designs = stacked([replaced(question.base, {"chip.hbm.bandwidth": float(rate)}) for rate in rng.uniform(3e10, 5e11, 4096)])
    closed = cpu(lambda: evaluate(designs, question.workload))
    one = stacked([question.base])
    single = cpu(lambda: evaluate(one, question.workload), 20)
    warm, new = (
        asked(
            "chip=npu64", "model=qwen3_4b", "workload.batch=[16]", f"workload.prompt={tokens}", "workload.output=200"
        ).workload
        for tokens in (512, 1000)
    )
    evaluate(one, warm, fidelity="events")
    events = cpu(lambda: evaluate(one, new, fidelity="events"))
    return [
        (
            "a tile's engine, 100,000 products at a time",
            f"{DESIGNS / engine:,.0f} /s",
            f"{DESIGNS / roofline:,.0f} rooflines/s",
        ),
        (
            "closed form, Qwen3-4B on tiles, 4,096 at a time",
            f"{4096 / closed:,.0f} designs/s",
            f"{1 / single:,.0f} one at a time",
        ),
        ("events, Qwen3-4B on tiles, new prompts", f"{1 / events:,.0f} designs/s", f"{1 / single:,.0f} closed"),
    ]
