"""That a table of a step's calls takes what these take one by one."""

from itertools import product

import numpy as np
import pytest

from dse.evaluators.account import devices
from dse.evaluators.account.stretches import stretches_by_model
from dse.evaluators.machine.machine import of_die
from dse.evaluators.readers import READERS, call_table
from dse.space.design import stacked
from dse.space.fields import replaced
from tests.samples import asked, wide

COUNTS = (1, 7)
"""Designs of one structure."""

PHASES = ("prefill", "decode")

MANY = {"chip.l2.bandwidth": np.linspace(4e12, 9e12, 1000)}


@pytest.mark.parametrize("model", ["llama3_8b", "qwen3_30b_a3b", "gemma2_9b", "qwen3_next_80b_a3b"])
def test_calls_take_at_once_what_they_take_one_by_one(model: str) -> None:
    question = asked(f"model={model}", "workload.batch=[4]", "workload.prompt=777", "workload.output=33")
    space, rng = wide(question.base), np.random.default_rng(0)
    (job,) = stretches_by_model(question.workload)
    hidden = 0
    for count, policy, tp in product(COUNTS, ("none", "whole", "partial"), (1, 4)):
        columns = space.sample(rng.random((count, len(space.knobs))))
        words = {"mapping.prefill.prefetch": policy, "mapping.decode.prefetch": policy}
        said = words | {"mapping.prefill.tp": tp, "mapping.decode.tp": tp, "mapping.precision.weights": "bf16"}
        alike = [replaced(space.at(space.row(columns, row)), said) for row in range(count)]
        alike = [replaced(one, {"mapping.precision.kv": alike[0].mapping.precision.kv}) for one in alike]
        for _, design in stacked(alike).groups:
            machine, reader = of_die(design.chip, design.mapping), READERS["closed"]
            for name in PHASES:
                plan = getattr(design.mapping, name)
                laid = devices._blocks(job, name, plan.tp, design.mapping.precision, plan.allreduce, None, None)
                found = call_table.seconds((laid,), machine, reader, devices._prefetch(design.chip, plan))
                timed = devices.step(laid, design.chip, plan, machine, reader)
                assert found is not None
                np.testing.assert_array_equal(found, devices.seconds(timed))
                hidden += sum(bool(np.any(bytes_in)) for of in timed for bytes_in in of.resident if bytes_in is not None)
    assert hidden > 0


@pytest.mark.parametrize("model", ["llama3_8b", "qwen3_30b_a3b"])
def test_designs_of_several_structures_take_what_each_takes_by_itself(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    question = asked(f"model={model}", "workload.batch=[4]", "workload.prompt=777", "workload.output=33")
    monkeypatch.setattr(call_table, "PART", 150)
    space, rng = wide(question.base), np.random.default_rng(1)
    (job,) = stretches_by_model(question.workload)
    columns = space.sample(rng.random((200, len(space.knobs))))
    for policy in ("none", "whole", "partial"):
        words = {
            f"mapping.{phase}.{name}": word for phase in PHASES for name, word in (("prefetch", policy), ("allreduce", "ring"))
        }
        said = words | {"mapping.precision.weights": "bf16", "chip.network.latency_per": "hop"}
        rows = [replaced(space.at(space.row(columns, row)), said) for row in range(200)]
        ((_, many),) = stacked(rows).groups
        assert devices._degrees(many.mapping.prefill.tp)[1] is not None
        machine, reader = of_die(many.chip, many.mapping), READERS["closed"]
        for name in PHASES:
            plan, beside = getattr(many.mapping, name), (many.mapping.precision, None)
            found = devices.step_seconds(job, name, plan, *beside, many.chip, machine, reader)
            laid = devices._laid(job, name, plan, *beside)
            np.testing.assert_array_equal(found, devices.seconds(devices.step(laid, many.chip, plan, machine, reader)))
        held = devices._held(job, many.mapping.prefill, many.mapping.precision)
        at_once = devices._footprint(job, many.mapping.prefill.tp, many.mapping.precision, None)
        np.testing.assert_array_equal(held.total, at_once.total)


def test_many_designs_that_prefetch_and_library_kernels_have_no_table() -> None:
    for words in (("chip=h100", "stack=trtllm_h100"), ("mapping.both.prefetch=whole", "mapping.both.tp=4")):
        question = asked("model=llama3_8b", *words)
        design = question.base if words[0] == "chip=h100" else replaced(question.base, MANY)
        (job,), plan = stretches_by_model(question.workload), design.mapping.decode
        machine = of_die(design.chip, design.mapping)
        laid = devices._blocks(job, "decode", plan.tp, design.mapping.precision, plan.allreduce, design.chip.core.rates, None)
        assert call_table.seconds((laid,), machine, READERS["closed"], devices._prefetch(design.chip, plan)) is None
