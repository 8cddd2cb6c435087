"""A mesh of cores as a program feels it: a hop, a word, a software stage, a product (PLMR, [he2025] section 3.1)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fabric:
    """Times of one core, its router and its links.

    Attributes:
        hop: alpha, a router that passes a word on to the next. [s]
        stage: beta, a core that handles a message in software and sends it on. [s]
        word: a word on a link, or between a core and its router. [s]
        word_bytes: bytes of a word. [B]
        ramp: between a core and its router, one way. [s]
        launch: starting a message or a product. [s]
        mac: a multiply-add of the matrix engine. [s]
    """

    hop: float
    stage: float
    word: float
    word_bytes: int
    ramp: float
    launch: float
    mac: float
