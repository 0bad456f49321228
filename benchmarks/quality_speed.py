"""Draw quality against speed, the figure of the README, from the table of all systems.

    python -m benchmarks.quality_speed [FILE] [--output docs/figures/quality-speed.svg]

All rows of the table are drawn as dots; those of `LABELS` are named. Speed is the ratio to the first row, on a logarithmic scale.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("entry", "BLEU", "speed-up")
FAMILIES = {  # what a system's name starts with: its name in the legend, colour and mark
    "ctranslate2": ("CTranslate2", "#64748b", "s"),
    "autoregressive": ("one token a step", "#2563a8", "o"),
    "distilled": ("one token a step", "#2563a8", "o"),
    "shallow": ("one token a step", "#2563a8", "o"),
    "interleaved": ("two or four tokens a step", "#c2560c", "^"),
    "aggressive": ("draft and verify", "#7c3aa8", "D"),
    "dag": ("directed acyclic graph", "#1f7a4d", "v"),
    "lattice": ("lattice", "#b4235a", "P"),
}


class Label(NamedTuple):
    """A named entry: its text, and where that stands, in points from the mark."""

    text: str
    shift: tuple[float, float]
    align: str = "left"


LABELS = {
    "autoregressive/greedy": Label("greedy, float32", (-6, -12), "right"),
    "autoregressive/greedy-int8": Label("greedy, int8", (0, -14), "center"),
    "autoregressive/greedy-shortlist300x16-int8": Label("greedy, int8, shortlist", (0, -14), "center"),
    "distilled/greedy-shortlist300x16-int8": Label("distilled, greedy", (9, -1)),
    "distilled/beam-beam_threshold2-shortlist300x16-int8": Label("distilled, pruned beam 5", (-8, 6), "right"),
    "shallow/greedy-shortlist300x16-int8": Label("one decoder layer, greedy", (4, -15), "center"),
    "shallow/beam-beam_threshold2-shortlist300x16-int8": Label("one decoder layer,\npruned beam 5", (9, -7)),
    "interleaved/greedy-shortlist300x16-int8": Label("interleaved", (8, 4)),
    "interleaved-sa-shallow/greedy-shortlist300x16-int8-ngram_weight0.3-end_threshold0.7-deduplicate": Label(
        "interleaved-sa,\ntwo decoder layers", (9, -8)
    ),
    "aggressive/gad-draft_width5-draft_shortlist300x16-draft_precision_int8-verifier_precision_int8-shortlist300x16": Label(
        "draft and verify", (-8, -3), "right"
    ),
    "dag-distilled-longest/lookahead-shortlist300x16-int8": Label("graph, lookahead", (-8, 4), "right"),
    "lattice/viterbi-candidate_threshold10-union-token_bonus0.5-int8": Label("lattice", (7, -10)),
}


def family(entry: str) -> tuple[str, str, str]:
    """Return the legend's name, the colour and the mark of an entry, `system/search`."""
    system, _, search = entry.partition("/")
    key = "ctranslate2" if "ctranslate2" in search else next(name for name in FAMILIES if system.startswith(name))
    return FAMILIES[key]


def read(file: Path) -> dict[str, tuple[float, float]]:
    """Return the speed and the quality of each entry of a table."""
    table = json.loads(file.read_text(encoding="utf-8"))
    entry, quality, speed = (table["columns"].index(column) for column in COLUMNS)
    return {row[entry]: (float(row[speed].rstrip("x")), float(row[quality])) for row in table["rows"]}


def draw(entries: dict[str, tuple[float, float]], axes: Axes) -> None:
    """Draw all entries: the named ones with their names, the others pale."""
    if missing := LABELS.keys() - entries.keys():
        raise SystemExit(f"LABELS: expected entries of the table, found none named {', '.join(sorted(missing))}; rename the labels")
    seen: set[str] = set()
    for entry, (speed, quality) in sorted(entries.items(), key=lambda item: item[0] in LABELS):
        name, color, mark = family(entry)
        label = LABELS.get(entry)
        legend = name if label and name not in seen else None
        axes.plot(speed, quality, mark, color=color, markersize=8 if label else 4, alpha=1 if label else 0.25, label=legend)
        if label:
            seen.add(name)
            axes.annotate(
                label.text, (speed, quality), label.shift, textcoords="offset points", ha=label.align, fontsize=9, color=color
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=ROOT / "benchmarks/results/systems.json")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/figures/quality-speed.svg")
    arguments = parser.parse_args()
    mpl.use("svg")
    mpl.rcParams.update(
        {"svg.hashsalt": "fewstep", "svg.fonttype": "none", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    )
    figure, axes = pyplot.subplots(figsize=(9, 4.8), layout="constrained")
    draw(read(arguments.file), axes)
    axes.set(xscale="log", xlim=(0.27, 14), ylim=(38.4, 42.3))
    axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5x", "1x", "2x", "4x", "8x"])
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_xlabel("speed for one sentence, relative to greedy decoding in float32")
    axes.set_ylabel("BLEU")
    axes.grid(color="#e2e8f0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(loc="lower left", frameon=False, fontsize=9)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.output, metadata={"Date": None})


if __name__ == "__main__":
    main()
