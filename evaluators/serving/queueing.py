"""Waiting times of random arrivals, compiled: mean, and share of requests within a time.

The approximations use two moments: the mean and the squared coefficient of variation of gaps and services.
"""

# mypy: disable-error-code="no-untyped-def"

import math

from dse.evaluators.machine.compile_cache import compiled_without_gil

NEAR = 1e-6
"""Share of the requests that is none."""

HALVINGS = 40
"""Of a bracket, until what is left of it is rounding."""


@compiled_without_gil
def delay_probability(load, servers):
    """Share of requests that have to wait.

        C = rho ** (sqrt(2 (m + 1)) - 1)

    Args:
        load: of all servers, rho, 0 to 1. [1]
        servers: m, at least 1. [1]

    Source:
        [sakasegawa1977]; exact for one server and Poisson arrivals.

    >>> delay_probability(0.5, 1.0)
    0.5
    """
    return load ** (math.sqrt(2 * (servers + 1)) - 1)


@compiled_without_gil
def mean_wait(load, servers, service, gaps, services):
    """Mean wait in a G/G/m queue. [s]

        W = C(rho, m) s (ca2 + cs2) / 2 / (m (1 - rho))

    Args:
        load: rho, below 1. [1]
        servers: m, at least 1. [1]
        service: s, the mean. [s]
        gaps, services: ca2 and cs2, squared coefficients of variation of gaps between arrivals, and of services. [1]

    Source:
        [sakasegawa1977] for m servers, [kingman1961] for two moments; exact for M/G/1 (Pollaczek and Khinchine).

    >>> mean_wait(0.5, 1.0, 2.0, 1.0, 1.0)
    2.0
    """
    return delay_probability(load, servers) * service * (gaps + services) / 2 / (servers * (1 - load))


@compiled_without_gil
def others_in_lane(held, lanes):
    """Requests next to one in its lane, if all lanes hold `held` others spread as evenly as possible.

    Their number is a Poisson variable of that mean, taken as normal: m + 1 requests on L lanes are (m + 1) / L - 1
    next to each, and at least none.

    >>> others_in_lane(3.0, 1.0), others_in_lane(0.0, 4.0)
    (3.0, 0.0)
    """
    if lanes <= 1:
        return held
    mean, deviation = (held + 1) / lanes - 1, math.sqrt(held) / lanes
    if deviation == 0:
        return max(mean, 0.0)
    z = mean / deviation
    return mean * 0.5 * math.erfc(-z / math.sqrt(2.0)) + deviation * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


@compiled_without_gil
def response_share(time, services, weights, waiting, mean):
    """Share of requests whose response time is at most `time`, for exponential waits.

    Args:
        time: allowed response time. [s]
        services, weights: of kinds of requests, and how many they are; shape (kinds,). [s], [1]
        waiting: share that waits. [1]
        mean: wait of these. [s]
    """
    share = 0.0
    for kind in range(len(services)):
        left = time - services[kind]
        if left >= 0:
            share += weights[kind] * (1 - waiting * math.exp(-left / mean) if mean > 0 else 1.0)
    return share


@compiled_without_gil
def response_quantile(share, services, weights, waiting, mean):
    """Least response time that a share of the requests keeps. [s]"""
    low = high = services[0]
    for kind in range(1, len(services)):
        low, high = min(low, services[kind]), max(high, services[kind])
    if response_share(high, services, weights, waiting, mean) < share - NEAR:
        low, high = high, high + mean * math.log(waiting / (1 - share)) if waiting > 1 - share else high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if response_share(middle, services, weights, waiting, mean) < share - NEAR:
            low = middle
        else:
            high = middle
    return high
