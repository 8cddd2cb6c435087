"""A step price at one composition, compiled: what the loop and the steady state ask of a `price.Price`."""

# mypy: disable-error-code="no-untyped-def"

from dse.evaluators.machine.compile_cache import inlined


@inlined
def seconds(price, prompt, pairs, requests, positions, past, far):
    """Of an iteration by a `price.Price`; counts as in `state.STEP`."""
    c = price.linear
    linear = c[0] + c[1] * prompt + c[2] * pairs + c[3] * requests + c[4] * positions + c[5] * far
    if len(price.table) == 0:
        return linear
    prefill_context = pairs / prompt if prompt > 0 else 0.0
    decode_context = positions / requests if requests > 0 else 0.0
    spilled = far / (positions + past) if far > 0 else 0.0
    return linear + composed(price, prompt, prefill_context, requests, decode_context, spilled)


@inlined
def composed(price, prompt, prompt_context, requests, context, spilled):
    """A table at a composition, whose counts are in the order of `price.AXES`."""
    before = prompt_context - (prompt + 1) / 2 if prompt > 0 else 0.0
    if before < 0:  # as many prompts as share the tokens, without the first one
        before = 1 - max(1.0, prompt / max(2 * prompt_context - 1, 1.0))
    return interpolated(price, (prompt, before, requests, context, spilled))


@inlined
def interpolated(price, point):
    """A table at values of its axes, multilinear between its points and beyond its ends."""
    places, weights, corners, stride = price.places, price.weights, 1, len(price.table)
    places[0], weights[0] = 0, 1.0
    for axis in range(len(point)):
        size, x, grid = price.sizes[axis], point[axis], price.grid[axis]
        stride //= size
        if size == 1:
            continue
        low = 0
        for place in range(1, size - 1):  # axes are short: counting has no branch to guess
            low += grid[place] <= x
        high = low + 1
        above = (x - grid[low]) / (grid[high] - grid[low])
        if above == 0 or above == 1:  # at a point: corners of the others count for nothing
            at = (high if above == 1 else low) * stride
            for corner in range(corners):
                places[corner] += at
            continue
        for corner in range(corners):
            places[corner + corners] = places[corner] + high * stride
            weights[corner + corners] = weights[corner] * above
            places[corner] += low * stride
            weights[corner] *= 1 - above
        corners *= 2
    value = 0.0
    for corner in range(corners):
        value += weights[corner] * price.table[places[corner]]
    return value
