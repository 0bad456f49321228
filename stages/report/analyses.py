"""What a report tells of systems besides scores and speed, where it was asked for: each part is a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.errors import DataError
from stages.ngram.counts import END_ORDERS, ENDS
from stages.report.breakdown_tables import diversity_tables, graph_tables, length_tables

if TYPE_CHECKING:
    from stages.report import ReportConfig, ReportInputs

Json = dict[str, Any]


@dataclass(frozen=True)
class Analyses:
    """Deterministic, like all of `results.json`."""

    likelihood: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`likelihood.json` by test set and system."""
    mutual_information: dict[str, list[Json]] = field(default_factory=dict)
    """By test set: for each pair of systems `name`, `parallel`, `sequential`, `step_size`, `nats_a_step`, `log10_ratio`."""
    contrastive: dict[str, Json] = field(default_factory=dict)
    """`contrastive.json` by system."""
    head_and_tail: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`head_and_tail.json` by test set and entry."""
    by_length: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`by_length.json` by test set and entry."""
    diversity: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`diversity.json` by test set and entry."""
    graphs: dict[str, dict[str, Json]] = field(default_factory=dict)
    """`dag_analysis.json` by text and system."""
    tuned: dict[str, Json] = field(default_factory=dict)
    """`tuned.json` by entry."""

    def to_json(self) -> Json:
        """The parts that were asked for."""
        return {name: value for name, value in vars(self).items() if value}

    def tables(self) -> list[Json]:
        """Tables of each part: title, caption, columns (the first `words` of them hold words), rows."""
        broken_down = [*length_tables(self.by_length), *diversity_tables(self.diversity), *graph_tables(self.graphs)]
        return [*_tuned(self), *_dependence(self), *_agreement(self), *_ends(self), *broken_down]


def analyse(inputs: ReportInputs, config: ReportConfig) -> Analyses:
    """Read what steps left. Raises DataError for perplexities that cannot be compared."""
    likelihood = {
        test: {system: _read(found.path / "likelihood.json") for system, found in systems.items()}
        for test, systems in inputs.likelihoods.items()
    }
    pairs = config.together
    return Analyses(
        likelihood=likelihood,
        mutual_information={
            test: [mutual_information(name, pair.parallel, pair.sequential, pair.step_size, found) for name, pair in pairs.items()]
            for test, found in likelihood.items()
            if pairs
        },
        contrastive={system: _read(found.path / "contrastive.json") for system, found in inputs.contrasts.items()},
        head_and_tail=_told(inputs, "head_and_tail.json"),
        by_length=_told(inputs, "by_length.json"),
        diversity=_told(inputs, "diversity.json"),
        graphs={
            text: {system: _read(found.path / "dag_analysis.json") for system, found in systems.items()}
            for text, systems in inputs.dag_analyses.items()
        },
        tuned={entry: _read(found.path / "tuned.json") for entry, found in inputs.tuned.items()},
    )


def _told(inputs: ReportInputs, name: str) -> dict[str, dict[str, Json]]:
    """A file that some scores have, by test set and entry."""
    found: dict[str, dict[str, Json]] = {}
    for item in inputs.evaluated:
        if (path := item.scores.path / name).is_file():
            found.setdefault(item.test, {})[f"{item.system}/{item.search}"] = _read(path)
    return found


def perplexity(found: Mapping[str, Any]) -> Json:
    """`likelihood.json` as a metric: `score` and `signature`."""
    left_out = sum(found["left_out"].values())
    rows = f"{found['rows'] - left_out}" + (f" of {found['rows']}" if left_out else "")
    return {
        "score": round(found["perplexity"], 4),
        "signature": f"sentences:{rows}|tokens:subwords+eos|vocabulary:{found['vocabulary']}",
    }


def _tuned(found: Analyses) -> Iterator[Json]:
    if not found.tuned:
        return
    tried = list(dict.fromkeys(one["length_penalty"] for entry in found.tuned.values() for one in entry["tried"]))
    scores = {entry: {one["length_penalty"]: one["score"] for one in told["tried"]} for entry, told in found.tuned.items()}
    yield {
        "title": "Length penalties",
        "caption": "What the validation text scores with each length penalty tried; tests were decoded with the one chosen.",
        "columns": ["entry", "chosen", *(f"{penalty:g}" for penalty in tried)],
        "rows": [
            [entry, f"{told['length_penalty']:g}", *(f"{scores[entry][penalty]:.2f}" for penalty in tried)]
            for entry, told in found.tuned.items()
        ],
        "words": 1,
    }


def mutual_information(name: str, parallel: str, sequential: str, step_size: int, likelihood: Mapping[str, Json]) -> Json:
    """How much the tokens that `parallel` writes together tell of each other, by what it loses against `sequential`, which knows
    the one when it writes the other (Zhang, Titov and Sennrich 2020, appendix B).

    Raises DataError when the two scored other tokens.
    """
    one, other = likelihood[parallel], likelihood[sequential]
    for key in ("tokens", "vocabulary"):
        if one[key] != other[key]:
            raise DataError(
                f"evaluation.mutual_information.{name}: expected systems that score the same tokens, "
                f"got {parallel} with {key} {one[key]} and {sequential} with {other[key]}"
            )
    loss = (other["log_probability"] - one["log_probability"]) / one["tokens"]
    return {
        "name": name,
        "parallel": parallel,
        "sequential": sequential,
        "step_size": step_size,
        "nats_a_step": round(step_size * loss, 6),
        "log10_ratio": round(loss / log(10), 6),
    }


def _dependence(analyses: Analyses) -> Iterator[Json]:
    for test, pairs in analyses.mutual_information.items():
        found = analyses.likelihood[test]
        yield {
            "title": f"Mutual information of tokens written together on {test}",
            "caption": (
                "Estimated from what a system that writes several tokens a step loses in perplexity (ppl) against one that "
                "writes the same arrangement one by one. Nats: of the tokens of a step (of a pair, where a step has two). "
                "log10: of the ratio of perplexities, as Zhang et al. (2020) report it. Less than 0 means that the one by one "
                "model is simply the worse one."
            ),
            "columns": ["pair", "together", "one by one", "tokens", "ppl", "ppl 1 by 1", "nats", "log10"],
            "words": 3,
            "rows": [
                [
                    pair["name"],
                    pair["parallel"],
                    pair["sequential"],
                    str(pair["step_size"]),
                    f"{found[pair['parallel']]['perplexity']:.3f}",
                    f"{found[pair['sequential']]['perplexity']:.3f}",
                    f"{pair['nats_a_step']:.3f}",
                    f"{pair['log10_ratio']:.3f}",
                ]
                for pair in pairs
            ],
        }


def _agreement(analyses: Analyses) -> Iterator[Json]:
    systems = analyses.contrastive
    if not systems:
        return
    bands = next(iter(systems.values()))["bands"]
    counts = ", ".join(f"{band['distance']}: {band['pairs']:,}" for band in bands)
    yield {
        "title": "Agreement of verbs with distant subjects",
        "caption": (
            "Per cent of minimal pairs in which the right translation is likelier than the one whose verb is in the wrong number "
            "(by chance: 50), in all, in all by log-probability per token, and by distance in words from the subject to the verb. "
            f"Pairs: {counts}."
        ),
        "words": 1,
        "columns": ["system", "all", "per token", *(band["distance"] for band in bands)],
        "rows": [
            [
                system,
                _share(found["correct"], found["pairs"]),
                _share(found["correct_by_mean"], found["pairs"]),
                *(_share(band["correct"], band["pairs"]) for band in found["bands"]),
            ]
            for system, found in systems.items()
        ],
    }


def _share(part: int, whole: int) -> str:
    return _number(100 * part / whole if whole else None)


def _ends(analyses: Analyses) -> Iterator[Json]:
    for test, entries in analyses.head_and_tail.items():
        first = next(iter(entries.values()))
        yield {
            "title": f"Precision at the ends of hypotheses on {test}",
            "caption": (
                "Per cent of the n-grams of all, the first or the last words of hypotheses that their references have, in the "
                f"{first['sentences']:,} sentences whose reference has more than {first['longer_than']} words."
            ),
            "words": 1,
            "columns": ["system and search", "n-grams", *ENDS],
            "rows": [
                [entry, str(order), *(_number(found["precision"][str(order)][part]) for part in ENDS)]
                for order in END_ORDERS
                for entry, found in entries.items()
            ],
        }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _read(path: Path) -> Json:
    return dict(json.loads(path.read_text(encoding="utf-8")))
