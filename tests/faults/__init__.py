"""Seeded faults: each is one line of physics that is wrong, and the suite must find it.

A fault is applied to a copy of the tree, where a small part of the suite runs. It is found if a test fails there that passes on
a copy without it. Questions of the golden set notice any change of a result; properties and identities say that the new one is
wrong.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "runs", "*.egg-info", "__pycache__")
GOLDEN = "tests/contract/test_golden.py::test_closed_forms_are_those_of_this_physics_version"


class Fault(NamedTuple):
    """A wrong piece of physics, and who should notice.

    Attributes:
        wrong: which physics is wrong.
        path: of the file.
        text: what stands there once.
        instead: what stands there in its place.
        golden: a question of the golden set.
        identities: tests of properties and identities.
    """

    wrong: str
    path: str
    text: str
    instead: str
    golden: str
    identities: tuple[str, ...]

    @property
    def tests(self) -> tuple[str, ...]:
        """All that may notice it."""
        return (*self.identities, f"{GOLDEN}[{self.golden.replace(' ', '-')}]")


FAULTS = (
    Fault(
        "a link between dies carries twice what it can",
        "evaluators/machine/device_links.py",
        "+ nbytes / links.bandwidth",
        "+ nbytes / (2 * links.bandwidth)",
        "chip=npu_dse model=llama3_8b mapping.both.tp=8",
        ("tests/evaluators/test_collective.py::test_the_closed_form_is_the_rounds_of_the_steps",),
    ),
    Fault(
        "a ring allreduce takes n steps each way, not n - 1",
        "evaluators/kernels/collective/ring_allreduce.py",
        "rounds = 2 * (p - 1)\n",
        "rounds = 2 * p\n",
        "chip=npu_dse model=mixtral_8x7b mapping.both.tp=8 mapping.prefill.allreduce=ring chip.network.latency_per=hop",
        ("tests/evaluators/test_collective.py::test_the_closed_form_is_the_rounds_of_the_steps",),
    ),
    Fault(
        "words stream through one phase of a K-tree fewer than there are",
        "evaluators/kernels/gemv/ktree.py",
        "active = _active(side, phases)\n",
        "active = _active(side, phases) - 1\n",
        "chip=wse2 workload=gemv workload.shapes=[1x4096x4096,1x512x700]",
        ("tests/agreement/test_closed.py::test_the_closed_form_of_a_gemv_is_its_program_played",),
    ),
    Fault(
        "the last tiles of a systolic array are not padded",
        "evaluators/machine/compute_engines.py",
        "tiles = ceil_div(stays[0], rows) * ceil_div(stays[1], cols)",
        "tiles = stays[0] / rows * (stays[1] / cols)",
        "chip=npu64 model=qwen3_4b workload.sequence=[512]",
        ("tests/evaluators/test_engine.py::test_weights_reloaded_per_tile_take_the_published_identity",),
    ),
    Fault(
        "a message of a group passes routers in no time",
        "evaluators/kernels/partition/group_placement.py",
        "takes = takes + 2 * fabric.ramp + _hops(*key, minimum(halves, 2)) * fabric.hop",
        "takes = takes + 2 * fabric.ramp",
        "chip=tile32 model=mistral_7b mapping=npu workload.sequence=[8192] workload.decode_context=last",
        ("tests/evaluators/test_partition.py::test_the_closed_form_is_the_program_played",),
    ),
    Fault(
        "a core's read of weights or KV waits for no first word",
        "evaluators/machine/machine.py",
        "return request.nbytes * byte + self.latency * (request.nbytes > 0), byte",
        "return request.nbytes * byte, byte",
        "chip=npu64 model=qwen3_4b workload.sequence=[512]",
        ("tests/evaluators/test_tile_memory.py::test_a_read_in_two_parts_waits_for_the_first_word_twice",),
    ),
    Fault(
        "refreshes of a memory take no time",
        "evaluators/machine/memory_system.py",
        "rfc=int(t.rfc_bank if single else t.rfc)",
        "rfc=0",
        "chip=hbm4 workload=stream workload.patterns=[sequential,chunk512] workload.requests=200",
        ("tests/evaluators/test_hbm.py::test_banks_are_refreshed_one_by_one",),
    ),
    Fault(
        "devices read a fraction of a KV head where there are more of them than heads",
        "evaluators/layouts/tensor_parallel.py",
        "kv_heads = kv_heads_per_device(operator.kv_heads, tp, held)",
        "kv_heads = operator.kv_heads.units / tp",
        "chip=npu_dse model=llama3_405b mapping.prefill.tp=32 mapping.prefill.prefetch=partial",
        ("tests/evaluators/test_transformer.py::test_a_device_reads_the_cache_that_it_holds",),
    ),
    Fault(
        "KV and weights have the room of activations and buffers too",
        "evaluators/layouts/residency.py",
        "room = maximum(sram - activations - slices, 0.0)",
        "room = sram * 1.0",
        "chip=npu64 model=qwen3_4b workload.sequence=[512]",
        ("tests/evaluators/test_tile_memory.py::test_a_tile_s_memory_is_shared_and_full_before_anything_is_away",),
    ),
    Fault(
        "a prefetch goes on for nothing when the messages it was behind have ended",
        "evaluators/calls/prefetch.py",
        "bytes_in = minimum(room, self.seconds / byte)",
        "bytes_in = room",
        "chip=npu64 mapping=npu_prefetch model=qwen3_4b mapping.both.tp=16 mapping.both.pp=4 workload.batch=[1,16] "
        "workload.sequence=[512]",
        ("tests/evaluators/test_tile_prefetch.py::test_what_is_prefetched_is_read_within_the_messages_before_it_and_fits",),
    ),
    Fault(
        "a K-tree's sums come back for nothing",
        "evaluators/kernels/partition/ktree_allreduce.py",
        "locked = 2 * (_count(*key) * fabric.post",
        "locked = (_count(*key) * fabric.post",
        "chip=npu64 mapping=npu_ktree model=qwen3_4b mapping.both.tp=8 mapping.prefill.allreduce.algorithm=ktree "
        "mapping.prefill.allreduce.ktree_k=3 workload.sequence=[512]",
        ("tests/evaluators/test_group_sums.py::test_nine_of_ten_random_sums_cost_what_events_say",),
    ),
    Fault(
        "attention scores every pair of a query and a key twice",
        "space/layers.py",
        "return near * (near + 1) / 2 + (prompt - near) * near",
        "return near * (near + 1) + 2 * (prompt - near) * near",
        "chip=npu_dse model=llama3_8b mapping.both.tp=8",
        ("tests/evaluators/test_transformer.py::test_pairs_of_a_prompt_are_those_of_a_causal_mask",),
    ),
    Fault(
        "decode reads the whole cache of a model that has a window",
        "evaluators/graph/step_counts.py",
        "return reach.seen_positions(prompt + generated + ahead)",
        "return prompt + generated",
        "chip=npu_dse model=mistral_7b workload.decode_context=last mapping.prefill.tp=4",
        ("tests/evaluators/test_transformer.py::test_decode_looks_at_all_that_was_said_within_the_window",),
    ),
    Fault(
        "a step reads every expert, touched or not",
        "evaluators/graph/transformer.py",
        "read, stored = experts_touched(experts, m), float(experts.count)",
        "read, stored = float(experts.count), float(experts.count)",
        "chip=npu_dse model=mixtral_8x7b mapping.both.tp=8 mapping.prefill.allreduce=ring chip.network.latency_per=hop",
        ("tests/evaluators/test_transformer.py::test_a_large_batch_reads_every_expert_once_and_one_token_its_own",),
    ),
    Fault(
        "states of decodes beside prompts are worked out as parts of chunks",
        "evaluators/graph/token_mixing.py",
        '((at, None) if at.phase == "decode" else _apart(at))',
        "(at, None)",
        "chip=h200 model=qwen35_27b $SERVED mapping.both.tp=4 workload.speculation={tokens:1,acceptance:0.7}",
        ("tests/serving/test_one_pass.py::test_an_iteration_is_asked_for_what_its_prompts_and_its_decodes_are",),
    ),
    Fault(
        "decode on a wafer does one of the products that it folds into one",
        "evaluators/layouts/regions.py",
        "shape = GemmShape(m, dim_width(k), sum(dim_width(context.columns(operator)) for operator in together))",
        "shape = GemmShape(m, dim_width(k), dim_width(context.columns(of)))",
        "chip=wse2 workload.batch=[1] workload.prompt=2048 workload.output=128",
        ("tests/contract/test_one_transcription.py::test_what_regions_do_beyond_is_padding_or_repetition_or_masked",),
    ),
    Fault(
        "cores of a wafer hold one expert of all",
        "evaluators/layouts/region_memory.py",
        "operator.stored * part.times / model.layers",
        "part.times / model.layers",
        "chip=wse2 model=mixtral_8x7b mapping.simulated_layers=4 mapping.prefill.rows=500 mapping.prefill.cols=250",
        ("tests/contract/test_one_transcription.py::test_cores_of_a_region_hold_the_weights_of_its_products",),
    ),
    Fault(
        "several dies draw the power of one",
        "evaluators/accounting/batch_account.py",
        "energies(power * layout.die_count(design),",
        "energies(power,",
        "chip=npu_dse model=llama3_405b mapping.prefill.tp=32 mapping.prefill.prefetch=partial",
        ("tests/evaluators/test_nodes.py::test_energy_is_power_times_time_times_dies",),
    ),
    Fault(
        "a byte that is sent is read at one end and not written at the other",
        "evaluators/silicon/energy.py",
        "stored = 2 * activity.sent_bytes + ",
        "stored = activity.sent_bytes + ",
        "chip=npu64 model=qwen3_4b workload.sequence=[512]",
        ("tests/evaluators/test_tile_memory.py::test_a_byte_that_moves_is_read_at_one_end_and_written_at_the_other",),
    ),
    Fault(
        "a message by way of a switch crosses one link",
        "evaluators/cost_models/analytical_collectives.py",
        "(inside * inputs.hops + between * INTER_NODE_HOPS)",
        "(inside + between)",
        "chip=a100 mapping.prefill.tp=16",
        ("tests/evaluators/test_energy_by_hand.py::test_sums_of_several_nodes_cross_two_links_between_them",),
    ),
    Fault(
        "a multicast is written to the memory of one core, however many it comes to",
        "evaluators/silicon/energy.py",
        "activity.sent_bytes + activity.spread_bytes + ",
        "activity.sent_bytes + ",
        "chip=tile_gh200 model=mixtral_8x7b workload.batch=[1,4] workload.sequence=[1024]",
        (
            "tests/evaluators/test_energy_by_hand.py"
            "::test_what_is_sent_is_read_where_it_leaves_and_written_where_it_comes[hardware-multicast-1-31]",
        ),
    ),
    Fault(
        "a faster clock takes no higher supply",
        "evaluators/silicon/energy.py",
        "energy = on_chip * supply.relative_energy(chip)",
        "energy = on_chip",
        "chip=wse2 workload.batch=[1] workload.prompt=2048 workload.output=128",
        ("tests/evaluators/test_silicon.py::test_twice_the_clock_takes_more_energy_for_the_same_work",),
    ),
    Fault(
        "weights have the room of the KV cache that is beside them",
        "evaluators/serving/kv_memory.py",
        "return SramShares(for_kv, minimum(weights, room - for_kv))",
        "return SramShares(for_kv, minimum(weights, room))",
        "chip=npu64 model=qwen3_4b workload.sequence=[512]",
        ("tests/serving/test_price.py::test_sram_is_shared_out_to_the_last_byte_that_is_wanted",),
    ),
    Fault(
        "time per output token counts the first token, which prefill makes",
        "evaluators/serving/run_statistics.py",
        "/ (requests.output[several] - 1)",
        "/ requests.output[several]",
        "chip=npu_dse model=qwen3_1b7 mapping.both.tp=8 $SERVED",
        ("tests/serving/test_measures.py::test_two_requests_by_hand",),
    ),
)
"""Over all rooms of the evaluators that hold physics."""


def mutated(fault: Fault, root: Path = ROOT) -> str:
    """The source of a file with a fault in it."""
    source = (root / fault.path).read_text()
    assert source.count(fault.text) == 1, (
        f"{fault.path}: {source.count(fault.text)} times {fault.text!r}; say what stands there now"
    )
    return source.replace(fault.text, fault.instead)


def failed(tests: tuple[str, ...], folder: Path, fault: Fault | None = None) -> list[str]:
    """Which of some tests fail on a copy of the tree, without a fault or with one.

    Raises:
        RuntimeError: they could not be run.
    """
    copy = folder / (Path(fault.path).stem if fault else "clean")
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT, symlinks=True)
    if fault:
        (copy / fault.path).write_text(mutated(fault))
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "--tb=no", "-rfE", *tests]
    # the same examples of properties every time
    done = subprocess.run(command, cwd=copy, env=os.environ | {"CI": "1"}, capture_output=True, text=True, check=False)
    shutil.rmtree(copy)
    result = re.findall(r"^FAILED (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode != bool(result):
        raise RuntimeError(f"tests of {fault or 'the clean tree'} do not run:\n{done.stdout}{done.stderr}")
    return result
