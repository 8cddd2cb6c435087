"""Applies every seeded fault and says who finds it: python -m tests.faults [--only N]."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.faults import FAULTS, GOLDEN, failed


def main() -> int:
    """1 if a fault is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", type=int, metavar="N", choices=range(1, len(FAULTS) + 1), help="the number of one fault")
    only = parser.parse_args().only
    numbered = [(number, fault) for number, fault in enumerate(FAULTS, start=1) if only in (None, number)]
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


sys.exit(main())
