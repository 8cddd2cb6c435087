"""Findings on long contexts: bytes and time of a token by attention kind, bottleneck, best chip."""

from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators import evaluate, explain
from dse.evaluators.graph.step_counts import decode_steps
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.layouts.tensor_parallel import device_blocks
from dse.space.array_math import Array
from dse.space.design import Design, Designs, stack_designs
from dse.space.fields import replace_leaves
from dse.space.parameter_counts import fixed_bytes_per_sequence, growing_values_per_token, window_values
from dse.space.units import format_quantity
from dse.space.workload import BatchCase, Workload
from dse.studies.long_context.in_sram import token_time_table
from dse.studies.markdown_table import table

FAMILIES = {
    "qwen3_235b_a22b": "GQA",
    "gpt_oss_120b": "GQA, every second layer a window of 128",
    "llama4_maverick": "GQA, three of four layers in chunks of 8,192",
    "deepseek_v3": "MLA",
    "deepseek_v32": "MLA, 2,048 positions picked (DSA)",
    "qwen35_397b_a17b": "Gated DeltaNet, every fourth layer GQA",
    "nemotron3_super": "Mamba-2, every eleventh mixing layer GQA",
}
CONTEXTS = (8192, 32768, 131072, 524288, 1048576)
CHOSEN = ("qwen3_235b_a22b", "deepseek_v3", "deepseek_v32", "qwen35_397b_a17b")
"""Of which the best chip is looked for."""

STACKS = (2, 3, 4, 5, 6)
"""Stacks of HBM3E: 0.8 TB/s each, as many as fit at the edges of a die."""

GIGABYTES = (12, 24, 36, 48)
"""Of a stack."""

CORES, LINKS = (33, 66, 99, 132), (80, 160, 320)
DIES = 32
BATCHES = tuple(DIES * 2**power for power in range(8))
"""Requests of all dies, at least one each: attention is on the die of its request."""

TPOT = 0.05
"""The longest time of a token. [s]"""


def finding() -> str:
    """Tables of bytes by context, time of a token with its bottleneck, and the best chip."""
    head = ["model", "attention", "bytes a token more", "bytes a sequence", *(_text(context) for context in CONTEXTS)]
    return "\n\n".join(
        [
            "What a request keeps, and what a token of it reads of that, by context; 16 bits a value, states 32.",
            table(head, [_bytes(name) for name in FAMILIES]),
            f"Time of a token on {DIES} H200, experts of 8 bits divided over all: one request a die, and as many as fit at "
            "that length (128 at most); what takes most of it then.",
            table(["model", *(_text(context) for context in CONTEXTS)], [_times(name) for name in FAMILIES]),
            f"Tokens/s a thousand dollars of the best die within {TPOT * 1e3:.0f} ms a token, of {DIES}: its stacks of HBM3E "
            "and what they hold, multiprocessors, GB/s of NVLink, requests a die, and what binds.",
            table(["model", *(_text(context) for context in CONTEXTS[1::2])], [_best(name) for name in CHOSEN]),
            "Gain of the best die for 128k where one thing is doubled and the price stays as it is:",
            table(["model", "bandwidth", "capacity", "engines", "links"], [_doubled(name) for name in CHOSEN]),
            token_time_table(),
        ]
    )


def _text(context: int) -> str:
    return f"{context // 1024}k" if context < 1 << 20 else "1M"


@cache
def make_question(name: str, context: int, batches: tuple[int, ...] = (1,)) -> Question:
    """Question of some requests at the last token of a context; prefill runs elsewhere."""
    words = [f"model={name}", "workload.prompt=[1]", f"workload.output=[{context}]"]
    words += [f"workload.batch=[{','.join(map(str, batches))}]", "model.max_position=2097152"]
    return build_question(compose(["study=long_context", *words]), Path(__file__).parent)


def _bytes(name: str) -> list[str]:
    case: BatchCase = make_question(name, CONTEXTS[0]).workload.cases[0]  # type: ignore[assignment]
    fixed = window_values(case.model) * 2 + fixed_bytes_per_sequence(case.model, 2.0)
    cells = [
        case.model.name,
        FAMILIES[name],
        format_quantity(growing_values_per_token(case.model) * 2, "B"),
        format_quantity(fixed, "B"),
    ]
    return cells + [format_quantity(_read(name, context), "B") for context in CONTEXTS]


def _read(name: str, context: int) -> float:
    """Of caches and states, for a token of one request. [B]"""
    question = make_question(name, context)
    case: BatchCase = question.workload.cases[0]  # type: ignore[assignment]
    ((_, at),) = decode_steps(case, "last")
    blocks = device_blocks(
        transformer_segments(case.model, at), (segment_order(case.model, at),), 1, question.base.mapping.precision, "ring"
    )
    return float(sum(call.fetch * block.times for block in blocks for call in block.calls if call.reads == "kv"))


def _times(name: str) -> list[str]:
    cells = []
    for context in CONTEXTS:
        question = make_question(name, context, BATCHES)
        design = question.base
        designs = stack_designs((design,))
        tokens = [_columns(designs, question, place)["tpot"][0] for place in range(len(BATCHES))]
        fits = [place for place, seconds in enumerate(tokens) if np.isfinite(seconds)]
        if not fits:
            cells.append("does not fit")
            continue
        first, last = (float(tokens[place]) for place in (fits[0], fits[-1]))
        cells.append(
            f"{format_quantity(first, 's')}, {format_quantity(last, 's')} ({BATCHES[fits[-1]] // DIES}; "
            f"{_binds(design, question, fits[-1])})"
        )
    return [name, *cells]


CACHED = ("attention", "index", "state")
"""Operators that read what is kept of a request."""


def _binds(design: Design, question: Question, place: int) -> str:
    """Largest part of the time of a token, with its share."""
    spent: dict[str, float] = {}
    for row in explain(design, question.workload.cases[place]).rows:
        for part, seconds in row.parts.items() if row.phase == "decode" else ():
            what = f"{part} of {'caches' if row.operator in CACHED else 'weights'}" if part == "hbm" else part
            spent[what] = spent.get(what, 0.0) + seconds
    most = max(spent, key=lambda part: spent[part])
    return f"{most} {spent[most] / sum(spent.values()):.0%}"


def _columns(designs: Designs, question: Question, place: int) -> dict[str, Array]:
    """Metrics of designs for one of the batches; not numbers where they do not fit."""
    workload = Workload("", question.workload.cases[place : place + 1])
    evaluation = evaluate(designs, workload, metrics=("decode_throughput", "system_price", "tpot"))
    return {name: np.where(evaluation.feasible, column, np.nan) for name, column in evaluation.columns.items()}


class SizedChip(NamedTuple):
    """Changes to a die and its main memory, links and number."""

    stacks: float
    gigabytes: float
    cores: float
    link: float

    def changes(self) -> dict[str, float]:
        """Leaf changes of the study's chip and mapping."""
        return {
            "chip.hbm.bandwidth": self.stacks * 0.8e12,
            "chip.hbm.capacity": self.stacks * self.gigabytes * 1e9,
            "chip.dram.device_bandwidth": 0.8e12,
            "chip.cores": self.cores,
            "chip.d2d.bandwidth": self.link * 1e9,
        }


class BestChip(NamedTuple):
    """Best of some chips: tokens/s per thousand dollars, and concurrent requests."""

    value: float
    chip: SizedChip
    batch: int
    rate: float


@cache
def _search(name: str, context: int) -> BestChip:
    return _of(name, context, tuple(SizedChip(*numbers) for numbers in product(STACKS, GIGABYTES, CORES, LINKS)))


def _of(
    name: str, context: int, chips: Iterable[SizedChip], more: tuple[tuple[str, float], ...] = (), price: float = 0.0
) -> BestChip:
    """The best of some chips; optionally with some leaves scaled at unchanged price."""
    question, selected_chips = make_question(name, context, BATCHES), tuple(chips)
    designs = []
    for chip in selected_chips:
        changes = chip.changes()
        for address, times in more:
            changes[address] = times * changes[address]
        designs.append(replace_leaves(question.base, changes))
    best, all_of_them = BestChip(0.0, selected_chips[0], 0, 0.0), stack_designs(designs)
    for turn, batch in enumerate(BATCHES):
        columns = _columns(all_of_them, question, turn)
        rates = np.where(columns["tpot"] <= TPOT, columns["decode_throughput"], 0.0)
        values = 1e3 * np.nan_to_num(rates) / (price or columns["system_price"])
        place = int(np.nanargmax(np.nan_to_num(values)))
        if values[place] > best.value:
            best = BestChip(float(values[place]), selected_chips[place], batch, float(rates[place]))
    return best


def _best(name: str) -> list[str]:
    cells = []
    for context in CONTEXTS[1::2]:
        search = _search(name, context)
        chip, question = search.chip, make_question(name, context, BATCHES)
        if not search.batch:
            cells.append("none")
            continue
        binds = _binds(replace_leaves(question.base, chip.changes()), question, BATCHES.index(search.batch))
        die = f"{chip.stacks:g} x {chip.gigabytes:g} GB, {chip.cores:g}, {chip.link:g} GB/s"
        cells.append(f"{search.value:.3g}: {die}, {search.batch // DIES}; {binds}")
    return [name, *cells]


DOUBLED = (
    ("chip.hbm.bandwidth", "chip.dram.device_bandwidth"),
    ("chip.hbm.capacity",),
    ("chip.cores",),
    ("chip.d2d.bandwidth",),
)


def _doubled(name: str) -> list[str]:
    best = _search(name, 131072)
    price = 1e3 * best.rate / best.value
    twice = (tuple((address, 2.0) for address in addresses) for addresses in DOUBLED)
    gains = (_of(name, 131072, (best.chip,), more, price).value / best.value - 1 for more in twice)
    return [name, *(f"{gain:+.0%}" if gain > -1 else "beyond the reticle" for gain in gains)]
