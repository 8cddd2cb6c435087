"""What is said of studies and their designs: `dse list`, `dse explain` and `dse whynot`."""

from dse.schemas.words import (
    FIELD,
    KNOBS,
    MEASURED,
    METRICS,
    WITHOUT_EFFECT,
    Schema,
    closed,
    each,
    flag,
    maybe,
    named,
    number,
    one_of,
    scalar,
    text,
    whole,
)

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

OBJECTIVES = named(one_of(["max", "min"]), "direction by metric")

GAINS = named(maybe(number()), "relative change by objective, as 0.1 for a tenth more; null where nothing says")

SHARES = named(number(), "shares of the time that something is done, by what it is spent on; they add up to 1")

BREAKS = maybe(text("the limits and constraints that it breaks; null where it is feasible"))

STEP = closed(
    {
        "knob": text("address"),
        "from": FIELD,
        "to": FIELD,
        "change": GAINS,
        "elasticity": named(maybe(number()), "relative change of an objective over that of the knob; null where there is none"),
        "feasible": flag(),
        "breaks": BREAKS,
    },
    "a design that differs in one knob",
)

PRICE = closed(
    {
        "constraint": text("a constraint as it is written, or a limit"),
        "unit": text("of `is`, `would_have_to_be` and `relaxation`"),
        "is": number(),
        "would_have_to_be": number("with the smallest relaxation that admits a better design"),
        "relaxation": number("by how much it must give, above 0"),
        "text": text("the same, and what it buys, in a sentence with units"),
        "buys": named(MEASURED, "by how much objectives would be better"),
        "for_each": named(MEASURED, "the same for each unit of relaxation"),
        "design": text("the id of the design that it admits"),
        "knobs": KNOBS,
    },
    "what it would buy to relax a constraint",
)

MOVED = named(closed({"from": FIELD, "to": FIELD}), "changes by address")

NEXT = closed(
    {
        "design": maybe(text("its id; null where it is not of a study")),
        "metrics": named(closed({"here": number(), "there": number(), "unit": text()}), "the cost and the pace"),
        "knobs": MOVED,
    }
)

TIED = named(
    closed({"value": number(), "unit": text(), "follows": text("of what it is made")}), "leaves that follow knobs, by address"
)

ASKED = {
    "knobs": KNOBS,
    "tied": TIED,
    "fidelity": text(),
    "objectives": OBJECTIVES,
    "metrics": METRICS,
    "feasible": flag(),
    "breaks": BREAKS,
}
"""Keys of a design that somebody asks about."""

EXPLAIN: Schema = closed(
    {
        "design": text("its id"),
        "name": text("its id, or what was typed"),
        **ASKED,
        "shares_of_time": SHARES,
        "steps": each(STEP),
        "knobs_that_change_nothing": each(text()),
        "knobs_not_looked_at": each(text(), "for lack of time"),
        "prices_of_constraints": each(PRICE),
        "cheaper_and_slower": maybe(NEXT),
        "dearer_and_faster": maybe(NEXT),
        "without_effect": WITHOUT_EFFECT,
        "looked_among": text("among which designs the last three were looked for"),
    },
    "why a design is as it is: what takes its time, what each knob would do, what constraints cost",
)

ON_THE_FRONT = closed(
    {
        "design": text("its id"),
        "rank": whole("its place on the front by the first objective, from 1; it changes as the study goes on"),
        "knobs": KNOBS,
        "metrics": METRICS,
        "shares_of_time": maybe(SHARES),
        "steps": maybe(each(STEP), "null where there was no time for them"),
    }
)

FRONT: Schema = closed(
    {
        "study": text(),
        "objectives": OBJECTIVES,
        "designs": each(ON_THE_FRONT, "those that no other beats"),
        "prices_of_constraints": each(PRICE),
        "remarks": each(closed({"kind": text(), "what": text(), "text": text()}), "what the study cannot say"),
        "distinct": each(text(), "of designs that errors do not tell apart, one for each: their ids"),
    },
    "the front of a study, what each knob does there, and what constraints cost",
)

RIVAL = closed(
    {
        "design": text("its id"),
        "metrics": METRICS,
        "better_by": GAINS,
        "knobs": MOVED,
        "alike": each(text(), "ids of others with the same objectives, up to a thousandth of each"),
    }
)

HOP = closed(
    {
        "change": text("a knob's address, or what no knob of the study moves"),
        "from": FIELD,
        "to": FIELD,
        "metrics": METRICS,
        "feasible": flag(),
        "breaks": BREAKS,
        "beats_it": flag("whether the design that was asked about is beaten from here on"),
    }
)

WHYNOT: Schema = closed(
    {
        "design": text("its id"),
        "name": text("what was typed, or its id"),
        **ASKED,
        "outside_the_study": named(
            closed({"study": scalar(), "here": scalar()}), "what no knob of the study moves, in SI, by address"
        ),
        "front_designs_that_beat_it": each(RIVAL, "distinct ones, fewest changes first"),
        "front_designs_that_it_beats": each(text(), "their ids"),
        "distance": maybe(number("share by which it would have to be better in every objective; null where unknown")),
        "alone": named(MEASURED, "what each objective alone would have to be"),
        "fewest_changes": maybe(RIVAL, "the stored design that beats it with fewest changes"),
        "path": each(HOP, "to that design, each time the best change next"),
        "not_ordered": each(text(), "changes whose order there was no time for"),
        "without_effect": WITHOUT_EFFECT,
        "stored_designs": whole("that it was compared with"),
    },
    "where a design stands in a study: who beats it, and through which changes",
)


def ran(front: Schema) -> Schema:
    """What a run leaves, with the document that its front is."""
    return closed(
        {
            "name": text("as the other commands take it"),
            "state": text("of the run: done"),
            "results": text("the store: a file, or a URL without its password"),
            "report": text("path of the page"),
            "front": front,
        },
        "a study that ran: where its results and its report are, and its front",
    )
