"""What a mapping leaves open is what a person would run: the fewest devices that hold a model, the stack's own collectives."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.compose import CONF, compose
from dse.config.question import Question, build_question
from dse.evaluators import evaluate
from dse.evaluators.evaluation import limits
from dse.space.design import stack_designs
from dse.space.fields import leaf_at, replace_leaves

TP = ("mapping.prefill.tp", "mapping.decode.tp")

STACKS = sorted(path.stem for path in (CONF / "stack").glob("*.yaml"))


def asked(*words: str) -> Question:
    return build_question(compose(list(words)), Path())


def holds(question: Question, tp: int) -> bool:
    """Whether memory has room for the models of a question on so many devices."""
    found_limits = limits(replace_leaves(question.base, dict.fromkeys(TP, tp)), question.workload)
    return all(bool(np.all(limit.need <= limit.have)) for limit in found_limits if limit.address == "chip.hbm.capacity")


@given(
    st.sampled_from(["h100", "a100", "h200", "npu_dse", "groq", "rtx4090", "mi300x"]),
    st.sampled_from(["qwen3_1b7", "llama3_8b", "qwen3_32b", "llama3_70b", "mixtral_8x22b", "deepseek_v3"]),
    st.sampled_from([("workload=serving", "workload.requests=20"), ("workload.batch=[1]",), ("workload.batch=[64,2]",)]),
    st.sampled_from([(), ("mapping.prefill.allreduce=ring",), ("mapping.stack.network_efficiency=0.5",)]),
)
@settings(max_examples=15, deadline=None)
def test_an_open_degree_is_the_least_that_holds_the_model(
    chip: str, model: str, load: tuple[str, ...], more: tuple[str, ...]
) -> None:
    question = asked(f"chip={chip}", f"model={model}", *load, *more)
    (text,) = question.devices.values()
    tp, least = int(leaf_at(question.base, TP[0])), 2 if more else 1
    assert leaf_at(question.base, TP[1]) == tp
    assert text.startswith(f"TP {tp}, ")
    assert ("since no TP" in text) == (not any(holds(question, 1 << power) for power in range(13) if 1 << power >= least))
    if "since" not in text:
        assert holds(question, tp)
        assert tp == least or not holds(question, tp // 2)
    else:
        assert tp == least


def test_a_typed_degree_wins_and_is_no_choice_of_ours() -> None:
    for words, ends in ((("mapping.both.tp=4",), (4, 4)), (("mapping.prefill.tp=2",), (2, 2))):
        question = asked("chip=h100", *words)
        assert tuple(leaf_at(question.base, address) for address in TP) == ends
        assert not question.devices
    question = asked("chip=h100", "mapping.decode.tp=4", "workload=serving", "mapping.serving.prefill_instances=1")
    assert tuple(leaf_at(question.base, address) for address in TP) == (1, 4)


def test_serving_by_itself_runs_an_8b_model_on_one_device_and_says_so(typed: Callable[..., tuple[int, str, str]]) -> None:
    words = ("chip=h200", "workload=serving", "workload.requests=10")
    sentence = "on TP 1, the fewest devices that hold the model"
    code, out, err = typed("evaluate", "--full", *words)
    assert code == 0, err
    assert sentence in " ".join(out.split())
    data = json.loads(typed("evaluate", "--json", *words)[1])
    assert sentence in data["title"]
    assert data["design"]["mapping.decode.tp"] == 1


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_brings_its_own_collectives(stack: str) -> None:
    """Left open, several devices run on every stack, with its allreduces where it has some, as where the word is typed."""
    words = ("chip=a100", f"stack={stack}", "mapping.both.tp=2", "workload.batch=[1]", "workload.sequence=[256]")
    question = asked(*words)
    own = question.base.mapping.stack.ring_collectives is not None
    assert leaf_at(question.base, "mapping.decode.allreduce") == ("library" if own else "bidirectional_ring")
    other_question = asked(*words, f"mapping.both.allreduce={'library' if own else 'bidirectional_ring'}")
    columns, typed = (
        evaluate(stack_designs([question.base]), question.workload).require_compatible().columns
        for question in (question, other_question)
    )
    assert float(columns["latency"][0]) == float(typed["latency"][0])


@pytest.mark.parametrize("pattern", ["all_to_all", "dispatch", "allreduce"])
def test_a_collective_by_itself_is_that_of_a_stack_that_has_it(pattern: str) -> None:
    stack = {"dispatch": "deepep_h100"}.get(pattern, "nccl_h100")
    words = (
        "workload=collective",
        "mapping=sglang",
        "workload.group_axis=rectangle",
        "workload.root=0",
        "workload.bytes=[64KiB]",
    )
    question = asked("chip=h100", f"stack={stack}", f"workload.pattern={pattern}", *words)
    assert leaf_at(question.base, "mapping.decode.allreduce") == "library"
    assert leaf_at(question.base, "mapping.decode.tp") == 8
    assert float(evaluate(stack_designs([question.base]), question.workload).require_compatible().columns["latency"][0]) > 0


@pytest.mark.parametrize("chip", ["h100", "h800_ep", "wafer64"])
@pytest.mark.parametrize("model", ["deepseek_v3", "glm_45_air", "llama3_8b"])
def test_static_and_served_presets_guess_alike(chip: str, model: str) -> None:
    cases = [asked(f"chip={chip}", f"model={model}", f"workload={name}").workload.cases[0] for name in ("static", "serving")]
    batch, load = (getattr(case, "speculation", None) for case in cases)
    assert batch == load
    assert (batch is not None) == (model != "llama3_8b")
