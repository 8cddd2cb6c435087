"""Plain names of metrics, settings and parts of breakdowns."""

METRIC_WORDS = {
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

SETTING_WORDS = {
    "ccd": "CCD",
    "cl": "CL",
    "cols": "columns",
    "cwl": "CWL",
    "d2d": "die-to-die",
    "dma": "DMA",
    "dp": "data parallel size",
    "dram": "DRAM",
    "ep": "expert parallel size",
    "faw": "FAW",
    "ffn": "FFN",
    "gemm": "GEMM",
    "gemv": "GEMV",
    "hbm": "HBM",
    "ktree_k": "K-tree phases",
    "kv": "KV",
    "l1": "L1 cache",
    "l2": "L2 cache",
    "mac": "MAC",
    "max": "largest",
    "mla": "MLA",
    "moe": "MoE",
    "noc": "NoC",
    "pcie": "PCIe",
    "phy": "PHY",
    "pp": "pipeline stages",
    "pue": "PUE",
    "simt": "SIMT",
    "split_k": "split along K",
    "sram": "SRAM",
    "tdp": "TDP",
    "tp": "tensor parallel size",
    "vc": "VC",
    "vcs": "VCs",
}
"""What is short in the address of a setting, written out or as it is spelled; parts of an address first, then their words."""

SETTING_NAMES = {
    "chip.areas": "area of",
    "chip.clock": "clock",
    "chip.core.matrix": "matrix rate of a core",
    "chip.core.rates": "relative rate of",
    "chip.core.sram": "SRAM of a core",
    "chip.core.vector": "vector rate of a core",
    "chip.cores": "cores of a die",
    "chip.decode": "decode tile",
    "chip.die.die_link_bandwidth": "bandwidth of die links",
    "chip.die.die_link_reach": "reach of die links",
    "chip.die_link": "die crossing",
    "chip.die_link.die_cols": "columns of dies",
    "chip.die_link.die_rows": "rows of dies",
    "chip.dies": "die",
    "chip.faults": "broken links and cores",
    "chip.hbm.banks": "HBM bank",
    "chip.hbm.banks.banks": "HBM banks",
    "chip.hbm.banks.timing": "HBM timing",
    "chip.network.nodes": "network node",
    "chip.nodes": "node",
    "chip.power": "rated power",
    "chip.published": "data sheet",
    "chip.technology.cache": "cache density",
    "chip.technology.sram": "SRAM density",
    "chip.tiers.fourth": "fourth memory tier",
    "chip.tiers.second": "second memory tier",
    "chip.tiers.third": "third memory tier",
    "chip.tile.sram": "SRAM of a tile",
    "mapping.both": "",
    "mapping.k": "block depth K",
    "mapping.m": "block rows M",
    "mapping.n": "block columns N",
    "mapping.precision": "format of",
    "mapping.serving": "",
}
"""Plain names of addresses, or of their beginnings, that parts do not give."""

ROOTS = ("chip", "mapping", "workload")
"""Beginnings of addresses that plain names leave out: what follows says enough."""

PART_NAMES = {
    "data sheet less model": "data sheet minus model",
    "hbm": "main memory",
    "hbm_phy": "memory interface",
    "hops": "network hops",
    "host": "host interface",
    "l2": "L2 cache",
    "link_phy": "link interface",
    "links": "link interfaces",
    "matrix": "matrix engines",
    "other": "other logic",
    "products": "matrix products",
    "sram": "SRAM",
    "stages": "pipeline stages",
    "starts": "launch overhead",
    "synchronisation": "synchronisation",
    "vector": "vector engines",
    "whatever is done": "static power",
    "words": "data on links",
}
"""Names by the keys of breakdowns; keys that read well are their own names."""


def part_name(key: str) -> str:
    """Plain name of a key of a breakdown.

    >>> part_name("hbm_phy"), part_name("whatever is done"), part_name("control")
    ('memory interface', 'static power', 'control')
    """
    return PART_NAMES.get(key, key)


def plain_name(name: str) -> str:
    """Plain name of a metric; a derived one by the same rule.

    >>> plain_name("throughput_per_system_mm2"), plain_name("tbt_p99")
    ('throughput per system mm²', 'time between tokens, p99')
    """
    words = [METRIC_WORDS.get(word, word) for word in name.split("_") if word]
    tail = words.pop() if len(words) > 1 and words[-1] in QUANTILES else ""
    return " ".join(words) + (f", {tail}" if tail else "")


def setting_name(address: str) -> str:
    """Plain name of a setting from its address.

    It is that of the address, or that of its longest beginning that has one, and the parts that follow.

    >>> setting_name("chip.hbm.bandwidth"), setting_name("mapping.both.tp"), setting_name("mapping.decode.tp")
    ('HBM bandwidth', 'tensor parallel size', 'decode tensor parallel size')
    >>> setting_name("chip.cores"), setting_name("fidelity"), setting_name("workload.batch")
    ('cores of a die', 'fidelity', 'batch')
    """
    parts = address.split(".")
    starts = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    known = next((start for start in starts if start in SETTING_NAMES), "")
    rest = parts[len(known.split(".")) if known else int(parts[0] in ROOTS and len(parts) > 1) :]
    words = [SETTING_NAMES.get(known, "")]
    for part in rest:
        words += [SETTING_WORDS[part]] if part in SETTING_WORDS else [SETTING_WORDS.get(word, word) for word in part.split("_")]
    return " ".join(filter(None, words))


def named_setting(address: str) -> str:
    """Plain name of a setting with its address, which a user types.

    >>> named_setting("chip.hbm.bandwidth"), named_setting("fidelity")
    ('HBM bandwidth (chip.hbm.bandwidth)', 'fidelity')
    """
    name = setting_name(address)
    return name if name == address else f"{name} ({address})"
