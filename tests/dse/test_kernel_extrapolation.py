"""Library kernels outside the sizes of measured rows: near their roofline, without a jump, and said in the answer."""

import csv
import json
import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import log2
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

import dse
from dse.config.compose import CONF, compose
from dse.config.question import build_question
from dse.evaluators.accounting.kernel_basis import FLAT, kernel_basis
from dse.evaluators.kernels import library
from dse.evaluators.kernels.library.decode_attention import DecodeAttention
from dse.evaluators.kernels.library.elementwise import ElementwiseKernel
from dse.evaluators.kernels.library.extrapolation import REASON, ROUNDING, outside_sizes, rooflines
from dse.evaluators.kernels.library.gemm import Gemm
from dse.evaluators.kernels.library.grouped_gemm import GroupedGemm
from dse.evaluators.kernels.library.mla_decode_attention import MlaDecodeAttention as LatentDecode
from dse.evaluators.kernels.library.prefill_attention import PrefillAttention
from dse.evaluators.machine.library_die import DieLibraries, die_libraries

SHAPES = 5000 if os.environ.get("FINDINGS") == "all" else 300
"""Random shapes, over all kernels of all stacks together."""


class Kernel(NamedTuple):
    """A library part of a stack on the chip that it was measured on."""

    stack: str
    kind: str
    on: DieLibraries
    constants: Any


@cache
def kernels() -> tuple[Kernel, ...]:
    """All parts of all stacks that have a closed form, without doubles."""
    kernels: dict[tuple[str, str], Kernel] = {}
    for path in sorted((CONF / "library").glob("*/*.yaml")):
        kind, stack = path.parent.name, path.stem
        if kind not in library.LIBRARY:
            continue
        chip = next(name for name in ("a100", "h100", "h800", "rtx4090") if stack.endswith(name))
        base = build_question(compose([f"chip={chip}", f"stack={stack}", "mapping.both.tp=1"]), Path()).base
        libraries = die_libraries(base.chip, base.mapping.stack)
        assert libraries is not None
        kernels[kind, stack] = Kernel(stack, kind, libraries, dict(libraries.parts)[kind])
    return tuple(kernels.values())


def around(random: Random, low: float, high: float, times: float = 16.0) -> float:
    """A whole number from far below a range to far above it."""
    return float(max(round(2 ** random.uniform(log2(max(low / times, 1.0)), log2(high * times))), 1))


def problem(random: Random, kernel: Kernel) -> Any:
    """A random problem of a kernel."""
    draws: dict[str, Callable[[], Any]] = {
        "gemm": lambda: product(random),
        "grouped_gemm": lambda: expert(random),
        "elementwise": lambda: ElementwiseKernel(
            around(random, 1, 4096),
            around(random, 4096, 65536),
            random.choice(
                [name for name in ("norm", "gate", "rotate", "copy", "gather", "softmax") if getattr(kernel.constants, name)]
            ),
        ),
        "prefill_attention": lambda: prompt(random, latent=False),
        "mla_prefill_attention": lambda: prompt(random, latent=True),
        "decode_attention": lambda: decode(random),
        "mla_decode_attention": lambda: latent_decode(random),
    }
    return draws[kernel.kind]()


def product(random: Random) -> Gemm:
    m, k, n = (around(random, *ends, 4.0) for ends in ((1, 16384), (256, 16384), (256, 65536)))
    scaling = random.choice(["", "", "tensor", "block"])
    act, pace = (1.0, 0.5) if scaling else (2.0, 1.0)
    return Gemm(m, k, n, k * n * act, act, scaling, pace)


def expert(random: Random) -> GroupedGemm:
    m, k, n, touched = (around(random, *ends, 4.0) for ends in ((1, 65536), (256, 8192), (256, 8192), (1, 256)))
    scaling = random.choice(["", "tensor", "block"])
    pace, touched = 0.5 if scaling else 1.0, min(m, touched)
    near, far = random.choice([(n, k), (k, n)])
    return GroupedGemm(m, k, n, touched, touched, touched * k * n * 2 * pace, near, far, scaling, pace)


def prompt(random: Random, *, latent: bool) -> PrefillAttention:
    queries, past = around(random, 128, 8192), random.choice([0.0, around(random, 128, 8192)])
    keys, requests, heads = queries + past, around(random, 1, 16, 4.0), random.choice([1.0, 4.0, 16.0, 40.0, 128.0])
    dims = 320.0 if latent else random.choice([64.0, 128.0, 192.0, 256.0, 512.0])
    seen = past + (queries + 1) / 2 if random.random() < 0.7 or past else keys
    nbytes = requests * heads * dims * 4 * (queries + past)
    return PrefillAttention(queries, requests, seen, keys, 0.0, 0.0, heads, dims, nbytes, 0.0, latent)


def decode(random: Random) -> DecodeAttention:
    requests, keys, kv_heads = (
        around(random, 1, 256, 4.0),
        around(random, 256, 16384),
        random.choice([1.0, 4.0, 8.0, 32.0, 64.0]),
    )
    heads, queries = (
        kv_heads * random.choice([1.0, 2.0, 4.0, 8.0, 32.0, 48.0, 64.0, 128.0]),
        random.choice([1.0, 1.0, 2.0, 4.0]),
    )
    dims = random.choice([64.0, 128.0, 256.0, 256.0, 512.0, 1088.0])
    return DecodeAttention(
        requests, keys, heads, kv_heads, queries, dims, requests * keys * kv_heads * dims * 2, requests * heads * dims * 2
    )


def latent_decode(random: Random) -> LatentDecode:
    requests, keys, heads = (
        around(random, 1, 256, 4.0),
        around(random, 256, 16384),
        random.choice([1.0, 8.0, 16.0, 64.0, 128.0]),
    )
    queries = random.choice([1.0, 1.0, 2.0, 4.0])
    near = requests * heads * queries * 1088 * 2
    return LatentDecode(requests, keys, heads, queries, 1088.0, 512.0, requests * keys * 576 * 2, near)


def took(kernel: Kernel, problem: Any) -> Any:
    result = library.library_kernel_time(problem, kernel.on)
    assert result is not None
    return result


def floor(kernel: Kernel, problem: Any) -> float:
    """Start and end of a kernel, and what it does before or after the rest."""
    result = took(kernel, problem)
    return float(result.start + result.beside + (result.compute if kernel.kind == "elementwise" else 0.0))


def test_no_kernel_is_far_beyond_its_roofline_or_below_it_unless_it_says_so() -> None:
    random, counts = Random(50), dict[str, int]()
    for i in range(SHAPES):
        kernel = kernels()[i % len(kernels())]
        wanted_problem = problem(random, kernel)
        seconds, (roofline, least) = (
            float(took(kernel, wanted_problem).seconds()),
            map(float, rooflines(wanted_problem, kernel.on.die)),
        )
        basis = kernel_basis(wanted_problem, took(kernel, wanted_problem), kernel.on).text
        counts[basis.partition(":")[0]] = counts.get(basis.partition(":")[0], 0) + 1
        assert seconds >= least * (1 - ROUNDING) or basis.startswith("measured"), (
            f"{kernel.stack} {kernel.kind} below: {wanted_problem}"
        )
        most = REASON * (floor(kernel, wanted_problem) + roofline)
        if not basis:
            assert seconds <= most, f"{kernel.stack} {kernel.kind} beyond its roofline: {wanted_problem}"
        elif basis.startswith("extrapolated") and seconds > most:
            edge = wanted_problem.resized_problem({**outside_sizes(wanted_problem.sizes(), kernel.constants.measured_ranges)})
            at_edge = float(took(kernel, edge).seconds()) - floor(kernel, edge)
            times = max(at_edge / float(rooflines(edge, kernel.on.die)[0]), REASON)
            assert seconds <= floor(kernel, wanted_problem) + times * roofline * (1 + 1e-6), (
                f"{kernel.stack} {kernel.kind}: {wanted_problem}"
            )
    assert counts[""] > SHAPES / 20
    assert counts["extrapolated"] > SHAPES / 4


def test_answers_do_not_jump_where_measured_rows_end() -> None:
    """At the edge of each size alone, all others within what rows have."""
    for kernel in kernels():
        ranges = kernel.constants.measured_ranges
        wanted_problem = problem(Random(kernel.stack), kernel)
        within = wanted_problem.resized_problem(
            {name: min(max(float(wanted_problem.sizes()[name]), low), high) for name, low, high in ranges if name != "bits"}
        )
        for name, low, high in ranges:
            if name in ("bits", "decodes", "columns", "kv_head_queries") or low == high:  # by which kernels are chosen
                continue
            for edge in (low, high):
                at, beyond = (
                    within.resized_problem({name: edge * by}) for by in (1.0, 1.0 + (1e-3 + 2e-6) * (1 if edge == high else -1))
                )
                inside_seconds, other = (float(took(kernel, size).seconds()) for size in (at, beyond))
                form = library.LIBRARY[kernel.kind].kernel_time(beyond, kernel.constants, kernel.on.die)
                jump = abs(float(form.seconds()) / inside_seconds - 1)  # of the form itself, whose tiles are whole
                assert abs(other / inside_seconds - 1) <= jump + 0.01, f"{kernel.stack} {kernel.kind}: {name} {edge}"


def test_sizes_beside_others_are_as_by_themselves() -> None:
    """Problems inside the ranges and outside of them, in one array and one by one."""
    random = Random(51)
    for kernel in kernels():
        several = [problem(random, kernel) for _ in range(8)]
        if (kernel.kind, kernel.stack) == ("elementwise", "eager_a100"):  # of rows that say it is below its roofline
            several = [ElementwiseKernel(8766.0, 107195.0, "gate"), ElementwiseKernel(8766.0, 1e6, "gate")]
        alike = [sizes for sizes in several if [type(value) for value in sizes] == [type(value) for value in several[0]]]
        alike = [
            sizes for sizes in alike if all(a == b for a, b in zip(sizes, alike[0], strict=True) if not isinstance(a, float))
        ]
        fields = zip(*alike, strict=True)
        together = type(alike[0])(*(np.array(values) if type(values[0]) is float else values[0] for values in fields))
        seconds = np.broadcast_to(took(kernel, together).seconds(), len(alike))
        assert seconds == pytest.approx([float(took(kernel, sizes).seconds()) for sizes in alike], rel=1e-12), (
            f"{kernel.stack} {kernel.kind}"
        )


def test_rows_that_constants_were_fitted_on_are_not_extrapolated() -> None:
    """One row that ships of each part."""
    first: dict[tuple[str, str], str] = {}
    with (CONF.parent / "studies" / "gpu_measured" / "published.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            kind, words = row["id"].split("-")[1], row["overrides"]
            first.setdefault((kind, next(word for word in words.split() if word.startswith("stack="))), words)
    evaluations = [(words, dse.evaluate(*shlex.split(words))) for words in first.values()]
    assert len(evaluations) > 20
    for words, evaluation in evaluations:
        assert not any(row.basis.text.startswith("extrapolated") for row in evaluation.breakdown.rows), words


LATENT = (
    "chip=h100", "workload=attention", "mapping.both.tp=1", "workload.batch=64", "workload.heads=128", "workload.kv_heads=1",
    "workload.queries=1", "workload.keys=[4096]", "workload.qk=576", "workload.v=512",
)  # fmt: skip

PLAIN = tuple(word for word in LATENT if not word.startswith(("workload.qk", "workload.v=", "workload.heads")))
"""The same of heads of 128 columns, as many as are said beside."""


@pytest.mark.parametrize(
    ("stack", "kernel", "words"),
    [
        ("trtllm_h100", "decode_attention", "extrapolated: 1,088 columns of a key and value (measured 128 to 512)"),
        ("flash2_h100", "decode_attention", FLAT),
        ("flash3_h100", "decode_attention", FLAT),
        ("vllm_allreduce_h100", "decode_attention", FLAT),
    ],
)
def test_a_decode_that_no_row_has_is_within_reason_and_said(
    stack: str, kernel: str, words: str, typed: Callable[..., tuple[int, str, str]]
) -> None:
    overrides = (*LATENT, f"stack={stack}")
    data = json.loads(typed("evaluate", "--json", *overrides)[1])
    (row,) = data["operators"]
    assert 9e-5 < row["seconds"] < REASON * 2e-4, "0.17 ms of bytes"
    assert row["kernel"] == kernel
    assert row["basis"].startswith(words)
    assert words in data["kernel_basis"]
    assert words.partition(" (")[0] in " ".join(" ".join(typed("evaluate", "--full", *overrides)[1].splitlines()[:5]).split())
    assert words.partition(" (")[0] in " ".join(repr(dse.evaluate(*overrides)).split())


@pytest.mark.parametrize("queries", [1, 2, 4])
@pytest.mark.parametrize("latent", [True, False])
def test_a_few_queries_are_of_decode_with_a_mask_or_without(queries: int, latent: bool) -> None:
    """Kernels of prompts have tiles of 128 queries, of which one or two would leave the rest idle."""
    words = (*LATENT, "workload.latent=true") if latent else (*PLAIN, "workload.heads=64", "workload.kv_heads=8")
    overrides = (*words, "stack=trtllm_h100", f"workload.queries={queries}")
    masked, free = (dse.evaluate(*overrides, f"workload.causal={causal}") for causal in ("true", "false"))
    (row,) = masked.breakdown.rows
    assert row.basis.kernel.endswith("decode_attention")
    assert masked.metrics["latency"] == pytest.approx(free.metrics["latency"], rel=1e-3)


def test_errors_of_other_kernels_are_none_of_this_one() -> None:
    """Rows of FlashAttention-3 are prompts: they say nothing of a decode, and of other heads that these are others."""
    words = ("chip=h100", "stack=flash3_h100", "workload=attention", "mapping.both.tp=1")
    prompts, decode = dse.evaluate(*words, "workload.qk=64"), dse.evaluate(*words, "workload.queries=1")
    (time, *_), (none, *_) = prompts.bands, decode.bands
    assert time.rows > 0
    assert "of other sizes" in str(time)
    assert none.metric == time.metric == "latency"
    assert none.rows == 0
    assert [band.metric for band in decode.bands] == [band.metric for band in prompts.bands], "silicon has its rows"


def test_a_kernel_that_rows_say_is_slow_says_so() -> None:
    """Single queries of 64 heads on one KV head, as measured: 1.26 ms where bytes take 0.04."""
    evaluation = dse.evaluate(*PLAIN, "workload.heads=64", "stack=trtllm_h100")
    (row,) = evaluation.breakdown.rows
    assert evaluation.metrics["latency"] == pytest.approx(1.26e-3, rel=0.2)
    assert row.basis.text.startswith("measured: ")
    assert "times its roofline" in evaluation.kernel_basis


def test_without_ranges_a_form_stands() -> None:
    kernel = next(kernel for kernel in kernels() if (kernel.kind, kernel.stack) == ("decode_attention", "trtllm_h100"))
    attention = DecodeAttention(64.0, 4096.0, 128.0, 1.0, 1.0, 1088.0, 64 * 4096 * 1088 * 2.0, 64 * 128 * 1088 * 2.0)
    bare = replace(kernel.constants, measured_ranges=None)
    assert (
        library.LIBRARY["decode_attention"].kernel_time(attention, bare, kernel.on.die).seconds()
        > 20 * took(kernel, attention).seconds()
    )


@pytest.mark.parametrize(
    ("ranges_text", "error"),
    [
        ("7", "not a group of ranges; write {keys: [256, 16384]}"),
        ("{keys: [9, 3]}", "is not a range; write the least and the most"),
    ],
)
def test_ranges_that_are_none_are_refused(ranges_text: str, error: str, typed: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = typed(
        "evaluate", "--full", *LATENT, "stack=trtllm_h100", f"mapping.stack.decode_attention.measured_ranges={ranges_text}"
    )
    assert code == 2
    assert error in err
    assert len(err.strip().splitlines()) == 1
