"""Plain names of metrics: `throughput per system mm²` for `throughput_per_system_mm2`."""

WORDS = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "tbt": "time between tokens",
    "mtoken": "million tokens",
    "mm2": "mm²",
    "max": "largest",
    "hbm": "HBM",
    "kv": "KV",
    "noc": "NoC",
    "slo": "SLO",
    "sram": "SRAM",
    "tdp": "TDP",
    "ffn": "FFN",
    "mfu": "MFU",
}
"""What is short in the name of a metric, written out or as it is spelled."""

QUANTILES = ("p50", "p90", "p99")


def plain_name(name: str) -> str:
    """Plain name of a metric; a derived one by the same rule.

    >>> plain_name("throughput_per_system_mm2"), plain_name("tbt_p99")
    ('throughput per system mm²', 'time between tokens, p99')
    """
    words = [WORDS.get(word, word) for word in name.split("_") if word]
    tail = words.pop() if len(words) > 1 and words[-1] in QUANTILES else ""
    return " ".join(words) + (f", {tail}" if tail else "")
