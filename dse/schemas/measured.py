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
        "scored": whole("calibration and check rows that have a figure"),
        "mean": maybe(number("of absolute relative errors")),
        "p90": maybe(number("likewise")),
        "worst": maybe(number("likewise")),
        "failures": named(pair(whole()), "by role: rows that fail, and rows"),
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
        "failures": named(FAILURES, "by role"),
        "broken": each(text(), "checks that are said to hold and do not, as STUDY/ID"),
        "groups": each(GROUP, "by study, chip and phase"),
        "slowest": each(text(), "as STUDY/ID"),
        "rows": each(CHECKED),
        "page": text("path of the page"),
    },
    "published figures of studies against simulated ones",
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
