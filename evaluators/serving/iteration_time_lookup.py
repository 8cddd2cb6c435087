"""Look-up of an iteration time at one composition, compiled, for simulation and steady state."""

# mypy: disable-error-code="no-untyped-def"

from dse.evaluators.machine.compile_cache import compiled_inlined, inlined_function

REQUESTS, CONTEXT = 2, 3
"""Places of decodes and of what they read among `iteration_time.AXES`."""


@compiled_inlined
def iteration_seconds(price, prompt, pairs, requests, positions, past, far):
    """Time of an iteration; counts as in `simulator_state.STEP`. [s]"""
    c = price.linear
    linear = c[0] + c[1] * prompt + c[2] * pairs + c[3] * requests + c[4] * positions + c[5] * far
    if len(price.table) == 0:
        return linear
    prefill_context = pairs / prompt if prompt > 0 else 0.0
    decode_context = positions / requests if requests > 0 else 0.0
    spilled = far / (positions + past) if far > 0 else 0.0
    return linear + table_at_composition(price, prompt, prefill_context, requests, decode_context, spilled)


@compiled_inlined
def table_at_composition(price, prompt, prompt_context, requests, context, spilled):
    """Table value at a composition with counts in the order of `AXES`. [s]"""
    before = prompt_context - (prompt + 1) / 2 if prompt > 0 else 0.0
    if before < 0:  # what each of several prompts has of the tokens
        before = min(1.0, max(2 * prompt_context - 1, 1.0) / prompt) - 1
    return interpolate_table(price, (prompt, before, requests, context, spilled))


@compiled_inlined
def interpolate_table(price, point):
    """Table value at values of its axes, multilinear between its points and beyond its ends."""
    corners, stride = 1, len(price.table)
    price.places[0], price.weights[0] = 0, 1.0
    for axis in range(len(point)):
        stride //= price.sizes[axis]
        corners = _along(price, axis, point[axis], stride, corners)
    value = 0.0
    for corner in range(corners):
        value += price.weights[corner] * price.table[price.places[corner]]
    return value


@inlined_function
def _along(price, axis, x, stride, corners):
    """Corners of a cell extended along one more axis with a stride in the table; returns their number."""
    places, weights, size, grid = price.places, price.weights, price.sizes[axis], price.grid[axis]
    if size == 1:
        return corners
    low = 0
    for place in range(1, size - 1):  # axes are short: counting has no branch to guess
        low += grid[place] <= x
    high = low + 1
    above = (x - grid[low]) / (grid[high] - grid[low])
    if above == 0 or above == 1:  # at a point: corners of the others count for nothing
        at = (high if above == 1 else low) * stride
        for corner in range(corners):
            places[corner] += at
        return corners
    for corner in range(corners):
        places[corner + corners] = places[corner] + high * stride
        weights[corner + corners] = weights[corner] * above
        places[corner] += low * stride
        weights[corner] *= 1 - above
    return 2 * corners


@inlined_function
def decode_corners(price, requests):
    """Prepare the table corners for decode-only iterations at the least context; returns their number.

    `interpolate_context` continues from these for all contexts; the last axis, of spilled positions, begins with 0.
    """
    corners, stride = 1, len(price.table)
    price.places[0], price.weights[0] = 0, 1.0
    for axis in range(CONTEXT):
        stride //= price.sizes[axis]
        corners = _along(price, axis, requests if axis == REQUESTS else 0.0, stride, corners)
    return corners


@inlined_function
def interpolate_context(price, corners, low, above):
    """Table value between two context points at fraction `above`, bit-equal to `interpolate_table`.

    At a point, the other one has weight 0.
    """
    value, stride = 0.0, price.sizes[CONTEXT + 1]
    for corner in range(corners):
        value += price.weights[corner] * (1 - above) * price.table[price.places[corner] + low * stride]
    if price.sizes[CONTEXT] > 1:
        for corner in range(corners):
            value += price.weights[corner] * above * price.table[price.places[corner] + (low + 1) * stride]
    return value
