"""The part of the report on the slots of parallel systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stages.shared.figures.drawing import Colours
from stages.shared.report_parts import Artifacts, Json, Part, Table, number, read, share


def show(artifacts: Artifacts, colours: Colours) -> Part:
    """Return the tables of `parallel_analysis.json`."""
    found = read(artifacts, "parallel_analysis.json")
    return Part({"parallel_analysis": found}, tables=list(slot_tables(found)))


def slot_tables(analyses: Mapping[str, Mapping[str, Json]]) -> Iterator[Table]:
    """Yield the tables of `parallel_analysis.json`, given by text and system."""
    networks = [(system, text, found) for text, systems in analyses.items() for system, found in systems.items()]
    if not networks:
        return
    yield Table(
        title="Targets in the slots",
        caption=(
            "Percentage of target tokens that their slot ranks first: the slot at their own position, or with CTC the slots of the "
            "best alignment, over which a token takes the mean. No alignment: targets that need more slots. Choices: effective "
            "number of tokens of a slot (exp of the mean entropy)."
        ),
        text_columns=2,
        columns=["network", "text", "sentences", "no alignment", "tokens right", "choices"],
        rows=[
            [
                system, text, f"{found['sentences']:,}", f"{found['impossible']:,}", share(found["correct"], found["tokens"]),
                number(found["choices"], 2),
            ]
            for system, text, found in networks
        ],
    )  # fmt: skip
    yield Table(
        title="Recall of slots",
        caption=(
            "Percentage of target tokens among the K best tokens of their slot, of any slot of theirs with CTC, whose blank takes "
            "no rank. With the predicted length, tokens beyond it are not found."
        ),
        text_columns=3,
        columns=["network", "text", "length", *(f"K = {size}" for size in networks[0][2]["candidates"])],
        rows=[
            [system, text, name, *(f"{100 * share:.1f}" for share in found[kind])]
            for system, text, found in networks
            for kind, name in (("recall", "true"), ("recall_predicted_length", "predicted"))
            if kind in found
        ],
    )
