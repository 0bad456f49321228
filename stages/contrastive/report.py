"""The part of the report on contrastive pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stages.contrastive.sentences import AGREEMENT
from stages.shared.figures.canvas import MUTED, WIDE_PANEL, panel, style
from stages.shared.figures.drawing import Colours, Drawing, Entry, Figure, panel_of
from stages.shared.report_parts import Artifacts, Json, Part, Table, read, share

CONTRASTS = (
    ("types", "type", "type of error"),
    ("distances", "distance", "distance in words"),
    ("frequencies", "frequency", "frequency of the word"),
)
"""Lists of `contrastive.json`, the key that names each entry, and its meaning."""


def show(artifacts: Artifacts, colours: Colours) -> Part:
    """Return the tables of `contrastive.json`, and the figure of the agreement of verbs."""
    systems = read(artifacts, "contrastive.json").get("", {})
    figures = [figure for figure in [agreement_figure(systems, colours)] if figure]
    return Part({"contrastive": systems}, tables=[*_agreement(systems), *_contrasts(systems)], figures=figures)


def _agreement(systems: Mapping[str, Json]) -> Iterator[Table]:
    bands = next(iter(systems.values()))["bands"] if systems else []
    if not bands:
        return
    verbs = {system: next(one for one in found["types"] if one["type"] == AGREEMENT) for system, found in systems.items()}
    counts = ", ".join(f"{band['distance']}: {band['pairs']:,}" for band in bands)
    yield Table(
        title="Agreement of verbs with distant subjects",
        caption=(
            "Percentage of minimal pairs in which the correct translation has a higher probability than the one whose verb has "
            "the wrong number (50 by chance). Columns: all pairs, all pairs by log-probability per token, and pairs by distance "
            f"in words from the subject to the verb. Pairs: {counts}."
        ),
        columns=["system", "all", "per token", *(band["distance"] for band in bands)],
        rows=[
            [
                system,
                share(verbs[system]["correct"], verbs[system]["pairs"]),
                share(verbs[system]["correct_by_mean"], verbs[system]["pairs"]),
                *(share(band["correct"], band["pairs"]) for band in found["bands"]),
            ]
            for system, found in systems.items()
        ],
    )


def _contrasts(systems: Mapping[str, Json]) -> Iterator[Table]:
    """Yield the accuracy on contrastive pairs of several types of errors by type, distance and frequency."""
    first = next(iter(systems.values()), None)
    if first is None or len(first["types"]) == 1:
        return
    everything = ["all", f"{first['pairs']:,}", *(share(found["correct"], found["pairs"]) for found in systems.values())]
    for part, key, meaning in CONTRASTS:
        accuracies = [
            [share(found[part][row]["correct"], found[part][row]["pairs"]) for found in systems.values()]
            for row in range(len(first[part]))
        ]
        rows = [[one[key], f"{one['pairs']:,}", *shares] for one, shares in zip(first[part], accuracies, strict=True)]
        if not rows:
            continue
        yield Table(
            title=f"Contrastive pairs by {meaning}",
            caption=(
                "Percentage of contrastive pairs in which the correct translation has a higher probability than the same "
                "translation with one error (50 by chance; Sennrich 2017)."
            ),
            columns=[key, "pairs", *systems],
            rows=[*rows, everything] if part == "types" else rows,
        )


def agreement_figure(systems: Mapping[str, Json], colours: Colours) -> Figure | None:
    """Return the accuracy on pairs with verbs of the wrong number by distance; None without such pairs."""
    curves = {
        system: [(band["distance"], 100 * band["correct"] / band["pairs"]) for band in found["bands"] if band["pairs"]]
        for system, found in systems.items()
        if found["bands"]
    }
    if not curves:
        return None
    caption = (
        "Percentage of minimal pairs in which a system gives the correct translation a higher probability than the one whose "
        "verb has the wrong number, by distance in words from the subject to the verb (50 % by chance)."
    )
    return Figure("agreement", agreement(curves, colours), caption)


def agreement(curves: Mapping[str, Sequence[tuple[str, float]]], colours: Colours) -> Drawing:
    """Draw the accuracy in per cent by distance, with a line for each system. All lines have the same distances."""
    with style():
        figure, axes = panel(WIDE_PANEL)
        for system, points in curves.items():
            axes.plot(*zip(*points, strict=True), color=colours[system], linewidth=1.8, marker="o", markersize=4)
        axes.axhline(50, color=MUTED, linewidth=1.1, linestyle=(0, (4, 3)))
        axes.set(title="Correct verb preferred, %", xlabel="words from subject to verb")
        axes.margins(x=0.03)
        key = tuple(Entry(system, colours[system]) for system in curves)
        return Drawing((panel_of("Correct verbs by distance from the subject", figure),), key)
