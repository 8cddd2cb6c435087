"""Findings on assumed constants: which of them move the answers of the chips that ship most."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import mean

from dse.commands.constants_output import weigh_overrides
from dse.config.compose import CONF
from dse.explanations.constant_weights import ConstantWeight, ConstantWeights
from dse.space.errors import DesignError
from dse.studies.markdown_table import table

SOURCE = "assumed"

QUESTIONS = (
    ("model=llama3_8b",),
    ("model=qwen3_1b7", "workload.batch=[1]"),
    ("model=deepseek_v3", "workload.batch=[4096]", "workload.prompt=2048", "workload.output=2"),
    ("model=deepseek_v3", "workload.batch=[18432]", "workload.prompt=2048", "workload.output=2"),
    ("model=deepseek_v3", "mapping.both.ep=64", "workload.batch=[4096]", "workload.prompt=2048", "workload.output=2"),
    ("model=deepseek_v3", "mapping.both.ep=8", "workload.batch=[64]", "workload.prompt=2048", "workload.output=2"),
    ("workload=attention",),
    ("workload=gemv",),
    ("workload=gemm",),
    ("workload=traffic",),
    ("workload=stream",),
)
"""What a chip is asked: the first of these that it supports and that violates none of its limits."""

SHOWN = 20
"""Constants of the table."""


@dataclass
class SharedConstant:
    """One address of assumed constants, on all chips that have it.

    Attributes:
        address: as overrides name it.
        weights: by chip, of those that were asked.
    """

    address: str
    weights: dict[str, ConstantWeight] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Sum of the weights over all chips. [-]"""
        return sum(weight.weight for weight in self.weights.values())

    @property
    def heaviest(self) -> tuple[str, ConstantWeight]:
        """Chip on which it weighs most, with the weight there."""
        return max(self.weights.items(), key=lambda item: item[1].weight)


def finding() -> str:
    """Table of the heaviest assumed constants over all chips that ship."""
    names = sorted(path.stem for path in (CONF / "chip").glob("*.yaml"))
    answers = {name: answer for name in names if (answer := weigh_chip(name)) is not None}
    return summarise({name: weights for name, (_, weights) in answers.items()}, names)


def weigh_chip(chip: str) -> tuple[tuple[str, ...], ConstantWeights] | None:
    """The question that a chip is asked, and the weights of its assumed constants; None without either."""
    for words in QUESTIONS:
        try:
            weights = weigh_overrides(f"chip={chip}", *words, source=SOURCE)
        except DesignError:  # another machine's question, or no assumed constant
            continue
        if not weights.limit and weights.metrics:
            return words, weights
    return None


def share_constants(answers: dict[str, ConstantWeights]) -> list[SharedConstant]:
    """Constants by address, largest sum of weights first."""
    shared: dict[str, SharedConstant] = {}
    for chip, weights in answers.items():
        for weight in weights.weights:
            shared.setdefault(weight.constant.address, SharedConstant(weight.constant.address)).weights[chip] = weight
    return sorted(shared.values(), key=lambda constant: -constant.total)


def summarise(answers: dict[str, ConstantWeights], chips: Iterable[str]) -> str:
    """Lead and table of the answers of some chips; chips that were asked nothing are named."""
    shared = share_constants(answers)
    moving = [constant for constant in shared if any(weight.moves for weight in constant.weights.values())]
    half = next((place for place in range(1, len(shared) + 1) if _sum(shared[:place]) >= _sum(shared) / 2), 0)
    silent = [chip for chip in chips if chip not in answers]
    rows = []
    for constant in shared[:SHOWN]:
        chip, heaviest = constant.heaviest
        values = sorted({weight.constant.value for weight in constant.weights.values()})
        low = min(weight.constant.low for weight in constant.weights.values())
        high = max(weight.constant.high for weight in constant.weights.values())
        breaking = sum(any(weight.breaks) for weight in constant.weights.values())
        rows.append(
            [
                f"`{constant.address}`",
                values[0] if len(values) == 1 else f"{len(values)} values",
                f"x{low:.3g} to x{high:.3g}",
                f"{len(constant.weights)}",
                f"{mean(weight.weight for weight in constant.weights.values()):.1%}",
                f"{heaviest.weight:.0%}: {heaviest.metric}, {chip}",
                f"{breaking}" if breaking else "",
            ]
        )
    head = ["assumed constant", "value", "range", "chips", "mean weight", "largest weight", "chips that violate a limit"]
    lead = (
        f"{len(answers)} chips have {len(shared)} addresses of assumed constants with a range. "
        f"{len(moving)} of them move a metric. The first {half} make half of the sum of all weights."
    )
    left = f" Not asked, for no question or no assumed constant fits: {', '.join(silent)}." if silent else ""
    return f"{lead}{left}\n\n{table(head, rows)}"


def _sum(constants: Iterable[SharedConstant]) -> float:
    return sum(constant.total for constant in constants)
