"""Peaks by number format are rates of cores: of all cores or of one, typed or in files, and old leaves too."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.analysis.evaluation import evaluate_config
from dse.commands.evaluate_output import evaluation_record
from dse.config.compose import compose
from dse.config.peaks import convert_peaks_to_core_rates
from dse.space.design import design_key
from dse.space.errors import DesignError
from dse.space.number_formats import FORMATS, relative_rate
from dse.space.peaks import format_peaks, peaks
from dse.space.units import parse_quantity
from tests.samples import asked

FOLDER = Path(__file__).resolve().parents[2] / "conf/chip"

NARROW = ("fp8", "int8", "mxfp8", "mxfp4", "nvfp4")
UNITS = ("Tflop/s", "TFLOP/s", "TFLOPS", "Top/s", "TOPS")

SHEETS = st.dictionaries(
    st.sampled_from(("fp16", "fp32", *NARROW)), st.integers(1, 9999).map(lambda value: value / 2), min_size=1
)


def core_of(peak=None, *, cores=132, core=None, typed=()):
    """The core of a chip that says peaks of all its cores."""
    chip = {"cores": {"value": cores}, "core": core or {"vector": "1 Gop/s"}} | ({} if peak is None else {"peak": peak})
    return convert_peaks_to_core_rates({"chip": chip, "space": {}}, typed)["chip"]["core"]


def value(matrix):
    return matrix["value"] if isinstance(matrix, dict) else matrix


@given(SHEETS, st.integers(1, 500), st.sampled_from(UNITS))
def test_a_data_sheet_comes_out_as_it_was_entered(sheet, cores, unit):
    core = core_of({name: f"{peak} {unit}" for name, peak in sheet.items()}, cores=cores)
    wide = parse_quantity(value(core["matrix"]), "op/s") / 2
    rates = {name: value(rate) for name, rate in (core["rates"] or {}).items()}
    for name, peak in sheet.items():
        times = 1.0 if name == "fp16" else rates[name]
        assert cores * wide * times == pytest.approx(peak * 1e12, rel=1e-10)


@given(SHEETS)
def test_formats_that_are_not_said_follow_from_those_that_are(sheet):
    core = core_of({name: f"{peak} Tflop/s" for name, peak in sheet.items()}, cores=1)
    wide = parse_quantity(value(core["matrix"]), "op/s") / 2e12
    if "fp16" not in sheet:
        widest = max(sheet, key=lambda name: FORMATS[name].bits)
        assert wide == pytest.approx(sheet[widest] * FORMATS[widest].bits / 16)
    narrow = sheet.keys() & set(NARROW)
    rates = core["rates"] or {"int8": 2.0, "fp8": 2.0}
    assert rates.keys() - {"fp32"} == (narrow or {"int8", "fp8"})


@pytest.mark.parametrize("chip", ["a100", "h100", "b200", "mi250x", "tpu_v5p"])
def test_a_preset_is_its_data_sheet_in_both_forms(chip):
    """Keys and peaks of a preset, of its old leaves over it, and of its peaks of all cores over it, are the same."""
    base = asked(f"chip={chip}").base
    core, rates = base.chip.core, base.chip.core.rates
    old = [f"chip.core.matrix='{core.matrix!r} op/s'"]
    old += [f"chip.core.rates.{name}={getattr(rates, name)}" for name in NARROW if getattr(rates, name)]
    assert design_key(asked(f"chip={chip}", *old).base) == design_key(base)
    found_peaks = peaks(base.chip)
    whole = [f"chip.peak.{name}='{found_peaks[name] / 1e12!r} Tflop/s'" for name in found_peaks if name != "fp32"]
    again = peaks(asked(f"chip={chip}", *whole).base.chip)
    assert again == pytest.approx(found_peaks, rel=1e-11)
    assert found_peaks["fp16"] == base.chip.cores * core.matrix / 2
    assert all(found_peaks[name] == found_peaks["fp16"] * relative_rate(name, rates) for name in found_peaks)


@given(st.floats(1.0, 50.0).map(lambda value: round(value, 3)), st.floats(0.5, 4.0).map(lambda value: round(value, 2)))
@settings(max_examples=5, deadline=None)
def test_what_is_typed_counts_over_files_whichever_form_it_has(tera, times):
    """A rate over 16 bits is kept where twice the 16-bit peak moves, a peak of its own where the 16-bit peak does."""
    usual = asked("chip=h100").base.chip.core
    matrix = asked("chip=h100", f"chip.core.matrix={tera}Top/s").base.chip.core
    assert (matrix.matrix, matrix.rates) == (parse_quantity(f"{tera}Top/s", "op/s"), usual.rates)
    both = asked("chip=h100", f"chip.core.matrix={tera}Top/s", f"chip.core.rates.fp8={times}").base.chip.core
    assert (both.matrix, both.rates.fp8, both.rates.int8) == (matrix.matrix, times, usual.rates.int8)
    peak = asked("chip=h100", f"chip.core.peak.fp16='{tera} TFLOPS'").base.chip.core
    assert peak.matrix == 2 * parse_quantity(f"{tera} TFLOPS", "op/s")
    assert peak.matrix * peak.rates.fp8 == pytest.approx(usual.matrix * usual.rates.fp8)


@pytest.mark.parametrize("chip", ["npu_dse", "b200", "a100"])
@pytest.mark.parametrize("name", ["fp16", "int8"])
def test_a_data_sheet_over_a_preset_keeps_rates_over_16_bits(chip, name):
    """A file that says one format over a preset, and the same typed: no format stays what another chip had."""
    base = compose([f"chip={chip}"])
    usual = peaks(asked(f"chip={chip}").base.chip)
    times = FORMATS[name].bits / 16  # of int8 the 16-bit peak follows, where a file says it
    filed = convert_peaks_to_core_rates(compose_over(chip, {name: "1000 TFLOPS"}), ())["chip"]["core"]
    assert parse_quantity(value(filed["matrix"]), "op/s") == pytest.approx(
        2e15 * times / base["chip"]["cores"]["value"], rel=1e-10
    )
    core = asked(f"chip={chip}").base.chip.core
    for format_name, rate in filed["rates"].items():
        assert value(rate) == pytest.approx(1 / times if format_name == name else getattr(core.rates, format_name))
    if name == "fp16":
        typed = peaks(asked(f"chip={chip}", "chip.peak.fp16='1000 TFLOPS'").base.chip)
        assert {format_name: peak / 1e15 for format_name, peak in typed.items()} == pytest.approx(
            {format_name: peak / usual["fp16"] for format_name, peak in usual.items()}
        )


def compose_over(chip, peak):
    """A preset's file with peaks of all cores over it."""
    file = yaml.safe_load((FOLDER / f"{chip}.yaml").read_text())
    return {"chip": {**file, "peak": peak}, "space": {}}


def test_a_chip_by_its_data_sheet_is_answered_in_its_terms():
    """The H100's 16-bit peak, not half of it, whichever way it is entered; what was set is said as it was typed."""
    question = ("model=llama3_8b", "workload.batch=[1]", "workload.prompt=64", "workload.output=8", "mapping.both.tp=1")
    sheet = evaluate_config(compose(["chip=h100", "chip.peak.fp16='989 Tflop/s'", "chip.peak.fp8='1979 TFLOPS'", *question]))
    assert evaluation_record(sheet).peaks["fp16"] == pytest.approx(989e12, rel=1e-10)
    assert evaluation_record(sheet).peaks["fp8"] == pytest.approx(1979e12, rel=1e-10)
    about = dict(sheet.facts())
    assert re.match(r"fp32 494.5 Tflop/s, fp16 989 Tflop/s, fp8 1.979 Pflop/s, int8 1.978 Pop/s$", about["peak"])
    assert "chip.peak.fp16=989 Tflop/s" in about["chip"]
    old = evaluate_config(compose(["chip=h100", "chip.core.matrix=15Top/s", *question]))
    assert "fp16 990 Tflop/s" in dict(old.facts())["peak"]
    assert format_peaks(asked("chip=tile32").base.chip).startswith("fp16 1.012 Pflop/s")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("chip=h100", "chip.peak.fp4='1 Pflop/s'"), "chip.peak: no format 'fp4'; set mxfp4 or nvfp4"),
        (("chip=h100", "chip.peak.fp15='1 Pflop/s'"), "chip.peak: no format 'fp15'; did you mean 'fp16'?"),
        (("chip=h100", "chip.peak={fp16: 1 Pflop/s, bf16: 2 Pflop/s}"), "chip.peak: fp16 1 Pflop/s and bf16 2 Pflop/s"),
        (("chip=h100", "chip.peak.fp16='1 PB/s'"), "chip.peak.fp16: '1 PB/s' is a quantity of PB / s, expected one of op/s"),
        (("chip=h100", "chip.peak.fp16='0 Tflop/s'"), "chip.peak.fp16: must be above 0"),
        (("chip=wse2", "+chip.peak.fp16='1 Pflop/s'"), "chip.peak: engines of a mesh have no rates"),
        (("chip=h100", "+space.chip.peak.fp16='choice(1,2)'"), "space.chip.peak.fp16: a knob moves chip.core.matrix"),
    ],
)
def test_what_is_no_peak_is_refused_with_what_to_set(words, message):
    with pytest.raises(DesignError, match=re.escape(message)):
        asked(*words)
