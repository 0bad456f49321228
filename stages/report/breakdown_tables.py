"""Tables of what is told of graphs, and of BLEU by length and of samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]


def graph_tables(graphs: Mapping[str, Mapping[str, Json]]) -> Iterator[Json]:
    """Of `dag_analysis.json` by text and system."""
    networks = [(system, text, found) for text, systems in graphs.items() for system, found in systems.items()]
    if not networks:
        return
    rows = [row for system, text, found in networks for row in _targets(system, text, found)]
    yield {
        "title": "Targets in the graphs",
        "caption": (
            "Per cent of the target's tokens on the best path through the graph that their vertices rank first: of the text alone, "
            "and with BOS and EOS. Spread: over how many vertices a token's probability is spread, given the target (exp of the "
            "entropy, the mean over tokens). No path: targets longer than their graphs."
        ),
        "words": 2,
        "columns": ["network", "text", "sentences", "no path", "tokens right", "with ends", "spread"],
        "rows": rows,
    }
    yield {
        "title": "Vertices of the graphs",
        "caption": (
            "Per cent of the vertices between both ends that are likely (passing probability above 0.5), confident (not likely, "
            "but the best token above 0.5) and vague (both below 0.2); and of the vertices of a passing probability of at least "
            "0.2, those with one way on: whose transitions, up to 80 %, all lead to one token."
        ),
        "words": 2,
        "columns": ["network", "text", "vertices", "likely", "confident", "vague", "one way on"],
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
    """Of `by_length.json` by test set and entry."""
    for test, entries in by_length.items():
        bins = next(iter(entries.values()))["bins"]
        counts = ", ".join(f"{bin_name(part)}: {part['sentences']:,}" for part in bins)
        yield {
            "title": f"BLEU by reference length on {test}",
            "caption": f"By words of the (first) reference. Sentences: {counts}.",
            "words": 1,
            "columns": ["system and search", *map(bin_name, bins)],
            "rows": [[entry, *(_number(part["bleu"], 2) for part in found["bins"])] for entry, found in entries.items()],
        }


def bin_name(part: Json) -> str:
    """`11-20`; `21+` above the last end."""
    first = part["longer_than"] + 1
    return f"{first}+" if part["up_to"] is None else f"{first}-{part['up_to']}"


def diversity_tables(diversity: Mapping[str, Mapping[str, Json]]) -> Iterator[Json]:
    """Of `diversity.json` by test set and entry."""
    for test, entries in diversity.items():
        yield {
            "title": f"Quality and diversity of samples on {test}",
            "caption": (
                "BLEU of one sample a sentence, the mean over ranks, and pairwise BLEU: of each sample against each other one of "
                "its sentence; the lower, the more diverse."
            ),
            "words": 1,
            "columns": ["system and search", "samples", "BLEU", "pairwise BLEU"],
            "rows": [
                [entry, str(found["samples"]), _number(found["bleu"], 2), _number(found["pairwise_bleu"], 2)]
                for entry, found in entries.items()
            ],
        }


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
