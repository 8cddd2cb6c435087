"""Applies seeded faults and says who finds each: python -m tests.faults [--only 3,25-40]."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.faults import FAULTS
from tests.faults.seeding import GOLDEN, failed


def numbers(text: str) -> set[int]:
    """Numbers of faults that a text lists, as single ones and as ranges.

    >>> sorted(numbers("3,5-7"))
    [3, 5, 6, 7]
    """
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            several = range(int(first), int(last or first) + 1)
        except ValueError:
            several = range(0)
        if not several or several[0] < 1 or several[-1] > len(FAULTS):
            raise argparse.ArgumentTypeError(f"no faults {part!r}; they are 1 to {len(FAULTS)}, as in 3,5-7")
        chosen |= set(several)
    return chosen


def main() -> int:
    """1 if a fault is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", type=numbers, metavar="N,N-N", default=numbers(f"1-{len(FAULTS)}"), help="some, by number")
    only = parser.parse_args().only
    numbered = [(number, fault) for number, fault in enumerate(FAULTS, start=1) if number in only]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        tests = tuple(dict.fromkeys(test for _, fault in numbered for test in fault.tests))
        already = failed(tests, Path(folder))
        if already:
            print("these fail without any fault:", *already, sep="\n  ")
            return 1
        for number, fault in numbered:
            failures = failed(fault.tests, Path(folder), fault)
            exact = sum(not test.startswith(GOLDEN) for test in failures)
            by = [f"identities ({exact})"] * (exact > 0) + ["the golden set"] * (exact < len(failures))
            print(f"{number:2}  {'found by ' + ' and '.join(by) if by else 'NOT FOUND'}: {fault.wrong}", flush=True)
            missed += not failures
    print(f"{len(numbered) - missed} of {len(numbered)} found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
