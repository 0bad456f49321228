"""Results of a run as text."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.worker import Row

Result = dict[str, Any]


def summary(part: str, row: Row) -> str:
    """Return the result of one task in a line."""
    if "error" in row and not any(key.startswith("batch") for key in row):
        return f"FAILED: {row['error']}" if part == "checks" else str(row["error"])
    return {"limits": _limits, "checks": _check, "decoding": _decoding, "graph loss": _graph_loss, "training": _training}[part](row)


def _limits(row: Row) -> str:
    products = ", ".join(f"{name} {2 * value / 1e12:.1f}" for name, value in row["products"].items())
    replayed = "" if row["replay"] is None else f", in a graph {1e6 * row['replay']:.2f}"
    launches = f"microseconds a launch {1e6 * row['launch']:.2f}{replayed}"
    return f"{row['card']}: {row['bandwidth'] / 1e9:.0f} GB/s, TFLOP/s {products}, {launches}"


def _check(row: Row) -> str:
    return f"{'ok' if row['passed'] else 'FAILED'}, difference {row['difference']:.3g}"


def _graph_loss(row: Row) -> str:
    return ", ".join(f"{name} {value:.3f} ms" for name, value in row["ms"].items())


def _training(row: Row) -> str:
    return f"tokens/s bare {row['bare']:,.0f}, ours {row['ours']:,.0f}"


def _decoding(row: Row) -> str:
    parts = []
    for key, found in row.items():
        if key.startswith("batch"):
            share = f" ({found['share']:.1%} of the limits)" if "share" in found else ""
            parts.append(f"{key}: {found['ms']:.2f} ms{share}")
    return ", ".join([*parts, *([row["error"]] if "error" in row else [])])


def show(result: Result, batches: list[int]) -> None:
    """Print the results as tables."""
    print(f"\n{result.get('card', 'no card')}, torch {result['versions'].get('torch')}, {result['seconds']:.0f} s")
    for part in ("limits", "checks", "graph loss", "training"):
        for row in result[part]:
            print(f"{part:12}{row['name']:36}{summary(part, row)}")
    if result["decoding"]:
        head = "".join(f"{f'batch {batch}: ms':>16}{'sentences/s':>14}{'share':>8}" for batch in batches)
        print(f"{'decoding, ' + result['precision']:36}{head}")
    for row in result["decoding"]:
        measured = [(batch, row[f"batch {batch}"]) for batch in batches if f"batch {batch}" in row]
        text = "".join(_cells(batch, found) for batch, found in measured)
        print(f"{row['name']:36}{text} {row.get('error', '')}")


def _cells(batch: int, found: Row) -> str:
    share = f"{found['share']:.1%}" if "share" in found else ""
    return f"{found['ms']:16.2f}{1000 * batch / found['ms']:14.0f}{share:>8}"
