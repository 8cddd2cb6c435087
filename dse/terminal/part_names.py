"""Plain names of parts of a chip, and of what time, power and money are spent on."""

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
