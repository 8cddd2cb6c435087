"""Bytes and time of a token by context and kind of attention, what binds, and the chip that makes most of a dollar."""

from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.build import Question, question
from dse.compose import compose
from dse.evaluators import evaluate, explain
from dse.evaluators.graph.step import decode
from dse.evaluators.graph.transformer import line, transformer
from dse.evaluators.layouts.devices import blocks
from dse.space.design import stacked
from dse.space.fields import replaced
from dse.space.parameters import fixed_bytes, fixed_values, growing_values
from dse.space.units import show
from dse.space.workload import Case
from dse.studies.write import table

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

STACKS = (2, 4, 6, 8, 12)
"""Of HBM3E: 0.8 TB/s and 23.5 GB each."""

CORES, LINKS, TP = (66, 132, 198), (112.5, 225.0, 450.0), (4.0, 8.0, 16.0, 32.0)
BATCHES = tuple(2**power for power in range(11))
TPOT = 0.05
"""The longest time of a token. [s]"""


def finding() -> str:
    """Tables: bytes by context, time of a token and what binds, and the best chip."""
    head = ["model", "attention", "bytes a token more", "bytes a sequence", *(_text(context) for context in CONTEXTS)]
    return "\n\n".join(
        [
            "What a request keeps, and what a token of it reads of that, by context; 16 bits a value, states 32.",
            table(head, [_bytes(name) for name in FAMILIES]),
            "Time of a token on eight H200, 8-bit weights, one request and as many as fit at that length (64 at most); what "
            "takes most of it then.",
            table(["model", *(_text(context) for context in CONTEXTS)], [_times(name) for name in FAMILIES]),
            f"Tokens/s a thousand dollars of the best chip within {TPOT * 1e3:.0f} ms a token, and what it is: stacks of HBM3E, "
            "multiprocessors, GB/s a port, chips, requests.",
            table(["model", *(_text(context) for context in CONTEXTS[1::2])], [_best(name) for name in CHOSEN]),
            "Gain of the best chip for 128k where one thing is doubled and the price stays as it is:",
            table(["model", "bandwidth", "capacity", "engines", "links"], [_doubled(name) for name in CHOSEN]),
        ]
    )


def _text(context: int) -> str:
    return f"{context // 1024}k" if context < 1 << 20 else "1M"


@cache
def asked(name: str, context: int, batches: tuple[int, ...] = (1,)) -> Question:
    """So many requests of a length, decoding a few tokens."""
    words = [f"model={name}", f"workload.prompt=[{context}]", "workload.output=[64]", "mapping.precision.weights=fp8"]
    words += [f"workload.batch=[{','.join(map(str, batches))}]", "model.max_position=2097152"]
    return question(compose(["study=long_context", *words]), Path(__file__).parent)


def _bytes(name: str) -> list[str]:
    case: Case = asked(name, CONTEXTS[0]).workload.cases[0]  # type: ignore[assignment]
    fixed = fixed_values(case.model) * 2 + fixed_bytes(case.model, 2.0)
    cells = [case.model.name, FAMILIES[name], show(growing_values(case.model) * 2, "B"), show(fixed, "B")]
    return cells + [show(_read(name, context), "B") for context in CONTEXTS]


def _read(name: str, context: int) -> float:
    """Of caches and states, for a token of one request. [B]"""
    of = asked(name, context)
    case: Case = of.workload.cases[0]  # type: ignore[assignment]
    ((_, at),) = decode(case, "mean")
    found = blocks(transformer(case.model, at), line(case.model, at), 1, of.base.mapping.precision, "ring")
    return float(sum(call.fetch * block.times for block in found for call in block.calls if call.reads == "kv"))


def _times(name: str) -> list[str]:
    cells = []
    for context in CONTEXTS:
        of = asked(name, context, BATCHES[:7])
        design = replaced(of.base, {"mapping.prefill.tp": 8, "mapping.decode.tp": 8})
        answers = evaluate(stacked([design]), of.workload, cases=True, metrics=("tpot",)).cases
        fits = [place for place, column in enumerate(answers) if np.isfinite(column["tpot"][0])]
        if not fits:
            cells.append("does not fit")
            continue
        rows = [row for row in explain(design, of.workload.cases[fits[-1]]).rows if row.phase == "decode"]
        spent: dict[str, float] = {}
        for row in rows:
            for part, seconds in row.parts.items():
                spent[part] = spent.get(part, 0.0) + seconds
        most = max(spent, key=lambda part: spent[part])
        first, last = (float(answers[place]["tpot"][0]) for place in (fits[0], fits[-1]))
        cells.append(
            f"{show(first, 's')}, {show(last, 's')} ({BATCHES[fits[-1]]}; {most} {spent[most] / sum(spent.values()):.0%})"
        )
    return [FAMILIES_SHORT[name], *cells]


FAMILIES_SHORT = {name: name for name in FAMILIES}


class Chip(NamedTuple):
    """A die and how many of them."""

    stacks: float
    cores: float
    link: float
    tp: float

    def changes(self) -> dict[str, float]:
        """Of the study's chip and mapping."""
        return {
            "chip.hbm.bandwidth": self.stacks * 0.8e12,
            "chip.hbm.capacity": self.stacks * 23.5e9,
            "chip.cores": self.cores,
            "chip.network.bandwidth": self.link * 1e9,
            "mapping.prefill.tp": self.tp,
            "mapping.decode.tp": self.tp,
        }


class Found(NamedTuple):
    """The best of some chips: tokens/s a thousand dollars, and how many requests at a time."""

    value: float
    chip: Chip
    batch: int
    rate: float


@cache
def _search(name: str, context: int) -> Found:
    return _of(name, context, tuple(Chip(*one) for one in product(STACKS, CORES, LINKS, TP)))


def _of(name: str, context: int, chips: Iterable[Chip], more: tuple[tuple[str, float], ...] = (), price: float = 0.0) -> Found:
    """The best of some chips; with some leaves as many times as large, at a price that stays as it is."""
    of, some = asked(name, context, BATCHES), tuple(chips)
    designs = []
    for one in some:
        changes = one.changes()
        for address, times in more:
            changes[address] = times * changes[address]
        designs.append(replaced(of.base, changes))
    answers = evaluate(stacked(designs), of.workload, cases=True, metrics=("decode_throughput", "system_price", "tpot")).cases
    best = Found(0.0, some[0], 0, 0.0)
    for batch, columns in zip(BATCHES, answers, strict=True):
        rates = np.where(columns["tpot"] <= TPOT, columns["decode_throughput"], 0.0)
        values = 1e3 * np.nan_to_num(rates) / (price or columns["system_price"])
        place = int(np.nanargmax(np.nan_to_num(values)))
        if values[place] > best.value:
            best = Found(float(values[place]), some[place], batch, float(rates[place]))
    return best


def _best(name: str) -> list[str]:
    cells = []
    for context in CONTEXTS[1::2]:
        found = _search(name, context)
        of = found.chip
        cells.append(
            f"{found.value:.3g}: {of.stacks:g} stacks, {of.cores:g}, {of.link:g} GB/s, {of.tp:g} chips, {found.batch}"
            if found.batch
            else "none"
        )
    return [name, *cells]


DOUBLED = ("chip.hbm.bandwidth", "chip.hbm.capacity", "chip.cores", "chip.network.bandwidth")


def _doubled(name: str) -> list[str]:
    best = _search(name, 131072)
    price = 1e3 * best.rate / best.value
    found = (_of(name, 131072, (best.chip,), ((address, 2.0),), price).value / best.value - 1 for address in DOUBLED)
    return [name, *(f"{gain:+.0%}" for gain in found)]
