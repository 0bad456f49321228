"""The part of the report on tuned options of searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stages.shared.figures.drawing import Colours
from stages.shared.report_parts import Artifacts, Json, Part, Table, read


def show(artifacts: Artifacts, colours: Colours) -> Part:
    """Return the tables of `tuned.json`."""
    tuned = read(artifacts, "tuned.json").get("", {})
    return Part({"tuned": tuned}, tables=[*_penalties(tuned), *_shortlists(tuned)])


def _penalties(tuned: Mapping[str, Json]) -> Iterator[Table]:
    with_penalty = {entry: one for entry, one in tuned.items() if "length_penalty" in one}
    if not with_penalty:
        return
    penalties = list(dict.fromkeys(one["length_penalty"] for entry in with_penalty.values() for one in entry["candidates"]))
    scores = {name: {one["length_penalty"]: one["score"] for one in entry["candidates"]} for name, entry in with_penalty.items()}
    yield Table(
        title="Length penalties",
        caption="Score of the validation text with each length penalty. The tests were decoded with the chosen one.",
        columns=["entry", "chosen", *(f"{penalty:g}" for penalty in penalties)],
        rows=[
            [name, f"{entry['length_penalty']:g}", *(f"{scores[name][penalty]:.2f}" for penalty in penalties)]
            for name, entry in with_penalty.items()
        ],
    )


def _shortlists(tuned: Mapping[str, Json]) -> Iterator[Table]:
    measured = {entry: one["shortlist"] for entry, one in tuned.items() if "shortlist" in one}
    if not measured:
        return
    yield Table(
        title="Shortlists",
        caption="Sizes of shortlists that hold the expected share of the tokens which the search writes for the validation text "
        "with the whole vocabulary. Where no size suffices, all tokens are ranked.",
        columns=["entry", "expected, %", "tokens", "links", "recall, %", "of tokens"],
        rows=[
            [
                entry, f"{100 * one['expected_recall']:g}", "all" if one["tokens"] is None else str(one["tokens"]),
                str(one["links"]), f"{100 * one['recall']:.2f}", f"{one['written']:,}",
            ]
            for entry, one in measured.items()
        ],
    )  # fmt: skip
