"""Columns of a step's call table, and of the rates at which designs serve its calls."""

MATRIX, VECTOR, NEAR, SIZE, FAR, SAVED, OVERHEAD, BUDGET, AWAITED, RATES = range(10)
"""Rates of designs: an operation of a product, and on elements [s]; a byte of the cache [s/B], its size [B]; a byte of main
memory, and what it costs less from the cache [s/B]; of launching a call [s]; bytes that may be prefetched, and those that are
waited for [B]; and how many these are."""

COUNT, MACS, OPERATIONS, LOCAL, FETCH, ASKED = range(6)
"""Columns of a call: products, operations of one, vector operations, bytes of activations, bytes that it reads."""

DESIGNS_PER_BATCH = 256
"""Designs whose numbers are near at a time."""
