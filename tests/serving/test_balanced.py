"""Designs of one structure that are balanced together are what each of them is by itself."""

from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dse.config.compose import compose, find_study_folder
from dse.config.question import Question, build_question
from dse.evaluators import evaluate
from dse.evaluators.accounting.serving_instances.design_parts import groups_with_equal_serving
from dse.evaluators.accounting.serving_runs import steady_state_designs as balanced
from dse.evaluators.accounting.serving_runs.run_metrics import select_rows
from dse.evaluators.evaluation import Outcomes
from dse.evaluators.workloads.serving import serving_layout_of_software
from dse.space.array_math import Array
from dse.space.design import Design, Designs
from dse.space.fields import replace_leaves
from dse.space.software import SERVED_DEVICES, SERVED_WHOLE_CHIP, software_of
from dse.space.workload import Workload


@cache
def asked() -> Question:
    """The space of the study over all papers' machines, and its load, shorter."""
    config = compose(["study=mesh_llm", "workload.requests=40"])
    return build_question(config, find_study_folder(config))


def drawn(software: str, seed: int, most: int) -> Design:
    """Designs of one structure that come together: as many as random samples of the space have."""
    space, together = asked().space, serving_layout_of_software(software).MERGEABLE_LEAVES
    sample = space.stack(space.sample(np.random.default_rng(seed).random((400, len(space.knobs)))))
    kinds = [
        part
        for _, design in sample.groups
        if software_of(design.mapping) == software
        for part in groups_with_equal_serving(design, together)
    ]
    rows, design = max(kinds, key=lambda part: len(part[0]))
    return select_rows(design, np.arange(len(rows))[:most])


def answered(design: Design, count: int, workload: Workload | None = None) -> Outcomes:
    """At fidelity=steady_state."""
    return evaluate(Designs(count, ((np.arange(count), design),)), workload or asked().workload, fidelity="steady_state")


def one_by_one(design: Design, count: int, workload: Workload | None = None) -> None:
    """Fails where a row of a design is not what it is by itself."""
    together = answered(design, count, workload)
    kept = np.isfinite(together.columns["power"])
    # a rate found by replay may be a little above that of the balance, whose iterations then last a little longer than there is
    assert (together.columns["peak_power"][kept] >= 0.999 * together.columns["power"][kept]).all()
    for row in range(count):
        alone = answered(select_rows(design, np.array([row])), 1, workload)
        assert alone.limit[0] == together.limit[row]
        for name, column in together.columns.items():
            value = alone.columns[name][0] if name in alone.columns else np.nan
            assert column[row] == pytest.approx(value, rel=1e-9, nan_ok=True), name


def size_of(design: Design) -> int:
    """How many designs it is."""
    return balanced.design_count(design) or 1


@pytest.mark.sampled
@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((0.0, 1.0, 2.0)))
def test_dies_together_are_what_they_are_one_by_one(seed: int, prefilling: float) -> None:
    """With prompts and decodes on the same dies, and apart."""
    design = drawn(SERVED_DEVICES, seed, 8)
    design = replace_leaves(design, {"mapping.serving.prefill_instances": prefilling})
    one_by_one(design, size_of(design))


@pytest.mark.sampled
@settings(max_examples=1, deadline=None)
@given(st.integers(0, 2**32))
def test_whole_chips_together_are_what_they_are_one_by_one(seed: int) -> None:
    """Slices are searched for many chips at once."""
    design = drawn(SERVED_WHOLE_CHIP, seed, 4)
    one_by_one(design, size_of(design))


@pytest.mark.sampled
@settings(max_examples=2, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(("qwen3_4b", "deepseek_v2_lite")))
def test_pipelines_together_are_what_they_are_one_by_one(seed: int, model: str) -> None:
    """Cores that do both phases and such as do one, whole layers and parts of them, of random chips."""
    config = compose(["study=npu_serving", f"model={model}", "workload.requests=40"])
    space = build_question(config, find_study_folder(config))
    sample = space.space.stack(space.space.sample(np.random.default_rng(seed).random((300, len(space.space.knobs)))))
    rows, design = max(sample.groups, key=lambda part: len(part[0]))
    good = answered(design, len(rows), space.workload).feasible
    assume(good.sum() > 1)
    one_by_one(select_rows(design, np.argsort(~good, kind="stable")[[0, 1, -1]]), 3, space.workload)


def test_rows_that_are_served_alike_come_together() -> None:
    """Each row once, and what says how instances are used is a number in each part."""
    space = asked().space
    sample = space.stack(space.sample(np.random.default_rng(3).random((200, len(space.knobs)))))
    for rows, design in sample.groups:
        if software_of(design.mapping) not in (SERVED_DEVICES, SERVED_WHOLE_CHIP):
            continue
        groups: list[Array] = []
        for selected_rows, part in groups_with_equal_serving(design):
            groups.append(selected_rows)
            assert np.ndim(part.mapping.serving.max_batch_size) == 0
            assert size_of(part) in (1, len(selected_rows))
        assert sorted(np.concatenate(groups).tolist()) == list(range(len(rows)))
