"""Time and memory of reading large files of measurements: ``python -m tests.speed.measurement_files [MEGABYTES]``.

Files are the samples of tests/calibrate, made long: a result with the texts of all answers, and a trace of a profiler.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dse.accuracy.measurements.measurement_files import read_measurements

SAMPLES = Path(__file__).parents[1] / "calibrate/files"


def write_result(path: Path, megabytes: int) -> None:
    """Write a result of a client with times and texts of each request."""
    text = json.dumps('an answer with "quotes", ] and } and \\ '.ljust(3000, "."))
    count = megabytes * 1_000_000 // (len(text) + 400)
    values = json.loads((SAMPLES / "vllm_serve.json").read_text())
    values |= {"completed": count, "num_prompts": count, "total_input_tokens": 512 * count, "total_output_tokens": 32 * count}
    values |= {"input_lens": [512] * count, "output_lens": [32] * count}
    with path.open("w") as file:
        file.write(json.dumps(values)[:-1] + ', "itls": [')
        file.writelines(f"{', ' if i else ''}{json.dumps([0.0105] * 31)}" for i in range(count))
        file.write('], "generated_texts": [')
        file.writelines(f"{', ' if i else ''}{text}" for i in range(count))
        file.write("]}")


def write_trace(path: Path, megabytes: int) -> None:
    """Write a trace of many steps, each of the sample's kernels."""
    events = json.loads((SAMPLES / "torch_trace.json").read_text())["traceEvents"][1:]

    def steps() -> Iterator[str]:
        size, step = 0, 0
        while size < megabytes * 1_000_000:
            numbered = [
                {**each, "args": {**each["args"], "External id": each["args"]["External id"] + 20 * step}} for each in events
            ]
            text = ("," if step else "") + ",".join(map(json.dumps, numbered))
            size, step = size + len(text), step + 1
            yield text

    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [')
        file.writelines(steps())
        file.write("]}")


def main(words: list[str]) -> None:
    """Print seconds and megabytes of memory for each kind of file; a process of its own reads each."""
    if words[:1] == ["read"]:
        begun = time.perf_counter()
        read_measurements([Path(words[1])])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(f"{time.perf_counter() - begun:.1f} s, {peak:.0f} MB of memory")
        return
    megabytes = int(words[0]) if words else 1000
    with tempfile.TemporaryDirectory() as folder:
        for name, write in (("result", write_result), ("trace", write_trace)):
            path = Path(folder) / "file.json"
            write(path, megabytes)
            command = [sys.executable, "-m", "tests.speed.measurement_files", "read", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"{name} of {path.stat().st_size / 1e6:,.0f} MB: {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
