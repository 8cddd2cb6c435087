"""Peak rates of a chip's engines by number format, converted to rates of one core.

A chip states them for all its cores (``chip.peak``) or for one (``chip.core.peak``). A design keeps ``chip.core.matrix``, twice
the 16-bit peak of a core, and ``chip.core.rates``, formats over 16 bits; both may be set instead of peaks.

Formats without a peak follow from those with one: bf16 is fp16; 16 bits are the widest given format, times its bits over 16;
fp32 is half of 16 bits; int8 and fp8 are twice 16 bits if no narrower format is given. If a narrower one is given, the other
formats are dequantised on the vector engine. If a 16-bit peak of all cores replaces that of another file, formats of that file
keep their rate over 16 bits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from dse.config.record_parser import parse_value
from dse.config.renamed_addresses import overridden_leaves as said_by
from dse.space.aliases import is_at_or_below
from dse.space.errors import DesignError, suggest_nearest
from dse.space.number_formats import BLOCK_SCALED_FORMATS, FORMATS, HALF_RATE, FormatRates

WHOLE, CORE, MATRIX, RATES = "chip.peak", "chip.core.peak", "chip.core.matrix", "chip.core.rates"

VECTOR = "vector"
"""What vector engines reach on 16-bit values stands beside the formats of matrix engines."""

RATED = tuple(field.name for field in fields(FormatRates))
"""Formats that have a rate of their own over that of 16 bits."""

WIDE = ("fp16", "bf16")
"""Names of the 16-bit formats, which engines multiply alike."""

NAMES = (*WIDE, *RATED, VECTOR)

ADDRESSES = (
    MATRIX,
    RATES,
    WHOLE,
    CORE,
    *(f"{group}.{name}" for group in (WHOLE, CORE) for name in NAMES),
    *(f"{RATES}.{name}" for name in RATED),
)
"""Addresses of which a file may have others than those that somebody types."""

DIGITS = 12
"""Of a core's part of what all cores reach: more than any data sheet has, and few enough that halves and tenths are exact."""


RANK_OF_MATRIX, RANK_OF_RATES, RANK_OF_SHEET = 1, 2, 3
"""Of entries of files, after peaks of a core: which count over which."""


class PeakEntry(NamedTuple):
    """Peak rate of one format, or of 16 bits with rates of other formats over it.

    Attributes:
        typed: whether an override says it, not a file.
        rank: of entries of files, later ones count over earlier ones: peaks of a core, rates over 16 bits, peaks of all cores.
        address: of the entry.
        name: the format; "" for `MATRIX`.
        said: value, or constant with its source.
    """

    typed: bool
    rank: int
    address: str
    name: str
    said: Any


def convert_peaks_to_core_rates(config: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """A composed configuration with rates of one core in place of peaks.

    Args:
        config: with its chip and its space as plain values.
        words: overrides that were typed; they count over what files say.

    Raises:
        DesignError: an unknown format, or one that is set twice; a chip whose engines have no rates; a knob on peaks.
    """
    _refuse_knobs(config.get("space"))
    whole = config.get("chip")
    core = whole.get("core") if isinstance(whole, Mapping) else None
    peaks = [group.get("peak") for group in (whole, core) if isinstance(group, Mapping)]
    if not isinstance(whole, Mapping) or all(peak is None for peak in peaks):
        return dict(config)
    if not isinstance(core, Mapping) or any(whole.get(part) is not None for part in ("mesh", "tile")):
        raise DesignError(
            f"{WHOLE}: engines of a mesh have no rates; set their sides and the clock (chip.tile.matrix, chip.core.mac), and "
            "leave peaks out"
        )
    own = {name: value for name, value in core.items() if name not in ("peak", "matrix", "rates")}
    own |= _of_core(_peak_entries(whole, core, said_by(words, ADDRESSES)), whole)
    return {**config, "chip": {**{name: value for name, value in whole.items() if name != "peak"}, "core": own}}


def _refuse_knobs(space: Any) -> None:
    for address in space if isinstance(space, Mapping) else ():
        if is_at_or_below(address, WHOLE) or is_at_or_below(address, CORE):
            raise DesignError(
                f"space.{address}: a knob moves {MATRIX}, twice the 16-bit peak of a core, and {RATES}, formats over 16 bits; "
                f"set space.{MATRIX}"
            )


def _peak_entries(chip: Mapping[str, Any], core: Mapping[str, Any], typed: set[str]) -> list[PeakEntry]:
    """What files and overrides say of peaks, in the order in which one counts over another."""

    def list_entries() -> Iterator[tuple[int, str, str, Any]]:
        yield from ((0, f"{CORE}.{name}", name, value) for name, value in _format_peaks(core.get("peak"), CORE))
        if core.get("matrix") is not None:
            yield RANK_OF_MATRIX, MATRIX, "", core["matrix"]
        if "rates" in core and core["rates"] is None:
            yield RANK_OF_RATES, RATES, "", None
        yield from ((RANK_OF_RATES, f"{RATES}.{name}", name, value) for name, value in (core.get("rates") or {}).items())
        sheet = _format_peaks(chip.get("peak"), WHOLE)
        yield from ((RANK_OF_SHEET, f"{WHOLE}.{name}", name, value) for name, value in (*_implied_peak(sheet, typed), *sheet))

    entries = [
        PeakEntry(
            any(is_at_or_below(word, address) or is_at_or_below(address, word) for word in typed), rank, address, name, value
        )
        for rank, address, name, value in list_entries()
    ]
    other_entries = (entry for entry in entries if entry.said is not None or entry.address == RATES)
    return sorted(other_entries, key=lambda entry: (entry.typed, entry.rank, entry.name not in WIDE))


def _implied_peak(sheet: list[tuple[str, Any]], typed: set[str]) -> list[tuple[str, Any]]:
    """The 16-bit peak of a file's data sheet that says none, after its widest format; nothing of one that is typed."""
    formats = {name: entry for name, entry in sheet if name != VECTOR and entry is not None}
    if not formats or formats.keys() & {*WIDE} or any(is_at_or_below(word, WHOLE) for word in typed):
        return []
    widest = max(formats, key=lambda name: FORMATS[name].bits)
    entry = formats[widest]
    value = parse_value(_plain_value(entry), "op/s", f"{WHOLE}.{widest}") * FORMATS[widest].bits / FORMATS["fp16"].bits
    return [("fp16", {**(entry if isinstance(entry, Mapping) else {"source": "override"}), "value": f"{value!r} op/s"})]


def _format_peaks(peaks: Any, address: str) -> list[tuple[str, Any]]:
    """Peaks by format."""
    if peaks is None:
        return []
    if not isinstance(peaks, Mapping):
        raise DesignError(f"{address}: {peaks!r} is not a group of formats; write one by one, {address}.fp16='989 Tflop/s'")
    for name in peaks:
        if name in NAMES:
            continue
        if blocks := [name for name in BLOCK_SCALED_FORMATS.get(str(name), ()) if FORMATS[name].engine]:
            raise DesignError(f"{address}: no format {name!r}; set {' or '.join(dict.fromkeys(blocks))}")
        raise DesignError(f"{address}: no format {name!r}; {suggest_nearest(str(name), NAMES)}")
    fp16, bf16 = (_plain_value(peaks.get(name)) for name in WIDE)
    if None not in (fp16, bf16) and fp16 != bf16:
        raise DesignError(f"{address}: fp16 {fp16} and bf16 {bf16}; engines here have one rate for both, set one of them")
    return list(peaks.items())


def _of_core(entries: Sequence[PeakEntry], chip: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of a core: of its matrix and vector engines, and rates of formats."""
    peaks: dict[str, float] = {}
    given_entries: dict[str, PeakEntry] = {}
    notes: dict[str, Any] = {}
    for entry in entries:
        name = "fp16" if entry.name in ("", *WIDE) else entry.name
        if entry.address == RATES:  # as if nothing narrower than 16 bits were said
            peaks = {wide: peaks[wide] for wide in ("fp16", VECTOR) if wide in peaks}
        elif entry.address == MATRIX and isinstance(entry.said, Mapping) and "value" not in entry.said:
            notes = dict(entry.said)
        else:
            before = peaks.get(name)
            peaks[name], given_entries[name] = _core_peak(entry, peaks, chip), entry
            if name == "fp16" and entry.rank in (RANK_OF_MATRIX, RANK_OF_SHEET) and before:  # rates over 16 bits stay
                times = peaks[name] / before
                peaks |= {other: value * times for other, value in peaks.items() if other not in (name, VECTOR)}
    wide = _wide_peak(peaks)
    rates = {name: _core_constant(given_entries[name], "1", peaks[name] / wide) for name in RATED if name in peaks}
    if rates.keys() == {"fp32"}:
        rates |= dict.fromkeys(("int8", "fp8"), 1 / HALF_RATE)
    matrix = _core_constant(given_entries["fp16"], "op/s", 2 * wide) if "fp16" in given_entries else _exact_text(2 * wide)
    engines = {"matrix": {**(matrix if isinstance(matrix, Mapping) else {"value": matrix}), **notes} if notes else matrix}
    vector = {VECTOR: _core_constant(given_entries[VECTOR], "op/s", peaks[VECTOR])} if VECTOR in peaks else {}
    return {**engines, "rates": rates or None, **vector}


def _core_peak(entry: PeakEntry, peaks: Mapping[str, float], chip: Mapping[str, Any]) -> float:
    """Peak of a core that an entry says. [op/s]"""
    value = parse_value(_plain_value(entry.said), "1" if entry.rank == RANK_OF_RATES else "op/s", entry.address)
    if not value > 0:
        raise DesignError(f"{entry.address}: must be above 0")
    if entry.address == MATRIX:
        return value / 2
    if entry.rank == RANK_OF_RATES:
        return value * _wide_peak(peaks)
    return float(f"{value / _core_count(chip):.{DIGITS}g}") if is_at_or_below(entry.address, WHOLE) else value


def _wide_peak(peaks: Mapping[str, float]) -> float:
    """The 16-bit peak: as it is said, or of the widest format that is said."""
    if "fp16" in peaks:
        return peaks["fp16"]
    formats = [name for name in peaks if name != VECTOR]
    if not formats:
        raise DesignError(f"{WHOLE}: no format; set the 16-bit peak, {WHOLE}.fp16='989 Tflop/s'")
    widest = max(formats, key=lambda name: FORMATS[name].bits)
    return peaks[widest] * FORMATS[widest].bits / FORMATS["fp16"].bits


def _core_constant(entry: PeakEntry, unit: str, value: float) -> Any:
    """A constant of a core: as it was said, where that is of this kind, or its value with the source of what was said."""
    if entry.address in (MATRIX, f"{CORE}.{VECTOR}") or (entry.rank == RANK_OF_RATES and unit == "1"):
        return entry.said
    text = float(f"{value:.{DIGITS}g}") if unit == "1" else _exact_text(value)
    if isinstance(entry.said, Mapping):
        return {**entry.said, "value": text}
    return {
        "value": text,
        "source": "override",
        "note": f"{entry.address}={entry.said}",
    }  # which an answer says of what was set


def _exact_text(value: float) -> str:
    """A rate as a quantity that is read as this very number."""
    short = f"{value / 1e12:.{DIGITS}g} Top/s"
    return short if parse_value(short, "op/s", WHOLE) == value else f"{value!r} op/s"


def _core_count(chip: Mapping[str, Any]) -> float:
    if chip.get("cores") is None:
        raise DesignError(f"{WHOLE}: is the peak of all cores together; set chip.cores too, or {CORE} for one core")
    return parse_value(_plain_value(chip["cores"]), "1", "chip.cores")


def _plain_value(peak: Any) -> Any:
    return peak.get("value") if isinstance(peak, Mapping) else peak
