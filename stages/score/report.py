"""The part of the report on breakdowns of scores: the ends of hypotheses, lengths, samples, repetition and placeholders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from stages.shared.figures.canvas import WIDE_PANEL, panel, style
from stages.shared.figures.drawing import Colours, Drawing, Entry, Figure, panel_of, plot_entries
from stages.shared.report_parts import Artifacts, Json, Part, Table, number, read, share
from stages.shared.scoring.ngram_metrics import END_ORDERS, ENDS


def show(artifacts: Artifacts, colours: Colours) -> Part:
    """Return the tables and figures of the optional files of scores, given by test set and entry."""
    kinds = ("head_and_tail", "by_length", "by_source_length", "diversity", "repetition", "placeholders", "terms")
    found = {kind: read(artifacts, f"{kind}.json") for kind in kinds}
    tables = [
        *end_tables(found["head_and_tail"]),
        *length_tables(found["by_length"]),
        *source_length_tables(found["by_source_length"]),
        *diversity_tables(found["diversity"]),
        *repetition_tables(found["repetition"]),
        *placeholder_tables(found["placeholders"]),
        *term_tables(found["terms"]),
    ]
    lengths = [length_figure(test, entries, colours) for test, entries in found["by_length"].items()]
    samples = [figure for test, entries in found["diversity"].items() if (figure := diversity_figure(test, entries, colours))]
    return Part(found, tables=tables, figures=[*lengths, *samples])


def end_tables(head_and_tail: Mapping[str, Mapping[str, Json]]) -> Iterator[Table]:
    """Yield a table for each test set of `head_and_tail.json`, given by test set and entry."""
    for test, entries in head_and_tail.items():
        first = next(iter(entries.values()))
        yield Table(
            title=f"Precision at the ends of hypotheses on {test}",
            caption=(
                "Percentage of n-grams of all, the first or the last words of hypotheses that also occur in the references, for "
                f"the {first['sentences']:,} sentences whose reference has more than {first['longer_than']} words."
            ),
            columns=["system and search", "n-grams", *ENDS],
            rows=[
                [entry, str(order), *(number(found["precision"][str(order)][part], 1) for part in ENDS)]
                for order in END_ORDERS
                for entry, found in entries.items()
            ],
        )


def length_tables(by_length: Mapping[str, Mapping[str, Json]]) -> Iterator[Table]:
    """Yield a table for each test set of `by_length.json`, given by test set and entry."""
    for test, entries in by_length.items():
        bins = next(iter(entries.values()))["bins"]
        counts = ", ".join(f"{bin_name(part)}: {part['sentences']:,}" for part in bins)
        yield Table(
            title=f"BLEU by reference length on {test}",
            caption=f"Bins are in words of the first reference. Sentences: {counts}.",
            columns=["system and search", *map(bin_name, bins)],
            rows=[[entry, *(number(part["bleu"], 2) for part in found["bins"])] for entry, found in entries.items()],
        )


def source_length_tables(by_length: Mapping[str, Mapping[str, Json]]) -> Iterator[Table]:
    """Yield a table for each test set of `by_source_length.json`, given by test set and entry."""
    for test, entries in by_length.items():
        bins = next(iter(entries.values()))["bins"]
        counts = ", ".join(f"{part['sentences']:,}" for part in bins)
        yield Table(
            title=f"BLEU by source length on {test}",
            caption=f"Bins of equal numbers of sentences, by the words of the source. Sentences: {counts}.",
            columns=["system and search", *(f"{part['shortest']}-{part['longest']}" for part in bins)],
            rows=[[entry, *(number(part["bleu"], 2) for part in found["bins"])] for entry, found in entries.items()],
        )


def bin_name(part: Json) -> str:
    """Return the name of a bin of lengths: `11-20`, or `21+` for the last one."""
    first = part["longer_than"] + 1
    return f"{first}+" if part["up_to"] is None else f"{first}-{part['up_to']}"


def diversity_tables(diversity: Mapping[str, Mapping[str, Json]]) -> Iterator[Table]:
    """Yield a table for each test set of `diversity.json`, given by test set and entry."""
    for test, entries in diversity.items():
        yield Table(
            title=f"Quality and diversity of samples on {test}",
            caption=(
                "Samples, or the hypotheses of a beam. BLEU: one sample a sentence against all references, mean over ranks. "
                "Pairwise BLEU: each sample against each other sample of its sentence; lower is more diverse. Oracle BLEU: the "
                "best sample of each sentence."
            ),
            columns=["system and search", "samples", "BLEU", "pairwise BLEU", "oracle BLEU"],
            rows=[
                [
                    entry,
                    str(found["samples"]),
                    *(number(found[name], 2) for name in ("bleu", "pairwise_bleu", "oracle_bleu")),
                ]
                for entry, found in entries.items()
            ],
        )
        if matched := {entry: found["matched"] for entry, found in entries.items() if "matched" in found}:
            yield _matched_table(test, matched)


def _matched_table(test: str, matched: Mapping[str, Json]) -> Table:
    return Table(
        title=f"Samples and single references on {test}",
        caption=(
            "BLEU: sentence BLEU of a sample against the reference that it is closest to, mean over all samples. Covered: mean "
            "number of the references of a sentence that some sample is closest to (Ott et al. 2018)."
        ),
        columns=["system and search", "BLEU", "references", "covered"],
        rows=[[entry, *(number(found[name], 2) for name in ("bleu", "references", "covered"))] for entry, found in matched.items()],
    )


def repetition_tables(repetition: Mapping[str, Mapping[str, Json]]) -> Iterator[Table]:
    """Yield a table for each test set of `repetition.json`, given by test set and entry."""
    for test, entries in repetition.items():
        references = next(iter(entries.values()))["reference_words"]
        yield Table(
            title=f"Repetition on {test}",
            caption=(
                "Percentage of the tokens, and of the words, of hypotheses that equal the one before them; also that of the first "
                "references in the tokens of the system. In the first references it is "
                f"{share(references['repeated'], references['total'], 2)} % of the words."
            ),
            columns=["system and search", "tokens, %", "reference tokens, %", "words, %"],
            rows=[
                [
                    entry,
                    *(share(found[unit]["repeated"], found[unit]["total"], 2) for unit in ("tokens", "reference_tokens", "words")),
                ]
                for entry, found in entries.items()
            ],
        )


def placeholder_tables(kept: Mapping[str, Mapping[str, Json]]) -> Iterator[Table]:
    """Yield a table for each test set of `placeholders.json`, given by test set and entry."""
    for test, entries in kept.items():
        first = next(iter(entries.values()))
        kinds = list(first["kinds"])
        counts = ", ".join(f"{kind}: {first['kinds'][kind]['total']:,}" for kind in kinds)
        yield Table(
            title=f"Placeholders kept on {test}",
            caption=(
                "Percentage of the sentences with placeholders whose output has the same ones, each as often and no others; and of "
                f"the placeholders of each kind that are in the output. {first['sentences']:,} sources have placeholders "
                f"({counts}); {share(first['reference_kept'], first['sentences'])} % of their first references have the same ones. "
                "By the search: without sentences into which masks were put back that no hypothesis had."
            ),
            columns=["system and search", "sentences with all, %", "by the search, %", *(f"{kind}, %" for kind in kinds)],
            rows=[
                [
                    entry,
                    share(found["kept"], found["sentences"]),
                    share(found["searched"], found["sentences"]),
                    *(share(found["kinds"][kind]["kept"], found["kinds"][kind]["total"]) for kind in kinds),
                ]
                for entry, found in entries.items()
            ],
        )


def term_tables(terms: Mapping[str, Mapping[str, Json]]) -> Iterator[Table]:
    """Yield a table for each test set of `terms.json`, given by test set and entry."""
    for test, entries in terms.items():
        first = next(iter(entries.values()))
        yield Table(
            title=f"Terms honoured on {test}",
            caption=(
                f"Percentage of the {first['terms']:,} terms of the glossary, in {first['sentences']:,} sources, that outputs have "
                f"as the glossary states; in the first references it is {share(first['reference_honoured'], first['terms'])} %. "
                "Entries whose search ends with `glossary` were given the glossary."
            ),
            columns=["system and search", "terms honoured, %"],
            rows=[[entry, share(found["honoured"], found["terms"])] for entry, found in entries.items()],
        )


def length_figure(test: str, entries: Mapping[str, Json], colours: Colours) -> Figure:
    """Return BLEU by the length of references."""
    curves = {entry: [(bin_name(part), part["bleu"]) for part in found["bins"]] for entry, found in entries.items()}
    return Figure(f"by_length.{test}", length_curves(curves, colours), f"BLEU on {test} by the length of the reference.")


def diversity_figure(test: str, entries: Mapping[str, Json], colours: Colours) -> Figure | None:
    """Return quality against diversity of samples; None if no entry has several samples."""
    points = {
        entry: (found["pairwise_bleu"], found["bleu"]) for entry, found in entries.items() if found["pairwise_bleu"] is not None
    }
    if not points:
        return None
    caption = (
        f"Quality (BLEU, mean over ranks) of samples on {test} against the similarity of the samples of a sentence. Points "
        "further up are better, points further left more diverse."
    )
    return Figure(f"diversity.{test}", quality_diversity(points, colours), caption)


def length_curves(curves: Mapping[str, Sequence[tuple[str, float | None]]], colours: Colours) -> Drawing:
    """Draw BLEU by reference length, with a line for each entry `system/search`. All lines have the same bins; values may be
    missing."""
    with style():
        figure, axes = panel(WIDE_PANEL)
        heights = {entry: [math.nan if bleu is None else bleu for _, bleu in points] for entry, points in curves.items()}
        key = plot_entries(
            axes, {entry: list(enumerate(line)) for entry, line in heights.items()}, colours, marker="o", markersize=3
        )
        names = [name for name, _ in next(iter(curves.values()))]
        axes.set_xticks(range(len(names)), labels=names)
        axes.set(title="BLEU", xlabel="words of the reference")
        axes.margins(x=0.03)
        return Drawing((panel_of("BLEU by the length of the reference", figure),), key)


def quality_diversity(points: Mapping[str, tuple[float, float]], colours: Colours) -> Drawing:
    """Draw points (pairwise BLEU, BLEU) of entries `system/search`; the points of one system are joined by a line."""
    with style():
        figure, axes = panel(WIDE_PANEL)
        systems = list(dict.fromkeys(entry.partition("/")[0] for entry in points))
        for system in systems:
            own = sorted(position for entry, position in points.items() if entry.partition("/")[0] == system)
            axes.plot(*zip(*own, strict=True), color=colours[system], linewidth=1.4, marker="o", markersize=5)
        for entry, position in points.items():
            search = entry.partition("/")[2]
            axes.annotate(search, position, xytext=(5, 5), textcoords="offset points", fontsize=8)
        axes.set(title="BLEU of samples", xlabel="pairwise BLEU among samples (lower is more diverse)")
        axes.margins(x=0.1, y=0.15)
        key = tuple(Entry(system, colours[system]) for system in systems)
        return Drawing((panel_of("Quality against diversity of samples", figure),), key)
