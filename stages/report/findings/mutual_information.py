"""The mutual information of the tokens of a step, from the likelihoods of pairs of systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import log

from stages.errors import DataError
from stages.report import SystemPair
from stages.shared.report_parts import Json, Table


def compare_pairs(pairs: Mapping[str, SystemPair], likelihood: Mapping[str, Mapping[str, Json]]) -> dict[str, list[Json]]:
    """Return the estimates for all pairs by test set, from `likelihood.json` by test set and system; empty without pairs."""
    if not pairs:
        return {}
    return {
        test: [mutual_information(name, pair.parallel, pair.sequential, pair.step_size, found) for name, pair in pairs.items()]
        for test, found in likelihood.items()
    }


def mutual_information(name: str, parallel: str, sequential: str, step_size: int, likelihood: Mapping[str, Json]) -> Json:
    """Estimate the mutual information of the tokens that `parallel` writes in one step (Zhang, Titov and Sennrich 2020, appendix
    B).

    The estimate is the loss in log-probability against `sequential`, which conditions each of these tokens on the others.
    Raises DataError when the two systems scored different tokens.
    """
    one, other = likelihood[parallel], likelihood[sequential]
    for key in ("tokens", "vocabulary"):
        if one[key] != other[key]:
            raise DataError(
                f"evaluation.mutual_information.{name}: expected systems that score the same tokens, "
                f"got {parallel} with {key} {one[key]} and {sequential} with {other[key]}; "
                "choose systems with the same vocabulary and length limits"
            )
    loss = (other["log_probability"] - one["log_probability"]) / one["tokens"]
    return {
        "name": name, "parallel": parallel, "sequential": sequential, "step_size": step_size,
        "nats_per_step": round(step_size * loss, 6), "log10_ratio": round(loss / log(10), 6),
    }  # fmt: skip


def information_tables(information: Mapping[str, list[Json]], likelihood: Mapping[str, Mapping[str, Json]]) -> Iterator[Table]:
    """Yield a table for each test set."""
    for test, pairs in information.items():
        found = likelihood[test]
        yield Table(
            title=f"Mutual information of the tokens of a step on {test}",
            caption=(
                "Estimated from the perplexity (ppl) of a system that writes several tokens a step, compared with one that writes "
                "the same order token by token. Nats: for all tokens of a step. log10: logarithm of the ratio of the perplexities, "
                "as Zhang et al. (2020) report it. A negative value means that the sequential model is worse."
            ),
            columns=["pair", "parallel", "sequential", "tokens", "ppl par.", "ppl seq.", "nats", "log10"],
            text_columns=3,
            rows=[
                [
                    pair["name"], pair["parallel"], pair["sequential"], str(pair["step_size"]),
                    f"{found[pair['parallel']]['perplexity']:.3f}", f"{found[pair['sequential']]['perplexity']:.3f}",
                    f"{pair['nats_per_step']:.3f}", f"{pair['log10_ratio']:.3f}",
                ]
                for pair in pairs
            ],
        )  # fmt: skip
