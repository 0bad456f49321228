"""Tables of the analyses of DAGs and of slots, of BLEU by reference length and by sample, and of repetition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]


def dag_tables(analyses: Mapping[str, Mapping[str, Json]]) -> Iterator[Json]:
    """Yield the tables of `dag_analysis.json`, given by text and system."""
    networks = [(system, text, found) for text, systems in analyses.items() for system, found in systems.items()]
    if not networks:
        return
    rows = [row for system, text, found in networks for row in _targets(system, text, found)]
    yield {
        "title": "Targets in the DAGs",
        "caption": (
            "Percentage of target tokens on the best path that are the most probable token of their vertex: text tokens only, and "
            "with BOS and EOS. Spread: effective number of vertices of a token given the target (exp of the entropy, mean over "
            "tokens). No path: targets that are longer than their DAG."
        ),
        "text_columns": 2,
        "columns": ["network", "text", "sentences", "no path", "tokens right", "with ends", "spread"],
        "rows": rows,
    }
    yield {
        "title": "Vertices of the DAGs",
        "caption": (
            "Percentage of the inner vertices that are likely (passing probability above 0.5), confident (not likely, but the best "
            "token is above 0.5) and vague (both below 0.2). One successor: among vertices with a passing probability of at least "
            "0.2, those whose most probable transitions (80 % of the mass) lead to a single token."
        ),
        "text_columns": 2,
        "columns": ["network", "text", "vertices", "likely", "confident", "vague", "one successor"],
        "rows": [
            [
                system,
                text,
                f"{found['vertices']:,}",
                *(_share(found[name], found["vertices"]) for name in ("likely", "confident", "vague")),
                _share(found["out_degrees"].get("1", 0), sum(found["out_degrees"].values())),
            ]
            for system, text, found in networks
        ],
    }


def _targets(system: str, text: str, found: Json) -> Iterator[list[str]]:
    networks = [(system, found)]
    if early := found.get("early"):
        networks.insert(0, (f"{system}, update {early['update']:,}", early))
    for name, counts in networks:
        ends = 2 * counts["aligned"]
        yield [
            name,
            text,
            f"{counts['sentences']:,}",
            f"{counts['impossible']:,}",
            _share(counts["correct"], counts["tokens"]),
            _share(counts["correct"] + counts["correct_ends"], counts["tokens"] + ends),
            _number(counts["spread"], 2),
        ]


def length_tables(by_length: Mapping[str, Mapping[str, Json]]) -> Iterator[Json]:
    """Yield a table for each test set of `by_length.json`, given by test set and entry."""
    for test, entries in by_length.items():
        bins = next(iter(entries.values()))["bins"]
        counts = ", ".join(f"{bin_name(part)}: {part['sentences']:,}" for part in bins)
        yield {
            "title": f"BLEU by reference length on {test}",
            "caption": f"Bins are in words of the first reference. Sentences: {counts}.",
            "text_columns": 1,
            "columns": ["system and search", *map(bin_name, bins)],
            "rows": [[entry, *(_number(part["bleu"], 2) for part in found["bins"])] for entry, found in entries.items()],
        }


def bin_name(part: Json) -> str:
    """Return the name of a bin of lengths: `11-20`, or `21+` for the last one."""
    first = part["longer_than"] + 1
    return f"{first}+" if part["up_to"] is None else f"{first}-{part['up_to']}"


def diversity_tables(diversity: Mapping[str, Mapping[str, Json]]) -> Iterator[Json]:
    """Yield a table for each test set of `diversity.json`, given by test set and entry."""
    for test, entries in diversity.items():
        yield {
            "title": f"Quality and diversity of samples on {test}",
            "caption": (
                "Samples, or the hypotheses of a beam. BLEU: one sample a sentence against all references, mean over ranks. "
                "Pairwise BLEU: each sample against each other sample of its sentence; lower is more diverse. Oracle BLEU: the "
                "best sample of each sentence."
            ),
            "text_columns": 1,
            "columns": ["system and search", "samples", "BLEU", "pairwise BLEU", "oracle BLEU"],
            "rows": [
                [
                    entry,
                    str(found["samples"]),
                    *(_number(found[name], 2) for name in ("bleu", "pairwise_bleu", "oracle_bleu")),
                ]
                for entry, found in entries.items()
            ],
        }
        if matched := {entry: found["matched"] for entry, found in entries.items() if "matched" in found}:
            yield _matched_table(test, matched)


def _matched_table(test: str, matched: Mapping[str, Json]) -> Json:
    return {
        "title": f"Samples and single references on {test}",
        "caption": (
            "BLEU: sentence BLEU of a sample against the reference that it is closest to, mean over all samples. Covered: mean "
            "number of the references of a sentence that some sample is closest to (Ott et al. 2018)."
        ),
        "text_columns": 1,
        "columns": ["system and search", "BLEU", "references", "covered"],
        "rows": [
            [entry, *(_number(found[name], 2) for name in ("bleu", "references", "covered"))] for entry, found in matched.items()
        ],
    }


def repetition_tables(repetition: Mapping[str, Mapping[str, Json]]) -> Iterator[Json]:
    """Yield a table for each test set of `repetition.json`, given by test set and entry."""
    for test, entries in repetition.items():
        references = next(iter(entries.values()))["reference_words"]
        yield {
            "title": f"Repetition on {test}",
            "caption": (
                "Percentage of the tokens, and of the words, of hypotheses that equal the one before them; also that of the first "
                "references in the tokens of the system. In the first references it is "
                f"{_share(references['repeated'], references['total'], 2)} % of the words."
            ),
            "text_columns": 1,
            "columns": ["system and search", "tokens, %", "reference tokens, %", "words, %"],
            "rows": [
                [
                    entry,
                    *(_share(found[unit]["repeated"], found[unit]["total"], 2) for unit in ("tokens", "reference_tokens", "words")),
                ]
                for entry, found in entries.items()
            ],
        }


def slot_tables(analyses: Mapping[str, Mapping[str, Json]]) -> Iterator[Json]:
    """Yield the tables of `parallel_analysis.json`, given by text and system."""
    networks = [(system, text, found) for text, systems in analyses.items() for system, found in systems.items()]
    if not networks:
        return
    yield {
        "title": "Targets in the slots",
        "caption": (
            "Percentage of target tokens that their slot ranks first: the slot at their own position, or with CTC the slots of the "
            "best alignment, over which a token takes the mean. No alignment: targets that need more slots. Choices: effective "
            "number of tokens of a slot (exp of the mean entropy)."
        ),
        "text_columns": 2,
        "columns": ["network", "text", "sentences", "no alignment", "tokens right", "choices"],
        "rows": [
            [
                system,
                text,
                f"{found['sentences']:,}",
                f"{found['impossible']:,}",
                _share(found["correct"], found["tokens"]),
                _number(found["choices"], 2),
            ]
            for system, text, found in networks
        ],
    }
    yield {
        "title": "Recall of slots",
        "caption": (
            "Percentage of target tokens among the K best tokens of their slot, of any slot of theirs with CTC, whose blank takes "
            "no rank. With the predicted length, tokens beyond it are not found."
        ),
        "text_columns": 3,
        "columns": ["network", "text", "length", *(f"K = {size}" for size in networks[0][2]["candidates"])],
        "rows": [
            [system, text, name, *(f"{100 * share:.1f}" for share in found[kind])]
            for system, text, found in networks
            for kind, name in (("recall", "true"), ("recall_predicted_length", "predicted"))
            if kind in found
        ],
    }


def _share(part: float, whole: int, digits: int = 1) -> str:
    return f"{100 * part / whole:.{digits}f}" if whole else "-"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
