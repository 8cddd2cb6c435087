"""What is said of designs that are asked directly: `dse evaluate`, `dse compare` and `dse capacity`."""

from dse.schemas.words import (
    KIND,
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

SECONDS = named(number("s"), "seconds by what they are spent on")

HELD = closed(
    {
        "of": text("whose memory it is: instance, prefill instance or decode instance"),
        "blocks": whole("that mapping.serving.blocks says"),
        "blocks_of_memory": whole("that its devices have room for"),
        "tokens": whole("for which the blocks are, of requests that keep all positions"),
        "tokens_of_memory": whole("the same of the room"),
    }
)

OF_CLASS = closed(
    {
        "class": text("its name"),
        "requests": whole("of it"),
        "slo_attainment": maybe(number("share of them within the bounds of the class; null where there are none")),
        "goodput_hz": maybe(number("requests/s; those that are, over the time of all")),
        "ttft_s": maybe(number("s; mean time to first token")),
        "ttft_p90_s": maybe(number("s; that 90 % of them keep")),
        "tpot_s": maybe(number("s; mean over requests; null where none has two tokens")),
    }
)

OF_TURN = closed(
    {
        "turn": text("places in a session, from 1: 1, 2, 3-4, 5-8 and so on"),
        "requests": whole("of them"),
        "prompt_tokens": number("the mean; all that was said before, and what is new"),
        "prefix_reused": number("share of these that was taken from caches"),
        "ttft_s": maybe(number("s; mean time to first token")),
        "ttft_p90_s": maybe(number("s; that 90 % of them keep")),
        "tpot_s": maybe(number("s; mean over requests; null where none has two tokens")),
        "latency_s": maybe(number("s; from when a turn is asked to its last token, the mean")),
    }
)

TRACE = closed(
    {
        "file": text("its name"),
        "part": text("which of its requests, and what was done to them, in words"),
        "times": one_of(["replayed", "scaled", "drawn"], "whether arrivals are those of the file"),
        "process": maybe(text("that times are drawn from; null where they are the file's")),
    },
    "what a served load has of its trace; null where requests are from no file",
)

UNLOADED = closed(
    {"ttft_s": maybe(number("s; to the first token")), "tpot_s": maybe(number("s; a token; null where no request has two"))},
    "where no rate keeps the bounds: what the share of the requests that must keep them takes where none meets another",
)

MAX_RATE = closed(
    {
        "max_rate_hz": number("requests/s; the largest that lasts, or at which a replayed trace keeps its bounds"),
        "max_rate_range_hz": maybe(each(number("requests/s"), "of single seeds, the least and the most; null of one stream")),
        "requests": whole("of each stream"),
        "seed": whole("of the stream that confirms it"),
        "lasts": flag("whether the streams are long enough for queues to settle"),
        "breaks_beyond": text("bounds that are broken a little beyond, or saturation"),
        "note": maybe(text("why it need not last; null where it does")),
    },
    "of workload.rate=largest: the maximum rate, as in the answer of dse capacity",
)

CASE = closed(
    {
        "case": text("what is asked, in words"),
        "feasible": flag("whether every limit holds"),
        "metrics": METRICS,
        "rows_skipped": whole("of a served load: rows of its trace that workload.skip passed over; absent of other cases"),
        "trace": maybe(TRACE),
        "kv_memory": each(HELD, "of a served load: by pool, where mapping.serving.blocks is said; absent of other cases"),
        "unloaded": maybe(UNLOADED),
        "classes": each(OF_CLASS, "of a served load: what requests of each of workload.classes got; absent of other cases"),
        "turns": each(OF_TURN, "of a served load of sessions: what turns got, by their places; absent of other cases"),
        "max_rate": MAX_RATE,
    },
    optional=["rows_skipped", "trace", "kv_memory", "unloaded", "classes", "turns", "max_rate"],
)

MODEL = closed(
    {
        "name": text(),
        "parameters": number("all of them"),
        "active_parameters": number("those that one token meets"),
        "kv_values_per_token": number("values that are cached for each token"),
        "kv_tokens_until_full": maybe(whole("tokens of a sequence up to which that is so, where all layers have windows")),
        "kv_values_per_sequence": number("values that are cached for each sequence, however long"),
        "state_bytes_per_sequence": number("B; recurrent states of a sequence"),
    }
)

BAND = closed(
    {
        "metric": text(),
        "value": maybe(number("of this answer, in `unit`")),
        "unit": text("of `value` and `measured`"),
        **KIND,
        "low": maybe(number("simulated over measured less 1, the lower end of rows of this kind")),
        "high": maybe(number("the same, the upper end")),
        "measured": maybe(each(maybe(number()), "where this answer would be measured, from and to, in `unit`")),
        "rows": whole("measured rows of this kind"),
        "fitted": whole("those of them that constants were fitted on"),
        "of": text("software of the rows, and what of them is not as in the answer"),
        "compares": flag("whether the rows compare two designs"),
        "physics": whole("version of the physics that the rows were simulated at"),
        "stale": flag("whether that is another version than this one"),
        "text": text("all of it, for people"),
    },
    "how far off measured rows of this kind were; no confidence interval",
)

OPERATOR = closed(
    {
        "phase": text(),
        "segment": text(),
        "operator": text(),
        "shape": text(),
        "flop": number("useful operations of the whole job, on all devices together: no padding, repetition or masked pairs"),
        "flop_executed": maybe(number("what engines execute, useful operations among them; null where nobody counts it")),
        "flop_excess": named(number("op"), "executed beside useful ones, by cause: padding, repetition or mask"),
        "bytes": number("B; that main memory, or the cache in front of it, moves: weights, KV and activations, all devices"),
        "network_bytes": number("B; of messages between cores or devices, once for each message"),
        "flop_per_byte": number("op/B; useful operations over bytes"),
        "prefetched": number("share of the bytes, from 0 to 1"),
        "bound": text("the part of the machine that takes the time"),
        "seconds": number("s; all layers and steps"),
        "kernel": text("part of the software stack that is asked; empty where none is"),
        "basis": text(
            "empty where measured rows cover it; else flat rates, how it is extrapolated, or how slow rows say it is"
        ),
    }
)

SOURCE = closed(
    {
        "address": text(),
        "value": text("as it was written"),
        "source": text("a key of the sources"),
        "note": text(),
        "fitted_on": each(text(), "of a constant of a stack: chips that it was fitted on, by name"),
        "meant_for": each(text(), "likewise: other chips that it is for"),
    }
)

STACK_BASIS = closed(
    {
        "text": text("all of it, for people"),
        "measured": each(
            closed(
                {
                    "part": text("of the stack"),
                    "rows": whole("measurements that its constants were fitted on; 0 where nothing says how many"),
                    "chips": each(text(), "that were measured, by name"),
                    "source": maybe(text("a key of the sources")),
                }
            ),
            "parts that the design reads and whose constants were fitted on measurements",
        ),
        "assumed": each(text(), "kinds of kernels at flat rates that nobody measured, or these rates"),
    },
    "what stands behind the software stack; null of a chip without one",
)

FACT = closed(
    {
        "name": text("die_area, tdp, clock or price"),
        "value": number("as the data sheet has it, in `unit`"),
        "unit": text("of `value`, `modelled` and `of_part`"),
        "modelled": number("what the model makes of this design"),
        "of_part": number("what the model makes of the part as it was given"),
        "holds": flag("whether both are the same, so that the data sheet counts; else the model does"),
        "text": text("all of it, for people"),
    }
)

EVALUATE: Schema = closed(
    {
        "title": text("what was asked, and on how many devices where that was left open"),
        "stack_basis": maybe(STACK_BASIS),
        "kernel_basis": text("kernels that no measured row of the stack covers, in words; empty where there are none"),
        "chip": text("name of the choice; empty where there is none"),
        "mapping": text("name of the choice"),
        "stack": text("name of the choice; empty where there is none"),
        "workload": text("name of the choice"),
        "fidelity": text("the reader that it was evaluated by"),
        "part": maybe(text("on which part of the mesh it was played; metrics then begin with part.")),
        "parts_of_chip": named(text(), "what was chosen by name of the chip's parts, by group and place"),
        "published": each(FACT, "what a data sheet says of the chip, beside the model's own figures"),
        "remarks": each(text(), "limits of the model that facts of the data sheet contradict, in words"),
        "peaks": named(number("op/s"), "of all cores of a chip, by format that its matrix engines multiply"),
        "design": named(scalar(), "every leaf of the chip and the mapping by address, in SI"),
        "cases": each(CASE),
        "models": each(MODEL),
        "feasible": flag("whether every limit holds in every case"),
        "infeasible": maybe(text("the limit that binds, with what is needed and what there is")),
        "without_effect": WITHOUT_EFFECT,
        "not_tied": each(
            text(), "leaves of a study's design that would follow a knob and were given a value of their own, in words"
        ),
        "extrapolated": maybe(text("which constants of the stack were fitted on other chips alone, in words")),
        "metrics": METRICS,
        "bands": each(BAND),
        "operators": each(OPERATOR, "of the first case"),
        "seconds_by_bound": SECONDS,
        "memory_bytes": named(
            number("B"), "in memory of the fullest of many dies that share a model, by what it is for; empty of other systems"
        ),
        "area_mm2": named(number("mm2"), "of a chip, by part"),
        "power_w": named(number("W"), "of a chip at its peak, by part"),
        "price_usd": named(number("USD"), "of a chip, by part"),
        "sources": each(SOURCE, "where constants come from"),
    },
    "one design: metrics, time by operator, what binds",
)

SIDE = closed(
    {
        "chip": text(),
        "why_not": maybe(text("why it cannot be asked, or has no design; null where it has one")),
        "chips": maybe(whole("how many work together, where areas say it")),
        "dies_of_a_chip": maybe(whole("those below others included")),
        "set": each(text(), "parts and values of the chip that are not as it ships, as overrides say them"),
        "mapping": maybe(text("name of the choice")),
        "software": maybe(text("name of the stack of libraries; null where a chip runs without one")),
        "stack_basis": maybe(STACK_BASIS),
        "kernel_basis": text("kernels that no measured row of the stack covers, in words; empty where there are none"),
        "knobs": named(scalar(), "what the search chose, in SI, by address"),
        "formats": named(text(), "number formats, by what they are of"),
        "metrics": METRICS,
        "tokens_per_joule": maybe(number("token/J; null where energy is not known")),
        "seconds_by_bound": SECONDS,
        "looked_at": closed(
            {
                "designs": whole("that the search evaluated"),
                "feasible": whole("those of them that fit"),
                "refused_by": named(whole("designs"), "evaluated or not, by the limit that they break"),
                "left_out": text("the same in words"),
            }
        ),
    }
)

COMPARE: Schema = closed(
    {
        "objective": text("the metric that each mapping is best in"),
        "note": maybe(
            text(
                "where software is unlike: of which chips, and the override that makes it alike; what was fitted on other chips"
            )
        ),
        "cases": each(text(), "what is asked, case by case, in words"),
        "chips": each(SIDE),
        "without_effect": WITHOUT_EFFECT,
    },
    "chips side by side, each with the best mapping that a short search finds",
)

OF_EACH = closed(
    {
        "name": text("of the class"),
        "ttft_s": maybe(number("s; time to first token; null for no bound")),
        "tpot_s": maybe(number("s; time per output token; likewise")),
    }
)

DEPLOYMENT = closed(
    {
        "deployment": text("in words"),
        "overrides": each(text(), "what gives it to dse evaluate"),
        "left_out": each(text(), "of what was typed, that nothing of it reads and dse evaluate would refuse"),
        "phases": one_of(["apart", "together"], "whether some instances only prefill"),
        "devices": whole(),
        "max_rate_hz": number("requests/s; the largest that keeps the bounds"),
        "max_users": maybe(whole("of a closed population, the most that keep the bounds; null for others")),
        "rate_override": text("the same as an override"),
        "max_rate_range_hz": maybe(
            each(
                number("requests/s"),
                "the least and the most of the largest rates of single seeds; users of a closed population",
            ),
            "null where there is one stream",
        ),
        "requests": whole("of each seed; workload.requests of the run that confirms the rate"),
        "seed": whole("of that run, as an override"),
        "lasts": flag("whether the verdict is the same of half as many requests"),
        "estimate_hz": maybe(number("requests/s; by the steady state")),
        "breaks_beyond": text("the bound that is broken beyond that rate"),
        "ttft_s": maybe(number("s; of the share of requests that `bounds` says, at that rate")),
        "tpot_s": maybe(number("s; the same of the time per output token")),
        "tokens_per_s_device": number("token/s of one device"),
        "tokens_per_s_user": maybe(number("token/s of one request; null where none has two tokens")),
        "system_price_usd": number("USD; to make all its chips, with their memory and share of servers"),
        "price_per_mtoken_usd": number("USD of a million output tokens, at the largest rate"),
        "runs": whole("rates that were played"),
        "classes": each(OF_EACH, "what the share of each of workload.classes keeps, at that rate"),
    }
)

ON_THE_FRONT = closed(
    {
        "tokens_per_s_user": number("token/s of one request"),
        "tokens_per_s_device": number("token/s of one device"),
        "deployment": text(),
    }
)

AT_A_LOAD = closed(
    {
        "of_largest": number("times the largest rate"),
        "rate_hz": number("requests/s"),
        "ttft_s": maybe(number("s; null where some request is never served")),
        "tpot_s": maybe(number("s; likewise")),
        "breaks": maybe(text("the bound that is broken; null where all are kept")),
    }
)

SERVED = closed(
    {
        "chip": text(),
        "why_not": maybe(text("why nothing can be served; null where something can")),
        "note": maybe(text("what to know of the answer")),
        "extrapolated": maybe(text("which constants of the best one's stack were fitted on other chips alone, in words")),
        "stack_basis": maybe(STACK_BASIS),
        "model": text(),
        "requests": closed(
            {
                "count": whole("that are played"),
                "rows_skipped": whole("rows of the trace that workload.skip passed over"),
                "trace": maybe(TRACE),
                "mean_prompt_tokens": number("token"),
                "mean_output_tokens": number("token"),
            }
        ),
        "bounds": closed(
            {
                "ttft_s": maybe(number("s; time to first token; null for no bound")),
                "tpot_s": maybe(number("s; time per output token; likewise")),
                "share_of_requests": number("that keep each bound, from 0 to 1"),
                "classes": each(OF_EACH, "what requests of each of workload.classes must keep; those above are the longest"),
            }
        ),
        "devices": whole("of a cell"),
        "cells": whole("alike, which the devices are; each has a router, and its part of the requests"),
        "best": maybe(DEPLOYMENT, "which serves most"),
        "deployments": each(DEPLOYMENT, "those whose rate is known, the largest first"),
        "looked_at": closed(
            {
                "fit": whole("deployments"),
                "played": whole("deployments"),
                "refused_by": named(
                    whole("deployments"),
                    "by the limit that they break, or why they are left out: same batch by memory, pools out of balance",
                ),
                "left_out": text("the same in words"),
            }
        ),
        "front": each(ON_THE_FRONT, "of runs, those that no other exceeds in both"),
        "load": each(AT_A_LOAD, "latency of the best deployment against load"),
    }
)

CAPACITY: Schema = closed(
    {"physics": whole("version of the physics"), "chips": each(SERVED), "without_effect": WITHOUT_EFFECT},
    "the largest rate of requests that keeps bounds on latency, by the best deployment",
)
