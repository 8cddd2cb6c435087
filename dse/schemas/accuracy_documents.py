"""Schemas of documents on published and measured rows: `dse validate` and `dse calibrate`."""

from dse.schemas.schema_builders import (
    KIND,
    Schema,
    boolean_schema,
    count_schema,
    enum_schema,
    list_schema,
    map_schema,
    nullable_schema,
    number_schema,
    object_schema,
    pair_schema,
    text_schema,
)

ROLE = enum_schema(["calibration", "check", "report"], "what the row is for")

ROW = {
    "id": text_schema(),
    "where": text_schema("in the publication"),
    "role": ROLE,
    "metric": text_schema(),
    "unit": text_schema("of `published` and `simulated`"),
    "published": text_schema("a number, or a range as LOW..HIGH"),
    "simulated": nullable_schema(number_schema("null where no design of a space is feasible")),
    "error": nullable_schema(number_schema("simulated over published less 1; 0 inside a published range")),
    "note": text_schema(),
    "fits": boolean_schema("whether every limit holds"),
    "kind": object_schema(KIND, "kind of the row"),
    "compares": boolean_schema("whether it is a design's over a baseline's"),
    "order": boolean_schema("whether the published range is so wide that it gives only an order"),
    "seconds": number_schema("s; that it took to simulate"),
    "is_range": boolean_schema("whether the published value is a range"),
    "in_range": boolean_schema("whether it is a range and the simulated value lies inside"),
}
"""Keys of a row that is compared."""

VALIDATE: Schema = object_schema(
    {"files": map_schema(list_schema(object_schema(ROW)), "rows by file")}, "published figures of files against simulated ones"
)

FAILURES = object_schema({"fail": count_schema("rows"), "rows": count_schema("of so many")})

GROUP = object_schema(
    {
        "study": text_schema(),
        "chip": text_schema(),
        "phase": text_schema(),
        "rows": count_schema(),
        "scored": count_schema("calibration and check rows that publish a number"),
        "mean": nullable_schema(number_schema("of absolute relative errors")),
        "p90": nullable_schema(number_schema("likewise")),
        "worst": nullable_schema(number_schema("likewise")),
        "held": count_schema("published ranges with the simulated value inside, of any role"),
        "ranges": count_schema("of so many published ranges"),
        "failures": map_schema(pair_schema(count_schema()), "by role: rows that fail, and rows"),
    }
)

SCORE = object_schema(
    {
        "numbers": count_schema("rows that publish a number and have a simulated value"),
        "median": nullable_schema(number_schema("of their absolute relative errors; null where there are none")),
        "worst": nullable_schema(number_schema("likewise")),
        "held": count_schema("published ranges with the simulated value inside"),
        "ranges": count_schema("of so many published ranges"),
    }
)

CHECKED = object_schema(
    {
        "study": text_schema(),
        **ROW,
        "tolerance": number_schema("of the absolute relative error"),
        "fails": boolean_schema("whether the error is larger than that, or there is no result"),
        "known": text_schema("reason of a known miss; empty if the check is expected to hold"),
    }
)

VALIDATION: Schema = object_schema(
    {
        "physics": count_schema("version of the physics"),
        "residuals_physics": count_schema("version at which the error bands were computed"),
        "scores": map_schema(SCORE, "by role; numbers and ranges apart"),
        "failures": map_schema(FAILURES, "by role"),
        "broken": list_schema(text_schema(), "checks that fail and are no known miss, as STUDY/ID"),
        "groups": list_schema(GROUP, "by study, chip and phase"),
        "slowest": list_schema(text_schema(), "as STUDY/ID"),
        "rows": list_schema(CHECKED),
        "page": text_schema("path of the page"),
    },
    "published figures of studies against simulated ones",
)

VERDICT = enum_schema(["reproduced", "contradicted", "undecidable"], "computed from the simulated values")

PAPER = object_schema(
    {
        "paper": text_schema("name of its file"),
        "title": text_schema(),
        "claims": count_schema(),
        "decided": count_schema("reproduced or contradicted"),
        "reproduced": count_schema(),
        "contradicted": count_schema(),
        "undecidable": count_schema(),
        "fitted": count_schema("reproduced, with constants fitted on their published rows"),
        "numbers": count_schema("decided claims that publish a number and have a simulated value"),
        "median": nullable_schema(number_schema("of their absolute relative errors; null where there are none")),
        "worst": nullable_schema(number_schema("likewise")),
        "held": count_schema("decided claims of a range that are reproduced"),
        "ranges": count_schema("decided claims of a range"),
    }
)

POINT = object_schema(
    {
        "overrides": list_schema(text_schema(), "of this combination of the sweep"),
        "simulated": nullable_schema(number_schema("in the published unit; null where nothing is feasible")),
        "fits": boolean_schema("whether every limit holds"),
        "holds": boolean_schema("whether the claim holds here"),
    }
)

CLAIM = object_schema(
    {
        "paper": text_schema("name of its file"),
        "id": text_schema(),
        "where": text_schema("in the paper"),
        "claim": text_schema("in words"),
        "row": text_schema("published row that the claim is the same as, STUDY/ID; empty for none"),
        "overrides": list_schema(text_schema()),
        "baseline": list_schema(text_schema(), "changes to the overrides, or a whole design; empty for none"),
        "metric": text_schema(),
        "value": text_schema("published: a number, or a range as LOW..HIGH"),
        "unit": text_schema("of `value`, `simulated`, `span` and `reader_value`"),
        "tolerance": nullable_schema(number_schema("of the absolute relative error; null of a range")),
        "reader": list_schema(text_schema(), "overrides of a second model"),
        "missing": text_schema("what the paper leaves out"),
        "sweep": map_schema(list_schema(text_schema()), "values by address"),
        "mechanism": text_schema("why the simulated value differs"),
        "fitted": boolean_schema("whether constants were fitted on the published row"),
        "is_range": boolean_schema("whether the published value is a range"),
        "command": text_schema("that gives this verdict"),
        "verdict": VERDICT,
        "simulated": text_schema("number, LOW..HIGH over the sweep, infeasible, or empty where nothing is simulated"),
        "span": nullable_schema(pair_schema(number_schema(), "least and largest simulated value")),
        "error": nullable_schema(number_schema("relative, of the point nearest to the published value; 0 inside a range")),
        "reader_value": nullable_schema(number_schema("of the second model, at that point")),
        "points": list_schema(POINT, "one without a sweep; none where nothing is simulated"),
        "problem": text_schema("what is wrong with the file in view of the verdict; empty for nothing"),
        "seconds": number_schema("s; that it took to simulate"),
    }
)

CLAIMS: Schema = object_schema(
    {
        "physics": count_schema("version of the physics"),
        "papers": list_schema(PAPER),
        "problems": list_schema(text_schema(), "of contradicted claims: no mechanism, or a second model that disagrees"),
        "claims": list_schema(CLAIM),
        "page": text_schema("path of the page"),
    },
    "claims of papers, each with its verdict",
)

CONSTANT = object_schema(
    {
        "address": text_schema(),
        "unit": text_schema("of the numbers here"),
        "before": number_schema(),
        "after": number_schema(),
        "interval": pair_schema(nullable_schema(number_schema()), "null where rows do not determine it"),
        "range": pair_schema(nullable_schema(number_schema()), "null where an end is open"),
        "determined": text_schema("how well rows determine it, in words"),
    }
)

SPREAD = object_schema(
    {"rows": count_schema(), "median": number_schema(), "p90": number_schema(), "worst": number_schema()},
    "of absolute relative errors",
)

MEASURED_ROW = object_schema(
    {
        "id": text_schema(),
        "role": ROLE,
        "metric": text_schema(),
        "unit": text_schema("of the numbers here"),
        "measured": pair_schema(number_schema(), "from and to"),
        "before": nullable_schema(number_schema("simulated with the constants before; null if there is no result")),
        "after": nullable_schema(number_schema("simulated with the fitted constants")),
    }
)

CALIBRATE: Schema = object_schema(
    {
        "file": text_schema("of rows"),
        "physics": count_schema("version of the physics"),
        "seed": count_schema(),
        "simulations": count_schema("of rows"),
        "overrides": list_schema(text_schema(), "put before those of each row"),
        "constants": list_schema(CONSTANT),
        "errors": map_schema(SPREAD, "by role, before, after and held out"),
        "warnings": list_schema(text_schema()),
        "rows": list_schema(MEASURED_ROW),
    },
    "constants that were fitted to measured rows",
)
