"""Schemas of documents on studies and designs: `dse list`, `explain`, `constants`, `whynot`."""

from dse.schemas.schema_builders import (
    FIELD,
    KNOBS,
    MEASURED,
    METRICS,
    WITHOUT_EFFECT,
    Schema,
    boolean_schema,
    count_schema,
    enum_schema,
    list_schema,
    map_schema,
    nullable_schema,
    number_schema,
    object_schema,
    scalar_schema,
    text_schema,
)

LISTED = object_schema(
    {
        "name": text_schema("as in dse run study=NAME"),
        "question": text_schema("empty if the study has none, or its file is not here"),
        "defined": boolean_schema("whether the study ships or stands in ./studies; others only ran here"),
        "ran": nullable_schema(
            object_schema(
                {
                    "state": nullable_schema(
                        text_schema("of its last run: running, done, interrupted, failed, killed or lost; null: no run")
                    ),
                    "searched": nullable_schema(
                        count_schema("designs that its last run had searched; null where it does not say")
                    ),
                    "refused": nullable_schema(text_schema("why its results cannot be read; null where they can")),
                }
            ),
            "what is stored of it in ./runs; null where nothing is",
        ),
    }
)

LIST: Schema = object_schema(
    {"studies": list_schema(LISTED)}, "studies that ship or stand in ./studies, and those that ran in this folder"
)

OBJECTIVES = map_schema(enum_schema(["max", "min"]), "direction by metric")

GAINS = map_schema(
    nullable_schema(number_schema()), "relative change by objective, as 0.1 for a tenth more; null where nothing says"
)

SHARES = map_schema(number_schema(), "shares of time by resource; they add up to 1")

BREAKS = nullable_schema(text_schema("limits and constraints that it violates; null if it is feasible"))

STEP = object_schema(
    {
        "knob": text_schema("address"),
        "from": FIELD,
        "to": FIELD,
        "change": GAINS,
        "elasticity": map_schema(
            nullable_schema(number_schema()), "relative change of an objective over that of the knob; null where there is none"
        ),
        "feasible": boolean_schema(),
        "breaks": BREAKS,
    },
    "a design that differs in one knob",
)

LOOSER_BOUND = object_schema(
    {
        "bound": text_schema("setting of the workload"),
        "from": FIELD,
        "to": FIELD,
        "change": GAINS,
        "elasticity": map_schema(number_schema(), "relative change of a metric over that of the bound"),
        "feasible": boolean_schema(),
    },
    "an SLO bound a tenth looser",
)

PRICE = object_schema(
    {
        "constraint": text_schema("a constraint as it is written, or a limit"),
        "unit": text_schema("of `is`, `would_have_to_be` and `relaxation`"),
        "is": number_schema(),
        "would_have_to_be": number_schema("with the smallest relaxation that admits a better design"),
        "relaxation": number_schema("size of the relaxation, above 0"),
        "text": text_schema("the same, and what it buys, in a sentence with units"),
        "buys": map_schema(MEASURED, "by how much objectives would be better"),
        "for_each": map_schema(MEASURED, "the same for each unit of relaxation"),
        "design": text_schema("the id of the design that it admits"),
        "knobs": KNOBS,
    },
    "gain from relaxing a constraint",
)

MOVED = map_schema(object_schema({"from": FIELD, "to": FIELD}), "changes by address")

NEXT = object_schema(
    {
        "design": nullable_schema(text_schema("its id; null where it is not of a study")),
        "metrics": map_schema(
            object_schema({"here": number_schema(), "there": number_schema(), "unit": text_schema()}), "the cost and the pace"
        ),
        "knobs": MOVED,
    }
)

TIED = map_schema(
    object_schema({"value": number_schema(), "unit": text_schema(), "follows": text_schema("of what it is made")}),
    "leaves that follow knobs, by address",
)

ASKED = {
    "knobs": KNOBS,
    "tied": TIED,
    "fidelity": text_schema(),
    "objectives": OBJECTIVES,
    "metrics": METRICS,
    "feasible": boolean_schema(),
    "breaks": BREAKS,
}
"""Keys of a design that somebody asks about."""

EXPLAIN: Schema = object_schema(
    {
        "design": text_schema("its id"),
        "name": text_schema("its id, or what was typed"),
        **ASKED,
        "shares_of_time": SHARES,
        "steps": list_schema(STEP),
        "knobs_that_change_nothing": list_schema(text_schema()),
        "knobs_not_looked_at": list_schema(text_schema(), "for lack of time"),
        "prices_of_constraints": list_schema(PRICE),
        "cheaper_and_slower": nullable_schema(NEXT),
        "dearer_and_faster": nullable_schema(NEXT),
        "without_effect": WITHOUT_EFFECT,
        "looked_among": text_schema("among which designs shadow prices and the next designs were looked for"),
        "beaten_by": nullable_schema(list_schema(text_schema(), "ids of front designs; null where there is no study")),
        "margins_of_constraints": map_schema(number_schema(), "relative distance to each constraint that holds"),
        "shares_of_limits": map_schema(number_schema(), "share of each limit that is used"),
        "looser_bounds": list_schema(LOOSER_BOUND, "SLO bounds of which a tenth more changes something"),
    },
    "explanation of a design: time by resource, effect of each knob, shadow prices",
)

MARGIN = object_schema(
    {
        "constraint": text_schema("as it is written"),
        "value": number_schema("of its metric, in SI"),
        "interval_95": nullable_schema(
            number_schema("half the 95 % interval of the value over streams of as many requests; null where unknown")
        ),
        "sigmas": nullable_schema(
            number_schema("standard errors by which it is kept, below 0 where it is broken; null where unknown or not finite")
        ),
        "verdict": enum_schema(["kept", "within noise", "broken"]),
        "text": text_schema("all of it, with units"),
    },
    "margin of a design to a constraint, against the noise of the sample of requests",
)

SAMPLE = object_schema(
    {
        "rate": nullable_schema(text_schema("the load that all designs have; null for batches and for the maximum rate")),
        "offered_load": nullable_schema(
            object_schema({"least": number_schema(), "most": number_schema()}), "of the front; null where unknown"
        ),
        "load_text": nullable_schema(text_schema("both in a sentence")),
        "within_noise": nullable_schema(
            list_schema(text_schema()), "ids of front designs within noise of a constraint; null where it was not looked at"
        ),
        "noise_text": nullable_schema(text_schema("how many, in a sentence")),
    },
    "load of the front, and noise of its requests",
)

ON_THE_FRONT = object_schema(
    {
        "design": text_schema("its id"),
        "rank": count_schema("its place on the front by the first objective, from 1; it changes as the study goes on"),
        "knobs": KNOBS,
        "metrics": METRICS,
        "shares_of_time": nullable_schema(SHARES),
        "steps": nullable_schema(list_schema(STEP), "null where there was no time for them"),
        "margins": nullable_schema(
            list_schema(MARGIN), "to each constraint; null where there was no time, or one stream of requests"
        ),
    }
)

KIND_ORDER = object_schema(
    {
        "text": text_schema("all of it as text; empty for one kind of chip"),
        "bands": list_schema(
            object_schema(
                {
                    "chip": text_schema(),
                    "kind": text_schema("software stack, or machine without one: chips of a kind share their error"),
                    "low": number_schema("measured over predicted rate"),
                    "high": number_schema("measured over predicted rate"),
                    "source": text_schema("where the band is from"),
                }
            ),
            "of each chip; none if all are of one kind",
        ),
        "carried": list_schema(text_schema(), "objectives that go with rates"),
        "not_distinguished": map_schema(
            list_schema(text_schema()), "by id of a front design, chips of other kinds of which a design may beat it"
        ),
    },
    "order between kinds of chips, within what is known of the rates that they reach",
)

FRONT: Schema = object_schema(
    {
        "study": text_schema(),
        "objectives": OBJECTIVES,
        "designs": list_schema(ON_THE_FRONT, "those that no other beats"),
        "prices_of_constraints": list_schema(PRICE),
        "remarks": list_schema(
            object_schema({"kind": text_schema(), "what": text_schema(), "text": text_schema()}), "caveats of the study"
        ),
        "distinct": list_schema(text_schema(), "of designs that errors do not distinguish, one for each: their ids"),
        "sample": SAMPLE,
        "order": KIND_ORDER,
    },
    "front of a study, effect of each knob there, and shadow prices",
)

TURNING = object_schema(
    {
        "address": text_schema(),
        "chips": list_schema(text_schema(), "of the study that share it; none in a study of one chip"),
        "value": number_schema("in `unit`, on the first of them"),
        "unit": text_schema(),
        "written": text_schema("the value as its file has it"),
        "low": number_schema("end of its range over its value"),
        "high": number_schema("end of its range over its value"),
        "source": text_schema("assumed, fitted, or a key of the sources"),
        "range_of": enum_schema(["constant", "source"], "whether the constant states its range, or its kind of source does"),
        "margin_lost": number_schema("most that the design's margin falls at an end"),
        "turns_at": list_schema(number_schema(), "ends at which the design is off the front by this constant alone"),
    },
    "a constant, moved alone to both ends of its range",
)

CONSTANTS: Schema = object_schema(
    {
        "overrides": text_schema("that name the design"),
        "fidelity": text_schema("of the evaluations"),
        "metrics": METRICS,
        "violates": nullable_schema(text_schema("the limit that the design violates with all constants as they are")),
        "not_moved": list_schema(
            object_schema({"address": text_schema(), "why": text_schema()}), "constants that were not moved, with the reason"
        ),
        "constants": list_schema(
            object_schema(
                {
                    "address": text_schema(),
                    "value": number_schema("in `unit`"),
                    "unit": text_schema(),
                    "written": text_schema("the value as its file has it"),
                    "low": number_schema("end of its range over its value"),
                    "high": number_schema("end of its range over its value"),
                    "source": text_schema("assumed, fitted, or a key of the sources"),
                    "range_of": enum_schema(["constant", "source"], "whether it states its range, or its kind of source does"),
                    "weight": number_schema("largest spread of a metric in the range, over its value"),
                    "metrics": map_schema(
                        object_schema(
                            {
                                "at_low": number_schema("relative change with the constant at the low end"),
                                "at_high": number_schema("relative change with the constant at the high end"),
                                "elasticity": nullable_schema(number_schema("of logarithms, from end to end")),
                            }
                        ),
                        "by metric",
                    ),
                    "violates_at_low": nullable_schema(text_schema("the limit that the design violates there and else keeps")),
                    "violates_at_high": nullable_schema(text_schema("the limit that the design violates there and else keeps")),
                },
                "a constant, moved alone to both ends of its range",
            ),
            "those that make the design violate a limit, then by weight",
        ),
    },
    "weight of the assumed and fitted constants of a design",
)

ROBUST: Schema = object_schema(
    {
        "study": text_schema(),
        "fidelity": text_schema("of the evaluations"),
        "draws": count_schema("of all constants together, the same for all designs"),
        "constants_not_moved": count_schema("constants that were not moved alone, for lack of time"),
        "constants": count_schema("that were drawn"),
        "rivals": count_schema("designs next to the front that took part"),
        "left_out": count_schema("designs of the front that did not take part, since it is large"),
        "designs": list_schema(
            object_schema(
                {
                    "design": text_schema("its id"),
                    "chip": text_schema("empty where there is no name"),
                    "share": number_schema("of the draws in which it is on the front"),
                    "near_share": number_schema("of the draws in which it is on the front or within a hundredth of it"),
                    "margin": number_schema("how much worse all objectives may get before it leaves the front, relative"),
                    "turning": list_schema(TURNING, "the constants that lower its margin most, at most three"),
                    "not_distinguished": list_schema(text_schema(), "chips of other kinds of which a design may beat it"),
                }
            ),
            "of the front, in the order of the report",
        ),
        "order": KIND_ORDER,
    },
    "robustness of a study's front over its assumed and fitted constants",
)

RIVAL = object_schema(
    {
        "design": text_schema("its id"),
        "metrics": METRICS,
        "better_by": GAINS,
        "knobs": MOVED,
        "alike": list_schema(text_schema(), "ids of others with the same objectives, up to a thousandth of each"),
    }
)

HOP = object_schema(
    {
        "change": text_schema("a knob's address, or what no knob of the study moves"),
        "from": FIELD,
        "to": FIELD,
        "metrics": METRICS,
        "feasible": boolean_schema(),
        "breaks": BREAKS,
        "beats_it": boolean_schema("whether the design of the question is dominated from here on"),
    }
)

WHYNOT: Schema = object_schema(
    {
        "design": text_schema("its id"),
        "name": text_schema("what was typed, or its id"),
        **ASKED,
        "outside_the_study": map_schema(
            object_schema({"study": scalar_schema(), "here": scalar_schema()}),
            "settings that no knob of the study moves, in SI, by address",
        ),
        "front_designs_that_beat_it": list_schema(RIVAL, "distinct ones, fewest changes first"),
        "front_designs_that_it_beats": list_schema(text_schema(), "their ids"),
        "distance": nullable_schema(
            number_schema("share by which it would have to be better in every objective; null where unknown")
        ),
        "alone": map_schema(MEASURED, "what each objective alone would have to be"),
        "fewest_changes": nullable_schema(RIVAL, "the stored design that beats it with fewest changes"),
        "path": list_schema(HOP, "to that design, each time the best change next"),
        "not_ordered": list_schema(text_schema(), "changes whose order there was no time for"),
        "certified": nullable_schema(
            object_schema(
                {
                    "ranges": MOVED,
                    "infeasible": nullable_schema(text_schema("why no design of the box is feasible; null if one may be")),
                    "bound": map_schema(MEASURED, "best value of each objective in the box"),
                    "front_design": nullable_schema(text_schema("id of the design of the front that the bound beats least")),
                    "front_metrics": map_schema(MEASURED, "its objectives"),
                    "lead": number_schema(
                        "share by which the bound is better than that design in one objective at most; below 0: worse in all"
                    ),
                }
            ),
            "what the certificate of the front proves of the design's box; null without a certificate",
        ),
        "without_effect": WITHOUT_EFFECT,
        "stored_designs": count_schema("that it was compared with"),
    },
    "position of a design in a study: designs that beat it, and through which changes",
)


def run_schema(front: Schema) -> Schema:
    """Schema of a run's result, with the document of its front."""
    return object_schema(
        {
            "name": text_schema("as the other commands take it"),
            "state": text_schema("of the run: done"),
            "results": text_schema("the store: a file, or a URL without its password"),
            "report": text_schema("path of the page"),
            "front": front,
        },
        "a study that ran: where its results and its report are, and its front",
    )
