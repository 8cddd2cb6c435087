"""`dse capacity` against a search of every deployment by itself, and the steady state's estimates against the loop."""

import numpy as np

from dse.answers.capacity import Side, capacity, parsed, posed
from dse.answers.deployments import Candidate, candidates
from dse.answers.race import OF_LOAD, play
from dse.evaluators.serving.capacity import largest
from dse.evaluators.serving.state import Stop
from dse.space.units import show
from dse.studies.write import table

QUESTIONS = {
    "Llama-3-8B on 4 A100, 512 in, 64 out": (
        "chip=a100", "stack=tuned", "mapping=serving", "model=llama3_8b", "devices=4", "workload.prompt=512",
        "workload.output=64", "workload.ttft=500 ms", "workload.tpot=30 ms",
    ),
    "Qwen3-8B on 4 H100, 4,000 in, 50 out": (
        "chip=h100", "mapping=serving", "model=qwen3_8b", "devices=4", "workload.prompt=4000", "workload.output=50",
        "workload.ttft=2 s", "workload.tpot=40 ms",
    ),
}  # fmt: skip

FEWER = (
    "space=empty", "+space.mapping.both.tp=choice(1, 2, 4)", "+space.mapping.serving.policy=choice(chunked, prefill_first)",
    "+space.mapping.serving.tokens={sweep: 'choice(512, 2048)', when: {mapping.serving.policy: [chunked]}}",
    "+space.mapping.serving.batch=choice(32, 128)", "workload.requests=600",
)  # fmt: skip
"""What is looked through here, since every deployment is searched by itself: a part of what `conf/space/capacity.yaml` has."""


def finding() -> str:
    """Tables."""
    found = {name: _asked((*words, *FEWER)) for name, words in QUESTIONS.items()}
    head = ["question", "deployments", "looked at", "played", "largest rate", "of every deployment", "short by"]
    kinds = ["question", "kind", "deployment", "requests/s", "closed estimate"]
    return "\n\n".join(
        [
            "The best deployment, and that of a search of each for its own rate; 600 requests by Poisson, nine of ten within "
            "bounds.",
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


def _asked(words: tuple[str, ...]) -> tuple[Side, Rates]:
    """The quick answer, and the rate of every deployment."""
    (side,) = capacity(words)
    return side, [(one, _own(one, side)) for one in _every(words, side) if one.estimate.rate]


def _every(words: tuple[str, ...], side: Side) -> list[Candidate]:
    """All deployments, those too that the quick answer leaves out."""
    asked = parsed(words)
    found, _ = candidates(*posed(asked.chips[0], asked, trust=False), side.devices, apart=True, every=True)
    return found


def _own(one: Candidate, side: Side) -> float:
    def at_rate(rate: float, stop: Stop):  # type: ignore[no-untyped-def]
        return play(one, side.load, rate, stop)

    return largest(at_rate, side.bounds, len(side.load.requests), one.estimate.rate).rate


def _race(side: Side, rates: Rates) -> list[str]:
    assert side.best is not None
    most = max(rate for _, rate in rates)
    return [
        str(len(rates)), str(len(side.candidates)), str(len(side.tried)), f"{side.best.rate:.4g}/s", f"{most:.4g}/s",
        f"{max(0.0, most / side.best.rate - 1):.1%}",
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
