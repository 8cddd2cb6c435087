"""That a table of a step's calls takes what these take one by one."""

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.accounting import tensor_parallel as devices
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.device_pipelines import batch_memory
from dse.evaluators.calls.call import ONCE, CallBlock, CallProduct, KernelCall, LeadingCollective, equal_call_index
from dse.evaluators.cost_models import READERS, call_table
from dse.evaluators.cost_models import call_table_loop as call_loop
from dse.evaluators.cost_models.call_cost import PrefetchSettings, block_timeline
from dse.evaluators.cost_models.call_table_columns import DESIGNS_PER_BATCH
from dse.evaluators.machine.machine import shared_cache_machine
from dse.evaluators.malloc_settings import MANY
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked, wide

COUNTS = (1, 7, DESIGNS_PER_BATCH + 3)
"""Designs of one structure, alone, near one another, and more than are near at a time."""

PHASES = ("prefill", "decode")


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """Many designs load compiled code, which few do not."""
    question = asked("model=llama3_8b")
    evaluate(
        stack_designs([replace_leaves(question.base, {"chip.hbm.bandwidth": 1e12 + number}) for number in range(MANY)]),
        question.workload,
    )
    assert call_loop.write_step_seconds.signatures


@pytest.mark.parametrize("model", ["llama3_8b", "qwen3_30b_a3b", "gemma2_9b", "qwen3_next_80b_a3b"])
def test_calls_take_at_once_what_they_take_one_by_one(model: str) -> None:
    question = asked(f"model={model}", "workload.batch=[4]", "workload.prompt=777", "workload.output=33")
    space, rng = wide(question.base), np.random.default_rng(0)
    (job,) = arrays_by_model(question.workload)
    hidden = 0
    for count, policy, tp in product(COUNTS, ("none", "whole", "partial"), (1, 4)):
        columns = space.sample(rng.random((count, len(space.knobs))))
        words = {"mapping.prefill.prefetch": policy, "mapping.decode.prefetch": policy}
        given_words = words | {"mapping.prefill.tp": tp, "mapping.decode.tp": tp, "mapping.precision.weights": "bf16"}
        alike = [replace_leaves(space.design_at(space.row(columns, row)), given_words) for row in range(count)]
        alike = [replace_leaves(design, {"mapping.precision.kv": alike[0].mapping.precision.kv}) for design in alike]
        for _, design in stack_designs(alike).groups:
            machine, reader = shared_cache_machine(design.chip, design.mapping), READERS["analytical"]
            for name in PHASES:
                plan = getattr(design.mapping, name)
                laid = devices._blocks(job, name, plan.tp, design.mapping.precision, plan.allreduce, None, None)
                table_seconds = call_table.table_seconds((laid,), machine, reader, devices._prefetch(design.chip, plan))
                timed = devices.timed_step(laid, design.chip, plan, machine, reader)
                assert table_seconds is not None
                np.testing.assert_array_equal(table_seconds, devices.blocks_seconds(timed))
                hidden += sum(bool(np.any(bytes_in)) for block in timed for bytes_in in block.resident if bytes_in is not None)
    assert hidden > 0


@pytest.mark.parametrize("model", ["llama3_8b", "qwen3_30b_a3b"])
def test_designs_of_several_structures_take_what_each_takes_by_itself(model: str) -> None:
    question = asked(f"model={model}", "workload.batch=[4]", "workload.prompt=777", "workload.output=33")
    space, rng = wide(question.base), np.random.default_rng(1)
    (job,) = arrays_by_model(question.workload)
    columns = space.sample(rng.random((600, len(space.knobs))))
    for policy in ("none", "whole", "partial"):
        words = {
            f"mapping.{phase}.{name}": word for phase in PHASES for name, word in (("prefetch", policy), ("allreduce", "ring"))
        }
        given_words = words | {"mapping.precision.weights": "bf16", "chip.network.latency_per": "hop"}
        rows = [replace_leaves(space.design_at(space.row(columns, row)), given_words) for row in range(600)]
        ((_, many),) = stack_designs(rows).groups
        assert devices._degrees(many.mapping.prefill.tp)[1] is not None
        machine, reader = shared_cache_machine(many.chip, many.mapping), READERS["analytical"]
        for name in PHASES:
            plan, beside = getattr(many.mapping, name), (many.mapping.precision, None)
            step_seconds = devices.step_seconds(job, name, plan, *beside, many.chip, machine, reader)
            laid = devices._laid(job, name, plan, *beside)
            np.testing.assert_array_equal(
                step_seconds, devices.blocks_seconds(devices.timed_step(laid, many.chip, plan, machine, reader))
            )
        held = devices._held(batch_memory(job), many.mapping.prefill, many.mapping.precision)
        at_once = devices._footprint(batch_memory(job), many.mapping.prefill.tp, many.mapping.precision, None, None)
        np.testing.assert_array_equal(held.total, at_once.total)


class _Unloaded(NamedTuple):
    """Compiled code that nobody has loaded."""

    signatures: tuple[Any, ...] = ()


@pytest.mark.parametrize(("designs", "loads"), [(1, False), (2, False), (MANY - 1, False), (MANY, True)])
def test_few_designs_load_no_compiled_code(designs: int, loads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    question = asked("model=llama3_8b")
    selected_designs = stack_designs(
        [replace_leaves(question.base, {"chip.hbm.bandwidth": 1e12 + number}) for number in range(designs)]
    )
    usual = evaluate(selected_designs, question.workload)
    monkeypatch.setattr(call_loop, "write_step_seconds", _Unloaded())
    if loads:
        with pytest.raises(TypeError, match="not callable"):
            evaluate(selected_designs, question.workload)
        return
    without = evaluate(selected_designs, question.workload)
    np.testing.assert_array_equal(without.columns["latency"], usual.columns["latency"])


@pytest.mark.parametrize("seed", range(12))
def test_random_calls_take_at_once_what_they_take_one_by_one(seed: int) -> None:
    rng, question = np.random.default_rng(seed), asked("model=llama3_8b")
    count = int(rng.choice((1, 2, DESIGNS_PER_BATCH, 3 * DESIGNS_PER_BATCH - 1)))
    bandwidths = {"chip.hbm.bandwidth": rng.uniform(1e11, 9e12, count), "chip.core.vector": rng.uniform(1e9, 1e12, count)}
    sizes = {"chip.l2.size": rng.uniform(1e5, 2e7, count), "mapping.stack.attention_passes": rng.uniform(0.0, 30.0, count)}
    given_bandwidths = bandwidths | sizes | {"chip.network.bandwidth": rng.uniform(1e9, 1e11, count)}
    columns = {
        address: column if count > 1 else float(column[0]) for address, column in given_bandwidths.items() if rng.random() < 0.7
    }
    design = replace_leaves(question.base, columns)
    machine, reader = shared_cache_machine(design.chip, design.mapping), READERS["analytical"]
    opener = LeadingCollective("ring", float(rng.integers(2, 9)), rng.uniform(1e3, 1e7), recorded=bool(rng.random() < 0.5))
    known = [_call(rng) for _ in range(6)]
    blocks = tuple(_block(rng, [known[place] for place in rng.integers(0, len(known), 5)], opener) for _ in range(4))
    budget = rng.uniform(0.0, 1.0) * design.chip.l2.size
    usual: dict[str, Any] = {}
    for policy, awaited in product(("none", "whole", "partial"), (None, 1.0, rng.uniform(0.0, 1.0))):
        prefetch = PrefetchSettings(policy, budget, awaited_budget=None if awaited is None else awaited * budget)
        table_seconds = call_table.table_seconds((blocks,), machine, reader, prefetch)
        assert table_seconds is not None
        np.testing.assert_array_equal(
            table_seconds, devices.blocks_seconds(tuple(block_timeline(blocks, machine, reader, prefetch=prefetch)))
        )
        # fewer bytes that are waited for end each wait sooner, and as many change nothing
        assert awaited is None or np.all(table_seconds <= usual[policy])
        if awaited == 1.0:
            np.testing.assert_array_equal(table_seconds, usual[policy])
        usual.setdefault(policy, table_seconds)


def _call(rng: np.random.Generator) -> KernelCall:
    """A call of a die, that multiplies, works on elements, or does both, and perhaps reads."""
    multiplies, computes = [(True, True), (True, False), (False, True)][rng.integers(3)]
    m, k, n = rng.integers(1, 2000, 3).astype(float).tolist()
    kernel_call = KernelCall("attention", "call", (), m, (m, k, n), local=float(rng.integers(0, 2)) * rng.uniform(1e3, 1e7))
    if multiplies:
        kernel_call = kernel_call._replace(
            products=(CallProduct(rng.choice([ONCE, 8.0]).item(), m, k, n),), pace=rng.choice([ONCE, 0.5]).item()
        )
    if computes:
        kernel_call = kernel_call._replace(operations=rng.uniform(1e3, 1e9), specials=float(rng.integers(0, 2)) * 1e6)
        kernel_call = kernel_call._replace(streamed=float(rng.integers(0, 2)) * rng.uniform(1e3, 1e8))
    if rng.random() < 0.7:
        apart = {"piece": 256.0, "stride": 1024.0} if rng.random() < 0.4 else {}
        kernel_call = kernel_call._replace(reads="kv" if apart else "weights", fetch=float(rng.integers(0, 4)) * 1e6, **apart)
    return kernel_call


def _block(rng: np.random.Generator, calls: list[KernelCall], opener: LeadingCollective) -> CallBlock:
    order = tuple(rng.permutation(len(calls)).tolist())
    begins = opener if rng.random() < 0.7 else None
    return CallBlock("block", tuple(calls), equal_call_index(tuple(calls)), order, float(rng.integers(1, 60)), begins)


def test_library_kernels_have_no_table() -> None:
    question = asked("model=llama3_8b", "chip=h100", "stack=trtllm_h100")
    design, (job,) = question.base, arrays_by_model(question.workload)
    plan, machine = design.mapping.decode, shared_cache_machine(design.chip, design.mapping)
    laid = devices._blocks(job, "decode", plan.tp, design.mapping.precision, plan.allreduce, design.chip.core.rates, None)
    assert call_table.table_seconds((laid,), machine, READERS["analytical"], devices._prefetch(design.chip, plan)) is None
