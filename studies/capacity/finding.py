"""Findings of `dse capacity` against exhaustive search, and of the steady state against simulation.

    python -m dse.studies.capacity.finding 100

draws that many questions instead of `DRAWN`.
"""

import itertools
import sys

import numpy as np

from dse.analysis.capacity import ChipCapacity, build_chip_query, find_capacity, parse_query
from dse.analysis.deployment_search import LOAD_FRACTIONS
from dse.analysis.deployments import CandidateDeployment, find_candidates
from dse.evaluators.serving.max_rate import RateSearch
from dse.space.errors import DesignError
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

QUESTIONS = {
    "Llama-3-8B on 4 A100, 512 in, 64 out": (
        "chip=a100", "model=llama3_8b", "devices=4", "workload.prompt=512",
        "workload.output=64", "workload.ttft=500 ms", "workload.tpot=30 ms",
    ),
    "Qwen3-8B on 4 H100, 4,000 in, 50 out": (
        "chip=h100", "model=qwen3_8b", "devices=4", "workload.prompt=4000", "workload.output=50",
        "workload.ttft=2 s", "workload.tpot=40 ms",
    ),
}  # fmt: skip

DRAWN = 5
"""Questions that are drawn and have an answer."""

CHIPS = ("a100", "h100", "h200", "b200")
MODELS = ("qwen3_1b7", "qwen3_4b", "qwen3_8b", "llama3_8b", "qwen3_32b", "qwen3_30b_a3b")

FEWER = (
    "space=empty", "+space.mapping.both.tp=choice(1, 2, 4)",
    "+space.mapping.serving.policy=choice(chunked_prefill, prefill_first)",
    "+space.mapping.serving.max_batched_tokens={sweep: 'choice(512, 2048)', when: {mapping.serving.policy: [chunked_prefill]}}",
    "+space.mapping.serving.max_batch_size=choice(32, 128)",
)  # fmt: skip
"""Deployments searched here, where each is searched separately: a part of `conf/space/capacity.yaml`."""


def finding() -> str:
    """Tables of the study's findings, in Markdown."""
    races = {name: _asked((*words, *FEWER, "workload.requests=600")) for name, words in QUESTIONS.items()}
    head = ["question", "deployments", "looked at", "played", "largest rate", "of every deployment", "short by"]
    kinds = ["question", "kind", "deployment", "requests/s", "closed estimate"]
    return "\n\n".join(
        [
            "The best deployment, and that of a search of each for its own rate; 600 requests by Poisson, nine of ten within "
            "bounds.",
            table(head, [[name, *_race(*race)] for name, race in races.items()]),
            f"Questions that are drawn: one of {len(CHIPS)} GPUs, 1, 2 or 4 of them, one of {len(MODELS)} models, "
            "prompts of 100 to 6,300 tokens and outputs of 5 to 200, 0.2 to 3.2 s to the first token and 8 to 80 ms a token; "
            "1,200 requests.",
            _random(DRAWN),
            "The loop's rate over the steady state's estimate, over all deployments that have both.",
            table(
                ["question", "least", "median", "90 %", "most", "rank correlation"],
                [[n, *_spread(o[1])] for n, o in races.items()],
            ),
            "The best deployment of each kind.",
            table(kinds, [row for name, race in races.items() for row in _kinds(name, race[1])]),
            "Latency against load of the best deployment for the first question.",
            table(["of the largest rate", "TTFT, p90", "TPOT, p90"], _curve(next(iter(races.values()))[0])),
        ]
    )


Rates = list[tuple[CandidateDeployment, float]]


def _asked(words: tuple[str, ...]) -> tuple[ChipCapacity, Rates]:
    """The quick answer, and the rate of every deployment."""
    (side,) = find_capacity(words)
    return side, [
        (deployment, _own(deployment, side)) for deployment in _every((*words, *side.words), side) if deployment.estimate.rate
    ]


def _random(count: int) -> str:
    """Table of results for randomly drawn questions."""
    short, kept, over, played, fit = list[float](), list[bool](), list[float](), 0, 0
    for seed in itertools.count():
        if len(short) == count:
            break
        try:
            side, rates = _asked((*_drawn(seed), *FEWER, "workload.requests=1200"))
        except DesignError:  # no deployment keeps such bounds, or so few requests keep them however fast they come
            continue
        best = side.best
        assert best is not None
        short.append(max(rate for _, rate in rates) / best.rate - 1)
        over.append(max(rate / candidate.most for candidate, rate in rates))
        assert best.capacity is not None
        assert best.capacity.served is not None
        kept.append(not side.bounds.list_broken_bounds(best.capacity.served))
        played, fit = played + len(side.tried), fit + len(rates)
    rows = [
        ["questions where some deployment keeps the bounds", f"{count}"],
        ["deployments, and those that are played", f"{fit}, {played}"],
        ["the best of all over the answer: median, and most", f"{np.median(short):+.1%}, {max(short):+.1%}"],
        ["the stream that is printed keeps the bounds at the answer's rate", f"{sum(kept)}"],
        ["a deployment's own rate over what it may serve at most, the highest", f"{max(over):.2f}"],
    ]
    return table(["questions drawn", f"{seed}"], rows)


def _drawn(seed: int) -> tuple[str, ...]:
    """A question."""
    rng = np.random.default_rng(seed)
    prompt, output, ttft, tpot = (10 ** rng.uniform(*ends) for ends in ((2, 3.8), (0.7, 2.3), (-0.7, 0.5), (-2.1, -1.1)))
    return (
        f"chip={rng.choice(CHIPS)}", f"model={rng.choice(MODELS)}", f"devices={rng.choice([1, 2, 4])}",
        f"workload.prompt={round(prompt)}", f"workload.output={round(output)}", f"workload.ttft={ttft:.3f} s",
        f"workload.tpot={1000 * tpot:.1f} ms",
    )  # fmt: skip


def _every(words: tuple[str, ...], side: ChipCapacity) -> list[CandidateDeployment]:
    """All deployments, those too that the quick answer leaves out."""
    candidates = parse_query(words)
    found_candidates, _ = find_candidates(
        *build_chip_query(candidates.chips[0], candidates, trust=False), side.devices, apart=True, every=True
    )
    return found_candidates


def _own(deployment: CandidateDeployment, side: ChipCapacity) -> float:
    return RateSearch(deployment.make_deployment, side.load, side.bounds).settle(deployment.estimate.rate).rate


def _race(side: ChipCapacity, rates: Rates) -> list[str]:
    assert side.best is not None
    most = max(rate for _, rate in rates)
    return [
        str(len(rates)), str(len(side.candidates)), str(len(side.tried)), f"{side.best.rate:.4g}/s", f"{most:.4g}/s",
        f"{max(0.0, most / side.best.rate - 1):.1%}",
    ]  # fmt: skip


def _spread(rates: Rates) -> list[str]:
    both = [(deployment.estimate.rate, rate) for deployment, rate in rates if rate]
    off = np.array([rate / estimate for estimate, rate in both])
    ranks = np.argsort(np.argsort(np.array(both), axis=0), axis=0)
    quantiles = np.quantile(off, [0.0, 0.5, 0.9, 1.0])
    return [*(f"{value:.2f}" for value in quantiles), f"{np.corrcoef(ranks.T)[0, 1]:.2f}"]


def _kinds(name: str, rates: Rates) -> list[list[str]]:
    best: dict[str, tuple[CandidateDeployment, float]] = {}
    for deployment, rate in rates:
        kind = "apart" if deployment.apart else "together"
        if rate > best.get(kind, (deployment, 0.0))[1]:
            best[kind] = deployment, rate
    return [
        [name, kind, deployment.text, f"{rate:.4g}", f"{deployment.estimate.rate:.4g}"]
        for kind, (deployment, rate) in sorted(best.items())
    ]


def _curve(side: ChipCapacity) -> list[list[str]]:
    assert len(side.curve) == len(LOAD_FRACTIONS)
    return [[f"{times:g}", format_quantity(ttft, "s"), format_quantity(tpot, "s")] for times, _, ttft, tpot, _ in side.curve]


if __name__ == "__main__":
    print(_random(int(sys.argv[1])))
