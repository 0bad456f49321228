"""Tables of the analyses. A table has a title, a caption, columns (the first `text_columns` hold text) and rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.contrastive.sentences import AGREEMENT
from stages.report.findings.analyses import Analyses
from stages.report.findings.breakdown_tables import dag_tables, diversity_tables, length_tables, repetition_tables, slot_tables
from stages.shared.scoring.ngram_metrics import END_ORDERS, ENDS

Json = dict[str, Any]

CONTRASTS = (
    ("types", "type", "type of error"),
    ("distances", "distance", "distance in words"),
    ("frequencies", "frequency", "frequency of the word"),
)
"""Lists of `contrastive.json`, the key that names each entry, and its meaning."""


def analysis_tables(found: Analyses) -> list[Json]:
    """Return the tables of all analyses that have results."""
    breakdowns = [
        *length_tables(found.by_length),
        *diversity_tables(found.diversity),
        *repetition_tables(found.repetition),
        *dag_tables(found.dag_analysis),
        *slot_tables(found.parallel_analysis),
    ]
    return [
        *_penalties(found),
        *_shortlists(found),
        *_mutual_information(found),
        *_agreement(found),
        *_contrasts(found),
        *_head_and_tail(found),
        *breakdowns,
    ]


def _shortlists(found: Analyses) -> Iterator[Json]:
    measured = {entry: tuned["shortlist"] for entry, tuned in found.tuned.items() if "shortlist" in tuned}
    if not measured:
        return
    yield {
        "title": "Shortlists",
        "caption": "Sizes of shortlists that hold the expected share of the tokens which the search writes for the validation text "
        "with the whole vocabulary. Where no size suffices, all tokens are ranked.",
        "columns": ["entry", "expected, %", "tokens", "links", "recall, %", "of tokens"],
        "rows": [
            [
                entry,
                f"{100 * one['expected_recall']:g}",
                "all" if one["tokens"] is None else str(one["tokens"]),
                str(one["links"]),
                f"{100 * one['recall']:.2f}",
                f"{one['written']:,}",
            ]
            for entry, one in measured.items()
        ],
        "text_columns": 1,
    }


def _penalties(found: Analyses) -> Iterator[Json]:
    with_penalty = {entry: tuned for entry, tuned in found.tuned.items() if "length_penalty" in tuned}
    if not with_penalty:
        return
    penalties = list(dict.fromkeys(one["length_penalty"] for entry in with_penalty.values() for one in entry["candidates"]))
    scores = {entry: {one["length_penalty"]: one["score"] for one in tuned["candidates"]} for entry, tuned in with_penalty.items()}
    yield {
        "title": "Length penalties",
        "caption": "Score of the validation text with each length penalty. The tests were decoded with the chosen one.",
        "columns": ["entry", "chosen", *(f"{penalty:g}" for penalty in penalties)],
        "rows": [
            [entry, f"{tuned['length_penalty']:g}", *(f"{scores[entry][penalty]:.2f}" for penalty in penalties)]
            for entry, tuned in with_penalty.items()
        ],
        "text_columns": 1,
    }


def _mutual_information(analyses: Analyses) -> Iterator[Json]:
    for test, pairs in analyses.mutual_information.items():
        found = analyses.likelihood[test]
        yield {
            "title": f"Mutual information of the tokens of a step on {test}",
            "caption": (
                "Estimated from the perplexity (ppl) of a system that writes several tokens a step, compared with one that writes "
                "the same order token by token. Nats: for all tokens of a step. log10: logarithm of the ratio of the perplexities, "
                "as Zhang et al. (2020) report it. A negative value means that the sequential model is worse."
            ),
            "columns": ["pair", "parallel", "sequential", "tokens", "ppl par.", "ppl seq.", "nats", "log10"],
            "text_columns": 3,
            "rows": [
                [
                    pair["name"],
                    pair["parallel"],
                    pair["sequential"],
                    str(pair["step_size"]),
                    f"{found[pair['parallel']]['perplexity']:.3f}",
                    f"{found[pair['sequential']]['perplexity']:.3f}",
                    f"{pair['nats_per_step']:.3f}",
                    f"{pair['log10_ratio']:.3f}",
                ]
                for pair in pairs
            ],
        }


def _agreement(analyses: Analyses) -> Iterator[Json]:
    systems = analyses.contrastive
    bands = next(iter(systems.values()))["bands"] if systems else []
    if not bands:
        return
    verbs = {system: next(one for one in found["types"] if one["type"] == AGREEMENT) for system, found in systems.items()}
    counts = ", ".join(f"{band['distance']}: {band['pairs']:,}" for band in bands)
    yield {
        "title": "Agreement of verbs with distant subjects",
        "caption": (
            "Percentage of minimal pairs in which the correct translation has a higher probability than the one whose verb has "
            "the wrong number (50 by chance). Columns: all pairs, all pairs by log-probability per token, and pairs by distance "
            f"in words from the subject to the verb. Pairs: {counts}."
        ),
        "text_columns": 1,
        "columns": ["system", "all", "per token", *(band["distance"] for band in bands)],
        "rows": [
            [
                system,
                _share(verbs[system]["correct"], verbs[system]["pairs"]),
                _share(verbs[system]["correct_by_mean"], verbs[system]["pairs"]),
                *(_share(band["correct"], band["pairs"]) for band in found["bands"]),
            ]
            for system, found in systems.items()
        ],
    }


def _contrasts(analyses: Analyses) -> Iterator[Json]:
    """Yield the accuracy on contrastive pairs of several types of errors by type, distance and frequency."""
    systems = analyses.contrastive
    first = next(iter(systems.values()), None)
    if first is None or len(first["types"]) == 1:
        return
    everything = ["all", f"{first['pairs']:,}", *(_share(found["correct"], found["pairs"]) for found in systems.values())]
    for part, key, meaning in CONTRASTS:
        accuracies = [
            [_share(found[part][row]["correct"], found[part][row]["pairs"]) for found in systems.values()]
            for row in range(len(first[part]))
        ]
        rows = [[one[key], f"{one['pairs']:,}", *shares] for one, shares in zip(first[part], accuracies, strict=True)]
        if not rows:
            continue
        yield {
            "title": f"Contrastive pairs by {meaning}",
            "caption": (
                "Percentage of contrastive pairs in which the correct translation has a higher probability than the same "
                "translation with one error (50 by chance; Sennrich 2017)."
            ),
            "text_columns": 1,
            "columns": [key, "pairs", *systems],
            "rows": [*rows, everything] if part == "types" else rows,
        }


def _head_and_tail(analyses: Analyses) -> Iterator[Json]:
    for test, entries in analyses.head_and_tail.items():
        first = next(iter(entries.values()))
        yield {
            "title": f"Precision at the ends of hypotheses on {test}",
            "caption": (
                "Percentage of n-grams of all, the first or the last words of hypotheses that also occur in the references, for "
                f"the {first['sentences']:,} sentences whose reference has more than {first['longer_than']} words."
            ),
            "text_columns": 1,
            "columns": ["system and search", "n-grams", *ENDS],
            "rows": [
                [entry, str(order), *(_number(found["precision"][str(order)][part]) for part in ENDS)]
                for order in END_ORDERS
                for entry, found in entries.items()
            ],
        }


def _share(part: int, whole: int) -> str:
    return _number(100 * part / whole if whole else None)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
