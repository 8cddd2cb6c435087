"""What `dse capacity` costs, whatever the number of devices: python -m tests.speed.capacity [DEVICES ...] [--against CHECKOUT]

CPU seconds of whole commands, warm, beside those of another checkout, which runs by the same interpreter and libraries, in
turn; and their answers, best deployment and rate, where these differ. Machines are shared and noisy: quote the ratios.
"""

import argparse
import json
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.speed.start import ROOT, run_command

QUESTION = (
    "chip=h100",
    "model=llama3_70b",
    "workload.prompt=2000",
    "workload.output=200",
    "workload.ttft='2 s'",
    "workload.tpot='50 ms'",
)

DEVICES = (16, 64, 1024)


def measured(devices: int, checkout: Path, caches: str) -> tuple[float, str]:
    """CPU seconds of the command for so many devices, and its answer."""
    seconds, text = run_command(checkout, ("capacity", *QUESTION, f"devices={devices}", "--json"), caches)
    (chip,) = json.loads(text)["chips"]
    best = chip["best"]
    return seconds, f"{chip['cells']} x {best['max_rate_hz']:g} requests/s by {best['deployment']}"


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.speed.capacity", description=__doc__)
    words.add_argument("devices", type=int, nargs="*", default=DEVICES)
    words.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout of this repository")
    given = words.parse_args()
    checkouts = [ROOT, *([given.against.resolve()] if given.against else [])]
    table = Table("devices", *(f"CPU s, {checkout.name}" for checkout in checkouts), "answer")
    with tempfile.TemporaryDirectory() as caches:
        places = [f"{caches}/{number}" for number in range(len(checkouts))]
        for checkout, place in zip(checkouts, places, strict=True):
            measured(given.devices[0], checkout, place)  # compiles the loops
        for devices in given.devices:
            rows = [measured(devices, *each) for each in zip(checkouts, places, strict=True)]
            answers = dict.fromkeys(answer for _, answer in rows)
            table.add_row(str(devices), *(f"{seconds:.2f}" for seconds, _ in rows), "; against ".join(answers))
    Console(width=160, highlight=False).print(table)


if __name__ == "__main__":
    main()
