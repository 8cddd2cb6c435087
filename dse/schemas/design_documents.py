"""Schemas of documents on designs: `dse evaluate`, `dse compare`, `dse capacity` and `dse fleet`."""

from dse.schemas.schema_builders import (
    KIND,
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

SECONDS = map_schema(number_schema("s"), "seconds by resource")

HELD = object_schema(
    {
        "of": text_schema("whose memory it is: instance, prefill instance or decode instance"),
        "blocks": count_schema("that mapping.serving.kv_blocks says"),
        "blocks_of_memory": count_schema("that its devices have room for"),
        "tokens": count_schema("for which the blocks are, of requests that keep all positions"),
        "tokens_of_memory": count_schema("the same of the room"),
    }
)

OF_CLASS = object_schema(
    {
        "class": text_schema("its name"),
        "requests": count_schema("of it"),
        "slo_attainment": nullable_schema(
            number_schema("share of them within the bounds of the class; null where there are none")
        ),
        "goodput_hz": nullable_schema(number_schema("requests/s; those that are, over the time of all")),
        "ttft_s": nullable_schema(number_schema("s; mean time to first token")),
        "ttft_p90_s": nullable_schema(number_schema("s; that 90 % of them keep")),
        "tpot_s": nullable_schema(number_schema("s; mean over requests; null where none has two tokens")),
    }
)

OF_TURN = object_schema(
    {
        "turn": text_schema("places in a session, from 1: 1, 2, 3-4, 5-8 and so on"),
        "requests": count_schema("of them"),
        "prompt_tokens": number_schema("mean prompt length: earlier turns and new tokens"),
        "prefix_hit_rate": number_schema("share of these that was taken from caches"),
        "ttft_s": nullable_schema(number_schema("s; mean time to first token")),
        "ttft_p90_s": nullable_schema(number_schema("s; that 90 % of them keep")),
        "tpot_s": nullable_schema(number_schema("s; mean over requests; null where none has two tokens")),
        "latency_s": nullable_schema(number_schema("s; mean time from the arrival of a turn to its last token")),
    }
)

TRACE = object_schema(
    {
        "file": text_schema("its name"),
        "part": text_schema("which of its requests, and what was done to them, in words"),
        "times": enum_schema(["replayed", "scaled", "drawn"], "whether arrivals are those of the file"),
        "process": nullable_schema(text_schema("that times are drawn from; null where they are the file's")),
    },
    "what a served load has of its trace; null where requests are from no file",
)

UNLOADED = object_schema(
    {
        "ttft_s": nullable_schema(number_schema("s; to the first token")),
        "tpot_s": nullable_schema(number_schema("s; a token; null where no request has two")),
    },
    "where no rate keeps the bounds: what the share of the requests that must keep them takes where none meets another",
)

MAX_RATE = object_schema(
    {
        "max_rate_hz": number_schema("requests/s; the largest that lasts, or at which a replayed trace keeps its bounds"),
        "max_rate_range_hz": nullable_schema(
            list_schema(number_schema("requests/s"), "of single seeds, the least and the most; null of one stream")
        ),
        "requests": count_schema("of each stream"),
        "seed": count_schema("of the stream that confirms it"),
        "lasts": boolean_schema("whether the streams are long enough for queues to settle"),
        "breaks_beyond": text_schema("SLOs that are missed a little above that rate, or saturation"),
        "note": nullable_schema(text_schema("why it need not last; null where it does")),
    },
    "of workload.rate=max: the maximum rate, as in the answer of dse capacity",
)

CASE = object_schema(
    {
        "case": text_schema("the case as text"),
        "feasible": boolean_schema("whether every limit holds"),
        "metrics": METRICS,
        "rows_skipped": count_schema(
            "of a served load: rows of its trace that workload.skip passed over; absent of other cases"
        ),
        "trace": nullable_schema(TRACE),
        "kv_memory": list_schema(HELD, "of a served load: by pool, if mapping.serving.kv_blocks is set; absent of other cases"),
        "unloaded": nullable_schema(UNLOADED),
        "classes": list_schema(
            OF_CLASS, "of a served load: what requests of each of workload.slo_classes got; absent of other cases"
        ),
        "turns": list_schema(OF_TURN, "of a served load of sessions: what turns got, by their places; absent of other cases"),
        "max_rate": MAX_RATE,
    },
    optional=["rows_skipped", "trace", "kv_memory", "unloaded", "classes", "turns", "max_rate"],
)

MODEL = object_schema(
    {
        "name": text_schema(),
        "parameters": number_schema("all of them"),
        "active_parameters": number_schema("those that one token meets"),
        "kv_values_per_token": number_schema("values that are cached for each token"),
        "kv_tokens_until_full": nullable_schema(
            count_schema("tokens of a sequence up to which that is so, where all layers have windows")
        ),
        "kv_values_per_sequence": number_schema("values that are cached for each sequence, however long"),
        "state_bytes_per_sequence": number_schema("B; recurrent states of a sequence"),
    }
)

BAND = object_schema(
    {
        "metric": text_schema(),
        "value": nullable_schema(number_schema("of this answer, in `unit`")),
        "unit": text_schema("of `value` and `measured`"),
        **KIND,
        "low": nullable_schema(number_schema("simulated over measured less 1, the lower end of rows of this kind")),
        "high": nullable_schema(number_schema("the same, the upper end")),
        "measured": nullable_schema(
            list_schema(nullable_schema(number_schema()), "where this answer would be measured, from and to, in `unit`")
        ),
        "rows": count_schema("measured rows of this kind"),
        "fitted": count_schema("those of them that constants were fitted on"),
        "of": text_schema("software of the rows, and what of them is not as in the answer"),
        "compares": boolean_schema("whether the rows compare two designs"),
        "physics": count_schema("version of the physics that the rows were simulated at"),
        "stale": boolean_schema("whether that is another version than this one"),
        "text": text_schema("all of it as text"),
    },
    "error on similar measurements; no confidence interval",
)

OPERATOR = object_schema(
    {
        "phase": text_schema(),
        "segment": text_schema(),
        "operator": text_schema(),
        "shape": text_schema(),
        "flop": number_schema(
            "useful operations of the whole job, on all devices together: no padding, repetition or masked pairs"
        ),
        "flop_executed": nullable_schema(
            number_schema("what engines execute, useful operations among them; null if it is not counted")
        ),
        "flop_excess": map_schema(number_schema("op"), "executed beside useful ones, by cause: padding, repetition or mask"),
        "bytes": number_schema(
            "B; that main memory, or the cache in front of it, moves: weights, KV and activations, all devices"
        ),
        "network_bytes": number_schema("B; of messages between cores or devices, once for each message"),
        "flop_per_byte": number_schema("op/B; useful operations over bytes"),
        "prefetched": number_schema("share of the bytes, from 0 to 1"),
        "bound": text_schema("the part of the machine that takes the time"),
        "seconds": number_schema("s; all layers and steps"),
        "kernel": text_schema("part of the software stack that is used; empty if none"),
        "basis": text_schema(
            "empty where measured rows cover it; else flat rates, how it is extrapolated, or how slow rows say it is"
        ),
    }
)

SOURCE = object_schema(
    {
        "address": text_schema(),
        "value": text_schema("as it was written"),
        "source": text_schema("a key of the sources"),
        "note": text_schema(),
        "fitted_on": list_schema(text_schema(), "of a constant of a stack: chips that it was fitted on, by name"),
        "meant_for": list_schema(text_schema(), "likewise: other chips that it is for"),
    }
)

STACK_BASIS = object_schema(
    {
        "text": text_schema("all of it as text"),
        "measured": list_schema(
            object_schema(
                {
                    "part": text_schema("of the stack"),
                    "rows": count_schema("measurements that its constants were fitted on; 0 where nothing says how many"),
                    "chips": list_schema(text_schema(), "that were measured, by name"),
                    "source": nullable_schema(text_schema("a key of the sources")),
                }
            ),
            "parts that the design reads and whose constants were fitted on measurements",
        ),
        "assumed": list_schema(text_schema(), "kinds of kernels at unmeasured flat rates, or these rates"),
        "accuracy": nullable_schema(
            object_schema(
                {
                    "rows": count_schema("measured rates of whole models"),
                    "kind": text_schema("what was measured, in words"),
                    "median_error": number_schema("median of the absolute relative errors of predicted rates"),
                    "low": number_schema("measured over predicted rate, tenth percentile"),
                    "high": number_schema("measured over predicted rate, ninetieth percentile"),
                },
                "how far measured rates lie from those of the stack; null where no row tells",
            )
        ),
    },
    "measured and assumed parts of the software stack; null without a stack",
)

FACT = object_schema(
    {
        "name": text_schema("die_area, tdp, clock or price"),
        "value": number_schema("as the data sheet has it, in `unit`"),
        "unit": text_schema("of `value`, `modelled` and `of_part`"),
        "modelled": number_schema("what the model makes of this design"),
        "of_part": number_schema("what the model makes of the part as it was given"),
        "holds": boolean_schema("whether both are the same, so that the data sheet counts; else the model does"),
        "text": text_schema("all of it as text"),
    }
)

EVALUATE: Schema = object_schema(
    {
        "title": text_schema("workload, and number of devices if that was left open"),
        "stack_basis": nullable_schema(STACK_BASIS),
        "kernel_basis": text_schema("kernels that no measured row of the stack covers, in words; empty where there are none"),
        "chip": text_schema("name of the choice; empty where there is none"),
        "mapping": text_schema("name of the choice"),
        "stack": text_schema("name of the choice; empty where there is none"),
        "workload": text_schema("name of the choice"),
        "fidelity": text_schema("fidelity of the evaluation"),
        "part": nullable_schema(text_schema("submesh on which it was simulated; metrics then begin with part.")),
        "parts_of_chip": map_schema(text_schema(), "what was chosen by name of the chip's parts, by group and place"),
        "published": list_schema(FACT, "what a data sheet says of the chip, beside the model's own figures"),
        "remarks": list_schema(text_schema(), "limits of the model that facts of the data sheet contradict, in words"),
        "peaks": map_schema(number_schema("op/s"), "of all cores of a chip, by format that its matrix engines multiply"),
        "design": map_schema(scalar_schema(), "every leaf of the chip and the mapping by address, in SI"),
        "cases": list_schema(CASE),
        "models": list_schema(MODEL),
        "feasible": boolean_schema("whether every limit holds in every case"),
        "infeasible": nullable_schema(text_schema("violated limit, with need and capacity")),
        "without_effect": WITHOUT_EFFECT,
        "not_tied": list_schema(
            text_schema(), "leaves of a study's design that would follow a knob and were given a value of their own, in words"
        ),
        "extrapolated": nullable_schema(text_schema("which constants of the stack were fitted on other chips alone, in words")),
        "metrics": METRICS,
        "bands": list_schema(BAND),
        "operators": list_schema(OPERATOR, "of the first case"),
        "seconds_by_bound": SECONDS,
        "memory_bytes": map_schema(
            number_schema("B"),
            "in memory of the fullest of many dies that share a model, by what it is for; empty of other systems",
        ),
        "area_mm2": map_schema(number_schema("mm2"), "of a chip, by part"),
        "power_w": map_schema(number_schema("W"), "of a chip at its peak, by part"),
        "price_usd": map_schema(number_schema("USD"), "of a chip, by part"),
        "sources": list_schema(SOURCE, "where constants come from"),
    },
    "one design: metrics, time by operator, bottlenecks",
)

SIDE = object_schema(
    {
        "chip": text_schema(),
        "why_not": nullable_schema(text_schema("why the chip has no design for the workload; null if it has one")),
        "chips": nullable_schema(count_schema("number of chips that work together, if areas are known")),
        "dies_of_a_chip": nullable_schema(count_schema("those below others included")),
        "set": list_schema(text_schema(), "parts and values of the chip that differ from its preset, as overrides"),
        "mapping": nullable_schema(text_schema("name of the choice")),
        "software": nullable_schema(text_schema("name of the stack of libraries; null where a chip runs without one")),
        "stack_basis": nullable_schema(STACK_BASIS),
        "kernel_basis": text_schema("kernels that no measured row of the stack covers, in words; empty where there are none"),
        "knobs": map_schema(scalar_schema(), "what the search chose, in SI, by address"),
        "formats": map_schema(text_schema(), "number formats, by what they are of"),
        "metrics": METRICS,
        "tokens_per_joule": nullable_schema(number_schema("token/J; null where energy is not known")),
        "seconds_by_bound": SECONDS,
        "looked_at": object_schema(
            {
                "designs": count_schema("that the search evaluated"),
                "feasible": count_schema("those of them that fit"),
                "refused_by": map_schema(count_schema("designs"), "evaluated or not, by the limit that they break"),
                "left_out": text_schema("the same in words"),
            }
        ),
    }
)

COMPARE: Schema = object_schema(
    {
        "objective": text_schema("the metric that each mapping is best in"),
        "note": nullable_schema(
            text_schema("chips with different software and the override that equalises it; constants fitted on other chips")
        ),
        "cases": list_schema(text_schema(), "cases of the workload as text"),
        "chips": list_schema(SIDE),
        "without_effect": WITHOUT_EFFECT,
    },
    "chips side by side, each with the best mapping that a short search finds",
)

OF_EACH = object_schema(
    {
        "name": text_schema("of the class"),
        "ttft_s": nullable_schema(number_schema("s; time to first token; null for no bound")),
        "tpot_s": nullable_schema(number_schema("s; time per output token; likewise")),
    }
)

DEPLOYMENT = object_schema(
    {
        "deployment": text_schema("in words"),
        "overrides": list_schema(text_schema(), "what gives it to dse evaluate"),
        "left_out": list_schema(text_schema(), "overrides without effect on it, which dse evaluate would refuse"),
        "phases": enum_schema(["apart", "together"], "whether some instances only prefill"),
        "devices": count_schema(),
        "max_rate_hz": number_schema("requests/s; the largest that keeps the bounds"),
        "max_users": nullable_schema(count_schema("of a closed population, the most that keep the bounds; null for others")),
        "rate_override": text_schema("the same as an override"),
        "max_rate_range_hz": nullable_schema(
            list_schema(
                number_schema("requests/s"),
                "the least and the most of the largest rates of single seeds; users of a closed population",
            ),
            "null where there is one stream",
        ),
        "requests": count_schema("of each seed; workload.requests of the run that confirms the rate"),
        "seed": count_schema("of that run, as an override"),
        "lasts": boolean_schema("whether the verdict is the same of half as many requests"),
        "estimate_hz": nullable_schema(number_schema("requests/s; by the steady state")),
        "breaks_beyond": text_schema("SLO that is missed above that rate"),
        "ttft_s": nullable_schema(number_schema("s; of the share of requests that `bounds` says, at that rate")),
        "tpot_s": nullable_schema(number_schema("s; the same of the time per output token")),
        "tokens_per_s_device": number_schema("token/s of one device"),
        "tokens_per_s_user": nullable_schema(number_schema("token/s of one request; null where none has two tokens")),
        "system_price_usd": number_schema("USD; to make all its chips, with their memory and share of servers"),
        "price_per_mtoken_usd": number_schema("USD of a million output tokens, at the largest rate"),
        "runs": count_schema("rates that were simulated"),
        "classes": list_schema(OF_EACH, "what the share of each of workload.slo_classes keeps, at that rate"),
    }
)

ON_THE_FRONT = object_schema(
    {
        "tokens_per_s_user": number_schema("token/s of one request"),
        "tokens_per_s_device": number_schema("token/s of one device"),
        "deployment": text_schema(),
    }
)

AT_A_LOAD = object_schema(
    {
        "of_largest": number_schema("times the largest rate"),
        "rate_hz": number_schema("requests/s"),
        "ttft_s": nullable_schema(number_schema("s; null where some request is never served")),
        "tpot_s": nullable_schema(number_schema("s; likewise")),
        "breaks": nullable_schema(text_schema("SLO that is missed; null if all are kept")),
    }
)

SERVED = object_schema(
    {
        "chip": text_schema(),
        "why_not": nullable_schema(text_schema("why no deployment serves the load; null if one does")),
        "note": nullable_schema(text_schema("what to know of the answer")),
        "published_formats": nullable_schema(
            text_schema("whether deployments have the formats that the model is published in, in words; null if of 16 bits")
        ),
        "other_variants": nullable_schema(text_schema("what other formats serve, or devices that share no experts, in words")),
        "extrapolated": nullable_schema(
            text_schema("which constants of the best one's stack were fitted on other chips alone, in words")
        ),
        "stack_basis": nullable_schema(STACK_BASIS),
        "kernel_basis": text_schema("kernels that no measured row of the stack covers, in words; empty where there are none"),
        "model": text_schema(),
        "requests": object_schema(
            {
                "count": count_schema("that are simulated"),
                "rows_skipped": count_schema("rows of the trace that workload.skip passed over"),
                "trace": nullable_schema(TRACE),
                "mean_prompt_tokens": number_schema("token"),
                "mean_output_tokens": number_schema("token"),
            }
        ),
        "bounds": object_schema(
            {
                "ttft_s": nullable_schema(number_schema("s; time to first token; null for no bound")),
                "tpot_s": nullable_schema(number_schema("s; time per output token; likewise")),
                "share_of_requests": number_schema("that keep each bound, from 0 to 1"),
                "classes": list_schema(
                    OF_EACH, "what requests of each of workload.slo_classes must keep; those above are the longest"
                ),
            }
        ),
        "devices": count_schema("of a cell"),
        "cells": count_schema("alike, which the devices are; each has a router, and its part of the requests"),
        "best": nullable_schema(DEPLOYMENT, "which serves most"),
        "deployments": list_schema(DEPLOYMENT, "those whose rate is known, the largest first"),
        "looked_at": object_schema(
            {
                "fit": count_schema("deployments"),
                "played": count_schema("deployments"),
                "refused_by": map_schema(
                    count_schema("deployments"),
                    "by the limit that they break, or why they are left out: same batch by memory, pools out of balance",
                ),
                "left_out": text_schema("the same in words"),
            }
        ),
        "front": list_schema(ON_THE_FRONT, "of runs, those that no other exceeds in both"),
        "load": list_schema(AT_A_LOAD, "latency of the best deployment against load"),
    }
)

CAPACITY: Schema = object_schema(
    {"physics": count_schema("version of the physics"), "chips": list_schema(SERVED), "without_effect": WITHOUT_EFFECT},
    "maximum rate of requests within SLOs, by the best deployment",
)

FLEET_TOTALS = object_schema(
    {
        "chips_owned": count_schema("those of the busiest hour"),
        "system_hours": number_schema("h; in which systems are up"),
        "chip_hours": number_schema("h; in which chips are up"),
        "utilisation": number_schema("load over the maximum rate, mean over these hours"),
        "requests": number_schema("requests of a day"),
        "output_tokens": number_schema("token; of a day"),
        "energy_j": nullable_schema(number_schema("J; drawn from the grid; null where energy is not known")),
        "owned_usd": nullable_schema(
            number_schema("USD; capital and electricity, of chips at what they cost to make; null where prices are not known")
        ),
        "capital_usd": nullable_schema(number_schema("USD; a day's share of the price of all chips that are owned")),
        "electricity_usd": nullable_schema(number_schema("USD")),
        "rented_usd": nullable_schema(number_schema("USD; rent of the hours in which chips are up; null without a rent")),
        "owned_per_mtoken_usd": nullable_schema(number_schema("USD of a million output tokens")),
        "rented_per_mtoken_usd": nullable_schema(number_schema("USD of a million output tokens")),
    },
    "a mean day, all models together",
)

FLEET_HOUR = object_schema(
    {
        "hour": count_schema("from 0"),
        "rate_hz": number_schema("requests/s to the model"),
        "systems_needed": count_schema("that the rate takes, spare ones included"),
        "systems_ready": count_schema("that serve: more where a system could not start again in time"),
        "system_hours": number_schema("h; in which systems are up: those that serve or start"),
        "load_hz": number_schema("requests/s of each system that serves"),
        "utilisation": number_schema("that load over the maximum rate"),
        "slo_attainment": nullable_schema(number_schema("share of the requests within their SLO; null without requests")),
        "grid_power_w": nullable_schema(number_schema("W; of all systems of the model; null where energy is not known")),
    }
)

FLEET_MODEL = object_schema(
    {
        "model": text_schema(),
        "share": number_schema("of all requests"),
        "overrides": list_schema(text_schema(), "of this model alone"),
        "text": text_schema("the system, its maximum rate and its bounds, in words"),
        "note": nullable_schema(text_schema("why the maximum rate need not last; null where it does")),
        "stack_basis": nullable_schema(STACK_BASIS),
        "extrapolated": nullable_schema(text_schema("which constants of the stack were fitted on other chips alone, in words")),
        "max_rate_hz": number_schema("requests/s of a system; the largest that keeps the bounds"),
        "chips_of_a_system": count_schema(),
        "system_price_usd": nullable_schema(number_schema("USD; of its chips with their share of servers")),
        "rent_usd_per_hour": nullable_schema(number_schema("USD/h; of its chips; null where no rent is known")),
        "idle_power_w": nullable_schema(number_schema("W; of its chips without requests")),
        "hours": list_schema(FLEET_HOUR, "systems that start and stop with the load"),
        "fixed_hours": list_schema(FLEET_HOUR, "systems of the busiest hour that are always up"),
    }
)

FLEET: Schema = object_schema(
    {
        "physics": count_schema("version of the physics"),
        "day": object_schema(
            {
                "name": text_schema("of the file"),
                "text": text_schema("the load in words"),
                "rates_hz": list_schema(number_schema("requests/s"), "mean of each hour, from hour 0"),
                "peak_hz": number_schema("requests/s"),
                "mean_hz": number_schema("requests/s"),
            }
        ),
        "systems": text_schema("spare systems, cold start and arrivals, in words"),
        "assumptions": list_schema(text_schema(), "what the answer assumes, in words"),
        "spare": count_schema("systems of each model beside those that the rate takes"),
        "cold_start_s": number_schema("s; from the start of a system until it serves"),
        "by": enum_schema(["owned", "rented", "energy", "chips"], "order of the fleets, the least first"),
        "fleets": list_schema(
            object_schema(
                {
                    "chip": text_schema(),
                    "why_not": nullable_schema(text_schema("why there is no fleet; null if there is one")),
                    "scaled": nullable_schema(FLEET_TOTALS, "systems that start and stop with the load"),
                    "fixed": nullable_schema(FLEET_TOTALS, "systems of the busiest hour that are always up"),
                    "models": list_schema(FLEET_MODEL),
                }
            )
        ),
        "without_effect": WITHOUT_EFFECT,
    },
    "the fewest systems for a day's load, by hour, with energy and dollars of the day",
)
