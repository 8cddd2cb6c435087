"""Bytes of a value where tiles multiply values of one size."""

from dse.space.errors import DesignError
from dse.space.mapping import BYTES, Mapping


def itemsize_of(mapping: Mapping) -> float:
    """Bytes of a value, which is one for all of a mapping's formats.

    Raises:
        DesignError: formats of other sizes side by side.
    """
    sizes = {name: BYTES[getattr(mapping.precision, name)] for name in ("weights", "activations", "kv")}
    for name, size in sizes.items():
        if size != sizes["weights"]:
            raise DesignError(
                f"mapping.precision.{name}: {getattr(mapping.precision, name)} beside weights of "
                f"{mapping.precision.weights}; a tile multiplies values of one size: choose formats of as many bytes"
            )
    return float(sizes["weights"])
