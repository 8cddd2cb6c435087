"""Draw sample.csv, 300 synthetic requests with gamma gaps and log-normal lengths.

python -m dse.studies.npu_serving.sample
"""

from pathlib import Path

import numpy as np

PATH = Path(__file__).with_name("sample.csv")


def rows(count: int = 300, rate: float = 5.0, cv: float = 1.5) -> list[str]:
    """Lines of the synthetic trace as CSV text."""
    rng = np.random.default_rng(2026)
    arrival = np.cumsum(1e-3 + rng.gamma(1 / cv**2, cv**2 / rate, count)).round(6)
    prompt = np.clip(np.round(rng.lognormal(6.5, 0.9, count)), 8, 8192).astype(int)
    output = np.clip(np.round(rng.lognormal(4.8, 0.7, count)), 2, 1024).astype(int)
    return ["arrival,prompt,output", *(f"{a:.6f},{p},{o}" for a, p, o in zip(arrival, prompt, output, strict=True))]


if __name__ == "__main__":
    PATH.write_text("\n".join(rows()) + "\n")
