"""`dse capacity` against a search of every deployment by itself, and the steady state's estimates against the loop."""

import time

import numpy as np

from dse.capacity import OF_LOAD, Side, capacity, parsed, posed
from dse.deployments import Candidate, candidates
from dse.evaluators.serving.capacity import largest
from dse.evaluators.serving.state import Stop
from dse.space.units import show
from dse.studies.write import table

QUESTIONS = {
    "Qwen3-32B on 16 H200, 4,000 in, 500 out": (
        "chip=h200", "model=qwen3_32b", "devices=16", "workload.prompt=4000", "workload.output=500", "workload.ttft=2 s",
        "workload.tpot=50 ms",
    ),
    "Llama-3-8B on 8 A100, 1,024 in, 256 out": (
        "chip=a100", "stack=tuned", "mapping=serving", "model=llama3_8b", "devices=8", "workload.prompt=1024",
        "workload.output=256", "workload.ttft=1 s", "workload.tpot=30 ms",
    ),
    "Qwen3-8B on 4 H100, 8,000 in, 100 out": (
        "chip=h100", "model=qwen3_8b", "devices=4", "workload.prompt=8000", "workload.output=100", "workload.ttft=3 s",
        "workload.tpot=40 ms",
    ),
}  # fmt: skip


FEWER = (
    "space=empty", "+space.mapping.both.tp=choice(1, 2, 4, 8)", "+space.mapping.serving.policy=choice(chunked, prefill_first)",
    "+space.mapping.serving.tokens={sweep: 'choice(512, 2048)', when: {mapping.serving.policy: [chunked]}}",
    "+space.mapping.serving.batch=choice(64, 256)", "workload.requests=1000",
)  # fmt: skip
"""What is looked through here, since every deployment is searched by itself: half of what `conf/space/capacity.yaml` has."""


def finding() -> str:
    """Tables."""
    found = {name: _asked((*words, *FEWER)) for name, words in QUESTIONS.items()}
    head = [
        "question",
        "deployments",
        "played",
        "largest rate",
        "of every deployment",
        "short by",
        "CPU",
        "of all by themselves",
    ]
    kinds = ["question", "kind", "deployment", "requests/s", "closed estimate"]
    return "\n\n".join(
        [
            "The best deployment, and that of a search of each for its own rate; 1,000 requests by Poisson, nine of ten within "
            "bounds. CPU seconds are of this machine, prices and compiled loops being there.",
            table(head, [[name, *_race(*one)] for name, one in found.items()]),
            "The loop's rate over the steady state's estimate, over all deployments that have both.",
            table(
                ["question", "least", "median", "90 %", "most", "rank correlation"],
                [[n, *_spread(o[1])] for n, o in found.items()],
            ),
            "The best deployment of each kind.",
            table(kinds, [row for name, one in found.items() for row in _kinds(name, one[1])]),
            "Latency against load of the best deployment for the first question.",
            table(["of the largest rate", "TTFT, p90", "TPOT, p90"], _curve(next(iter(found.values()))[0])),
        ]
    )


Rates = list[tuple[Candidate, float]]


def _asked(words: tuple[str, ...]) -> tuple[Side, Rates, float, float]:
    """The quick answer, the rate of every deployment, and CPU seconds of both."""
    capacity(words)  # whose tables and compiled loops are there the next time
    start = time.process_time()
    (side,) = capacity(words)
    middle = time.process_time()
    rates = [(one, _own(one, side)) for one in _every(words, side) if one.estimate.rate]
    return side, rates, middle - start, time.process_time() - middle


def _every(words: tuple[str, ...], side: Side) -> list[Candidate]:
    """All deployments, those too that the quick answer leaves out."""
    asked = parsed(words)
    _, usual, load, bounds, knobs = posed(asked.chips[0], asked, trust=False)
    found, _ = candidates(usual, load, bounds, knobs, side.devices, apart=True, every=True)
    return found


def _own(one: Candidate, side: Side) -> float:
    def play(rate: float, stop: Stop):  # type: ignore[no-untyped-def]
        return one.deployment.serve(side.load.at(rate), stop=stop)

    return largest(play, side.bounds, len(side.load.requests), one.estimate.rate).rate


def _race(side: Side, rates: Rates, quick: float, slow: float) -> list[str]:
    assert side.best is not None
    most = max(rate for _, rate in rates)
    return [
        f"{len(side.candidates):,}", f"{len(side.tried):,}", f"{side.best.rate:.4g}/s", f"{most:.4g}/s",
        f"{max(0.0, most / side.best.rate - 1):.1%}", f"{quick:.2g} s", f"{slow:.2g} s",
    ]  # fmt: skip


def _spread(rates: Rates) -> list[str]:
    both = [(one.estimate.rate, rate) for one, rate in rates if rate]
    off = np.array([rate / estimate for estimate, rate in both])
    ranks = np.argsort(np.argsort(np.array(both), axis=0), axis=0)
    quantiles = np.quantile(off, [0.0, 0.5, 0.9, 1.0])
    return [*(f"{value:.2f}" for value in quantiles), f"{np.corrcoef(ranks.T)[0, 1]:.2f}"]


def _kinds(name: str, rates: Rates) -> list[list[str]]:
    best: dict[str, tuple[Candidate, float]] = {}
    for one, rate in rates:
        kind = "apart" if one.apart else "together"
        if rate > best.get(kind, (one, 0.0))[1]:
            best[kind] = one, rate
    return [[name, kind, one.text, f"{rate:.4g}", f"{one.estimate.rate:.4g}"] for kind, (one, rate) in sorted(best.items())]


def _curve(side: Side) -> list[list[str]]:
    assert len(side.curve) == len(OF_LOAD)
    return [[f"{times:g}", show(ttft, "s"), show(tpot, "s")] for times, _, ttft, tpot, _ in side.curve]
