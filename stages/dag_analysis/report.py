"""The part of the report on the DAGs of networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from stages.shared.figures.drawing import Colours
from stages.shared.report_parts import Artifacts, Json, Part, Table, number, read, recorded_figures, share


def show(artifacts: Artifacts, colours: Colours) -> Part:
    """Return the tables of `dag_analysis.json`, and for each system and text with drawings a section."""
    found = read(artifacts, "dag_analysis.json")
    sections = {
        f"DAGs of {system} on {text}": [
            replace(figure, layout="own") if figure.name.endswith("-dag") else figure
            for figure in recorded_figures(artifact, f"dag.{system}.{text}.")
        ]
        for text, systems in artifacts.items()
        for system, artifact in systems.items()
    }
    return Part({"dag_analysis": found}, tables=list(dag_tables(found)), sections=sections)


def dag_tables(analyses: Mapping[str, Mapping[str, Json]]) -> Iterator[Table]:
    """Yield the tables of `dag_analysis.json`, given by text and system."""
    networks = [(system, text, found) for text, systems in analyses.items() for system, found in systems.items()]
    if not networks:
        return
    rows = [row for system, text, found in networks for row in _targets(system, text, found)]
    yield Table(
        title="Targets in the DAGs",
        caption=(
            "Percentage of target tokens on the best path that are the most probable token of their vertex: text tokens only, and "
            "with BOS and EOS. Spread: effective number of vertices of a token given the target (exp of the entropy, mean over "
            "tokens). No path: targets that are longer than their DAG."
        ),
        text_columns=2,
        columns=["network", "text", "sentences", "no path", "tokens right", "with ends", "spread"],
        rows=rows,
    )
    yield Table(
        title="Vertices of the DAGs",
        caption=(
            "Percentage of the inner vertices that are likely (passing probability above 0.5), confident (not likely, but the best "
            "token is above 0.5) and vague (both below 0.2). One successor: among vertices with a passing probability of at least "
            "0.2, those whose most probable transitions (80 % of the mass) lead to a single token."
        ),
        text_columns=2,
        columns=["network", "text", "vertices", "likely", "confident", "vague", "one successor"],
        rows=[
            [
                system,
                text,
                f"{found['vertices']:,}",
                *(share(found[name], found["vertices"]) for name in ("likely", "confident", "vague")),
                share(found["out_degrees"].get("1", 0), sum(found["out_degrees"].values())),
            ]
            for system, text, found in networks
        ],
    )


def _targets(system: str, text: str, found: Json) -> Iterator[list[str]]:
    networks = [(system, found)]
    if early := found.get("early"):
        networks.insert(0, (f"{system}, update {early['update']:,}", early))
    for name, counts in networks:
        ends = 2 * counts["aligned"]
        yield [
            name, text, f"{counts['sentences']:,}", f"{counts['impossible']:,}", share(counts["correct"], counts["tokens"]),
            share(counts["correct"] + counts["correct_ends"], counts["tokens"] + ends), number(counts["spread"], 2),
        ]  # fmt: skip
