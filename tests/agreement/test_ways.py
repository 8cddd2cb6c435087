"""What two readers are said to share is what they share: every software is played by every reader, and calls are noted."""

import sys
from copy import deepcopy
from cProfile import Profile
from functools import _lru_cache_wrapper
from random import Random
from types import CodeType

import pytest

from dse.accuracy.validate import compose_question
from dse.config.question import Question
from dse.evaluators import FIDELITIES, evaluate, fidelities
from dse.evaluators.calls.submesh import SUBMESH_MARK
from dse.evaluators.cost_models.fidelity_parts import DRAM_SIMULATOR, SIMULATORS, WAYS, compare_fidelities
from dse.space.compatibility import KINDS
from dse.space.design import stack_designs
from dse.space.software import software_of
from tests.marks import slow_if

LINES = {
    "devices": "chip=h100 +memory@chip.hbm.banks=hbm3 chip.hbm.banks.stacks=5 stack=ideal model=qwen3_1b7 "
    "model.qwen3_1b7.layers={layers} workload.batch=[1] workload.prompt={some} workload.output=2",
    "regions": "chip=wse2 model=qwen3_1b7 model.qwen3_1b7.layers={layers} workload.batch=[1] workload.prompt={some} "
    "workload.output=4 mapping.both.rows=60",
    "pipelines": "chip=npu64 model=qwen3_4b model.qwen3_4b.layers={layers} workload.batch=[1] workload.prompt={some} "
    "workload.output=4",
    "whole chip": "chip=tile_gh200 mapping=flat model=qwen3_1b7 model.qwen3_1b7.layers={layers} workload.batch=[1] "
    "workload.prompt={some} workload.output=2",
    "many dies": "chip=wafer64 model=deepseek_v2_lite model.deepseek_v2_lite.layers={layers} workload.batch=[64] "
    "workload.prompt={some} workload.output=2",
    "pooled dies": "chip=h800_ep chip.dies.rows=2 model=deepseek_v2_lite model.deepseek_v2_lite.layers={layers} "
    "workload.batch=[64] workload.prompt={some} workload.output=2 mapping.both.ep=16",
    "served pipelines": "chip=npu64 model=qwen3_4b model.qwen3_4b.layers={layers} workload=serving workload.requests=2 "
    "mapping.serving.max_batched_tokens=64 mapping.both.tp=2",
    "served devices": "chip=npu_dse workload=serving workload.requests=20 workload.prompt={some}",
    "served regions": "chip=wse2 model=qwen3_1b7 model.qwen3_1b7.layers={layers} workload=serving workload.requests=4 "
    "workload.prompt={some} workload.output=4",
    "served whole chip": "chip=npu64 mapping=flat_serving workload=serving model=qwen3_4b model.qwen3_4b.layers={layers} "
    "workload.requests=4 workload.prompt={some} workload.output=4",
    "served many dies": "chip=wafer64 chip.dies.rows=1 chip.dies.cols=2 chip.mesh.rows=4 chip.mesh.cols=4 "
    "chip.hbm.channels=4 model=qwen3_1b7 model.qwen3_1b7.layers={layers} "
    "workload=serving workload.requests=4 workload.prompt={some} workload.output=4 mapping.both.ep=1 mapping.both.tp=2 "
    "mapping.serving.max_batch_size=4 mapping.serving.max_batched_tokens=256",
    "served pooled dies": "chip=h800_ep model=deepseek_v2_lite model.deepseek_v2_lite.layers={layers} workload=serving "
    "workload.requests=4 workload.prompt={some} workload.output=4 mapping.both.ep=64",
    "product": "chip=wse2 workload=gemv workload.shapes=[1x{some}x512] mapping.rows=16",
    "summa": "chip=tile32 workload=gemm workload.shapes=[{some}x512x512]",
    "collective": "chip=tile32 workload=collective workload.bytes=[{some}KiB]",
    "collective of dies": "chip=wafer64 chip.dies.rows=2 chip.dies.cols=2 workload=collective workload.pattern=allreduce "
    "workload.group_axis=rectangle workload.root=0 workload.bytes=[{some}KiB]",
    "attention": "chip=tile32 workload=attention workload.keys=[{some}] workload.batch=1",
    "stream": "chip=hbm3 workload=stream workload.requests={some}",
    "traffic": "chip=mesh8 workload=traffic workload.packets={some}",
}
"""A question for each software, with sizes that nobody asked before: what was answered is remembered."""

ON_A_PART = {("regions", "cycles"), ("whole chip", "cycles")}
"""What a reader plays on a part of the mesh only."""

OF_BANKS = {
    "machine.bank_tables:request_slowdown",
    "machine.bank_tables:parallel_read_slowdown",
    "machine.burst_simulator:simulate_slowdown",
    "machine.parallel_reads:simulate_parallel_slowdown",
    "machine.simulated_channels:simulated_channels",
    "machine.bank_simulator_state:closed_banks",
}
"""Who asks banks: by tables that are played once a memory, or burst by burst, what was played being remembered."""

PLAYED = ("events", "cycles")
LONG_RUNS = {
    "summa": ("cycles",), "collective": ("cycles",), "many dies": ("events",), "served many dies": ("events",),
    "served pooled dies": ("events",),
} | dict.fromkeys(("regions", "pipelines", "served pipelines", "whole chip", "attention"), PLAYED)  # fmt: skip
"""Fidelities that take long, by software."""

EACH = [(software, word) for software, ways in WAYS.items() for word in FIDELITIES if ways[0].source_at(word)]


ROOMS = tuple(f"dse.evaluators.{room}." for room in ("graph", "layouts", "accounting"))


def forget() -> None:
    """Drops what functions of a model's operators and of layouts have remembered by value."""
    for name, module in list(sys.modules.items()):
        for known in list(vars(module).values()) if name.startswith(ROOMS) else ():
            if isinstance(known, _lru_cache_wrapper):
                known.cache_clear()


def called(question: Question, fidelity: str) -> set[str]:
    """Functions of the evaluators that are called while a question is answered."""
    noted = Profile(builtins=False)
    design = stack_designs([deepcopy(question.base)])  # nothing is kept for a new chip
    forget()  # building a question asks for the degree where it is auto, of the same model
    noted.runcall(evaluate, design, question.workload, fidelity=fidelity)
    codes = {entry.code for entry in noted.getstats() if isinstance(entry.code, CodeType)}
    modules = {code: code.co_filename.rpartition("/evaluators/")[2].removesuffix(".py").replace("/", ".") for code in codes}
    return {f"{module}:{code.co_qualname}" for code, module in modules.items()}


def question(software: str, draws: Random) -> tuple[str, ...]:
    size, layers = draws.randrange(16, 40) * 8, draws.randrange(5, 12)
    return tuple(LINES[software].format(some=size, layers=layers).split())


def test_every_software_that_two_readers_answer_for_is_in_the_table() -> None:
    assert {*LINES} == {name for kind in KINDS.values() for name in kind.software}
    several = set()
    for software, words in LINES.items():
        wanted_question = compose_question(question(software, Random(software))).question
        assert software_of(wanted_question.base.mapping) == software
        found_fidelities = {
            *fidelities(wanted_question.base, wanted_question.workload),
            *fidelities(wanted_question.base, wanted_question.workload, part=True),
        }
        several |= {software} if len(found_fidelities) > 1 else set()
        assert {word for word in FIDELITIES if WAYS[software][0].source_at(word)} == found_fidelities, words
    assert several == set(WAYS)


@slow_if(lambda software, word: word in LONG_RUNS.get(software, ()))
@pytest.mark.sampled
@pytest.mark.parametrize(("software", "word"), EACH)
def test_a_reader_answers_with_what_is_said_and_plays_nothing_else(software: str, word: str) -> None:
    wanted_question = compose_question(question(software, Random(f"{software} {word}"))).question
    calls = called(wanted_question, f"{word}{SUBMESH_MARK}4" if (software, word) in ON_A_PART else word)
    for way in WAYS[software]:
        assert set(way.source_at(word).split("|")) & calls, way.part
    text = {who for way in WAYS[software] for who in way.source_at(word).split("|")}
    banks = {DRAM_SIMULATOR} if OF_BANKS & text else set()
    assert calls & set(SIMULATORS) - banks == text & set(SIMULATORS)


@pytest.mark.parametrize("software", WAYS)
def test_what_is_shared_and_what_is_not_make_the_whole(software: str) -> None:
    words = [word for word in FIDELITIES if WAYS[software][0].source_at(word)]
    alike, own = compare_fidelities(software, words[0], words[-1])
    assert sorted((*alike, *own)) == sorted(way.part for way in WAYS[software])
    assert own
    assert alike
    assert compare_fidelities(software, words[0], words[0])[1] == []
