"""What is said of published and measured rows: `dse validate` and `dse calibrate`."""

from dse.schemas.words import KIND, Schema, closed, each, flag, maybe, named, number, one_of, pair, text, whole

ROLE = one_of(["calibration", "check", "report"], "what the row is for")

ROW = {
    "id": text(),
    "where": text("in the publication"),
    "role": ROLE,
    "metric": text(),
    "unit": text("of `published` and `simulated`"),
    "published": text("a number, or a range as LOW..HIGH"),
    "simulated": maybe(number("null where no design of a space is feasible")),
    "error": maybe(number("simulated over published less 1; 0 inside a published range")),
    "note": text(),
    "fits": flag("whether every limit holds"),
    "kind": closed(KIND, "what the row is a figure of"),
    "compares": flag("whether it is a design's over a baseline's"),
    "order": flag("whether the published range is so wide that it says an order, no figure"),
    "seconds": number("s; that it took to simulate"),
    "is_range": flag("whether the published value is a range"),
    "in_range": flag("whether it is a range and the simulated value lies inside"),
}
"""Keys of a row that is compared."""

VALIDATE: Schema = closed(
    {"files": named(each(closed(ROW)), "rows by file")}, "published figures of files against simulated ones"
)

FAILURES = closed({"fail": whole("rows"), "rows": whole("of so many")})

GROUP = closed(
    {
        "study": text(),
        "chip": text(),
        "phase": text(),
        "rows": whole(),
        "scored": whole("calibration and check rows that publish a number"),
        "mean": maybe(number("of absolute relative errors")),
        "p90": maybe(number("likewise")),
        "worst": maybe(number("likewise")),
        "held": whole("published ranges with the simulated value inside, of any role"),
        "ranges": whole("of so many published ranges"),
        "failures": named(pair(whole()), "by role: rows that fail, and rows"),
    }
)

SCORE = closed(
    {
        "numbers": whole("rows that publish a number and have a simulated value"),
        "median": maybe(number("of their absolute relative errors; null where there are none")),
        "worst": maybe(number("likewise")),
        "held": whole("published ranges with the simulated value inside"),
        "ranges": whole("of so many published ranges"),
    }
)

CHECKED = closed(
    {
        "study": text(),
        **ROW,
        "tolerance": number("of the absolute relative error"),
        "fails": flag("whether it is further off than that, or nothing comes out"),
        "known": text("why it is known not to hold; empty where it is said to hold"),
    }
)

VALIDATION: Schema = closed(
    {
        "physics": whole("version of the physics"),
        "residuals_physics": whole("version that the bands of answers were made with"),
        "scores": named(SCORE, "by role; numbers and ranges apart"),
        "failures": named(FAILURES, "by role"),
        "broken": each(text(), "checks that are said to hold and do not, as STUDY/ID"),
        "groups": each(GROUP, "by study, chip and phase"),
        "slowest": each(text(), "as STUDY/ID"),
        "rows": each(CHECKED),
        "page": text("path of the page"),
    },
    "published figures of studies against simulated ones",
)

VERDICT = one_of(["reproduced", "contradicted", "undecidable"], "computed from the simulated values")

PAPER = closed(
    {
        "paper": text("name of its file"),
        "title": text(),
        "claims": whole(),
        "decided": whole("reproduced or contradicted"),
        "reproduced": whole(),
        "contradicted": whole(),
        "undecidable": whole(),
        "fitted": whole("reproduced, with constants fitted on their published rows"),
        "numbers": whole("decided claims that publish a number and have a simulated value"),
        "median": maybe(number("of their absolute relative errors; null where there are none")),
        "worst": maybe(number("likewise")),
        "held": whole("decided claims of a range that are reproduced"),
        "ranges": whole("decided claims of a range"),
    }
)

POINT = closed(
    {
        "overrides": each(text(), "of this combination of the sweep"),
        "simulated": maybe(number("in the published unit; null where nothing is feasible")),
        "fits": flag("whether every limit holds"),
        "holds": flag("whether the claim holds here"),
    }
)

CLAIM = closed(
    {
        "paper": text("name of its file"),
        "id": text(),
        "where": text("in the paper"),
        "claim": text("in words"),
        "row": text("published row that the claim is the same as, STUDY/ID; empty for none"),
        "overrides": each(text()),
        "baseline": each(text(), "changes to the overrides, or a whole design; empty for none"),
        "metric": text(),
        "value": text("published: a number, or a range as LOW..HIGH"),
        "unit": text("of `value`, `simulated`, `span` and `reader_value`"),
        "tolerance": maybe(number("of the absolute relative error; null of a range")),
        "reader": each(text(), "overrides of a second model"),
        "missing": text("what the paper leaves out"),
        "sweep": named(each(text()), "values by address"),
        "mechanism": text("why the simulated value differs"),
        "fitted": flag("whether constants were fitted on the published row"),
        "is_range": flag("whether the published value is a range"),
        "command": text("that gives this verdict"),
        "verdict": VERDICT,
        "simulated": text("number, LOW..HIGH over the sweep, infeasible, or empty where nothing is simulated"),
        "span": maybe(pair(number(), "least and largest simulated value")),
        "error": maybe(number("relative, of the point nearest to the published value; 0 inside a range")),
        "reader_value": maybe(number("of the second model, at that point")),
        "points": each(POINT, "one without a sweep; none where nothing is simulated"),
        "problem": text("what is wrong with the file in view of the verdict; empty for nothing"),
        "seconds": number("s; that it took to simulate"),
    }
)

CLAIMS: Schema = closed(
    {
        "physics": whole("version of the physics"),
        "papers": each(PAPER),
        "problems": each(text(), "of contradicted claims: no mechanism, or a second model that disagrees"),
        "claims": each(CLAIM),
        "page": text("path of the page"),
    },
    "claims of papers, each with its verdict",
)

CONSTANT = closed(
    {
        "address": text(),
        "unit": text("of the numbers here"),
        "before": number(),
        "after": number(),
        "interval": pair(maybe(number()), "null where rows do not determine it"),
        "range": pair(maybe(number()), "null where an end is open"),
        "determined": text("how well rows determine it, in words"),
    }
)

SPREAD = closed({"rows": whole(), "median": number(), "p90": number(), "worst": number()}, "of absolute relative errors")

MEASURED_ROW = closed(
    {
        "id": text(),
        "role": ROLE,
        "metric": text(),
        "unit": text("of the numbers here"),
        "measured": pair(number(), "from and to"),
        "before": maybe(number("simulated with the constants as they were; null where nothing comes out")),
        "after": maybe(number("simulated with the constants as they came out")),
    }
)

CALIBRATE: Schema = closed(
    {
        "file": text("of rows"),
        "physics": whole("version of the physics"),
        "seed": whole(),
        "simulations": whole("of rows"),
        "overrides": each(text(), "put before those of each row"),
        "constants": each(CONSTANT),
        "errors": named(SPREAD, "by role, before, after and held out"),
        "warnings": each(text()),
        "rows": each(MEASURED_ROW),
    },
    "constants that were fitted to measured rows",
)
