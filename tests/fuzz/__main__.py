"""Plays mutated inputs of every kind, and says how they were answered: python -m tests.fuzz [--count 10000] [--kind KIND ...]

Each input follows from its kind and its seed, so that --from SEED --count 1 plays one again. Inputs that are neither answered
nor refused in one line, that take over 10 s, or of which something runs are written to --keep, with their command.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.fuzz.kinds import KINDS


def main() -> int:
    """Shares the seeds of each kind among processes; 1 where an input was at fault or too few of a kind were refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000, help="inputs in all, shared among the kinds")
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--from", type=int, default=0, dest="start", help="the first seed of each kind")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=Path("fuzzed"), help="folder for inputs at fault")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    each = -(-args.count // len(args.kind))
    if args.part:
        return _play(args.kind[0], args.start, args.start + each, args.keep)
    failed = False
    for kind in args.kind:
        counts, slowest, faults = _shared(kind, args.start, each, args.jobs, args.keep)
        refused = counts["refused"] / max(each, 1)
        print(f"{kind:10} {each:6} inputs  {refused:6.1%} refused  slowest {slowest:5.1f} s  {len(faults)} at fault")
        for fault, number in Counter(faults).most_common(12):
            print(f"           {number:6} x {fault}")
        failed |= bool(faults) or (each >= 100 and refused < 0.3)
    return int(failed)


def _shared(kind: str, start: int, count: int, jobs: int, keep: Path) -> tuple[Counter[str], float, list[str]]:
    """What came of a kind's seeds, played by processes; one that dies is started again after its seed."""
    counts: Counter[str] = Counter()
    slowest, faults = 0.0, []
    parts = [[start + job * count // jobs, start + (job + 1) * count // jobs] for job in range(jobs)]
    while parts:
        running = [(part, _start(kind, *part, keep)) for part in parts if part[0] < part[1]]
        parts = []
        for part, process in running:
            last = part[0] - 1
            assert process.stdout
            for line in process.stdout:
                document = json.loads(line)
                last = document["seed"]
                counts[document["how"]] += 1
                slowest = max(slowest, document["seconds"])
                if document["fault"]:
                    faults.append(document["fault"])
            if process.wait() and last + 1 < part[1]:
                faults.append(f"seed {last + 1} ended the process with {process.returncode}")
                parts.append([last + 2, part[1]])
    return counts, slowest, faults


def _start(kind: str, start: int, end: int, keep: Path) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "tests.fuzz", "--part", "--kind", kind, "--from", str(start), "--count", str(end - start)]
    return subprocess.Popen([*line, "--keep", str(keep)], stdout=subprocess.PIPE, text=True)


def _play(kind: str, start: int, end: int, keep: Path) -> int:
    import faulthandler

    from tests.fuzz.answers import answer, warm
    from tests.fuzz.play import LIMIT

    keep = keep.resolve()
    warm(kind)
    for seed in range(start, end):
        faulthandler.dump_traceback_later(4 * LIMIT, exit=True)  # compiled code that no signal reaches
        ended, line, data = answer(kind, seed)
        faulthandler.cancel_dump_traceback_later()
        fault = ended.fault
        if fault:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{kind}-{seed}").write_bytes(data)
            (keep / f"{kind}-{seed}.txt").write_text(
                f"dse {' '.join(line)}\n{fault}\n\n{ended.out[-2000:]}\n{ended.error[-6000:]}", errors="replace"
            )
        how = "fault" if fault else "refused" if ended.refused else "answered"
        print(json.dumps({"seed": seed, "how": how, "seconds": ended.seconds, "fault": fault}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
