"""A stand-in for a simulator: ``python -m my_mesh.stand_in QUESTION ANSWER`` knows no class of mesh-dse, only JSON.

It adds a time for each layer of each step to the analytical times. Put a real simulator in its place.
"""

import json
import sys
from pathlib import Path

LAYER = 2e-6
"""Time of a layer beside its kernels, of no machine. [s]"""


def simulate(question: dict) -> dict[str, float]:
    """Metrics in SI of a question with one batch of requests."""
    known, added = question["analytical"], LAYER * question["case"]["model"]["layers"]
    requests, _, output = question["case"]["requests"][0]
    latency = known["latency"] + added * output
    return {
        "ttft": known["ttft"] + added,
        "tpot": known["tpot"] + added,
        "latency": latency,
        "throughput": requests * output / latency,
    }


if __name__ == "__main__":
    question, answer = map(Path, sys.argv[1:])
    answer.write_text(json.dumps({"metrics": simulate(json.loads(question.read_text()))}))
