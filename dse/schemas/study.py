"""What is said of studies and their designs: `dse list`, `dse explain` and `dse whynot`."""

from dse.schemas.words import Schema, closed, each, flag, maybe, text, whole

LISTED = closed(
    {
        "name": text("as in dse run study=NAME"),
        "question": text("empty where nobody wrote one, or the study's file is not here"),
        "defined": flag("whether the study ships or stands in ./studies; others only ran here"),
        "ran": maybe(
            closed(
                {
                    "state": maybe(text("of its last run: running, done, interrupted, failed, killed or lost; null: no run")),
                    "searched": maybe(whole("designs that its last run had searched; null where it does not say")),
                    "refused": maybe(text("why its results cannot be read; null where they can")),
                }
            ),
            "what is stored of it in ./runs; null where nothing is",
        ),
    }
)

LIST: Schema = closed({"studies": each(LISTED)}, "studies that ship or stand in ./studies, and those that ran in this folder")
