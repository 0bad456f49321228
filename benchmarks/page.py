"""Write docs/results.md from the tables below benchmarks/results.

    python -m benchmarks.page

`make results` runs this command.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.record import ORIGIN, Table, load

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results"
PAGE = ROOT / "docs/results.md"
ORDER = (
    "at_a_glance",
    "like_for_like",
    "like_for_like_zen4",
    "int8_without_vnni",
    "base_size",
    "training_loop",
    "serving",
    "corpus_scale",
    "faults",
    "word_alignment",
    "candidate_recall",
    "ngram",
    "distillation",
    "orders",
    "systems",
    "lattices",
    "dag",
    "drafts",
)
"""Names of the files on the page, in its order."""
ASIDE = (
    "serving_memory",
    "base_size_profile",
    "base_size_roofline",
    "ctranslate2_settings",
    "word_alignment_zen4",
    "ngram_zen4",
    "weight_bits",
    "translation_memory",
    "parallel_order",
    "parallel_multi30k",
    "parallel_multi30k_small",
    "drafters",
    "gpu",
    "gpu_graphs",
    "quickstart",
    "localisation",
    "conventions",
    "conventions_graphs",
    "conventions_trainings",
    "conventions_unbuilt",
)
"""Names of files that the page links to, of details that few readers ask for."""
INTRODUCTION = """\
# Results

`make results` writes this page from `benchmarks/results`, whose files programs of `benchmarks` replace with `--json`.

- Commands have today's names of programs, configs and keys, and entries today's labels of systems and searches. BLEU is
  lower-cased on Multi30k English-German test_2016. Times are medians and include tokenisation, unless stated.
- Speeds are ratios within one run, because the machines are shared: 1.7x is 1.7 times as fast as the named baseline. "Like for
  like" means that the baseline has the same engine, precision, shortlist and kind of search; other ratios also contain their gain.
- A label is a search's strategy and its options: `shortlist300x16` is a shortlist of 300 common tokens and 16 links a source
  token, `ngram_weight` the weight of an n-gram model over coupled slots (bigram coupling). Without others a beam has 5 outputs.
- Only in files: [localisation](../benchmarks/results/localisation.json), [graphs on a GPU](../benchmarks/results/gpu_graphs.json),
  [a translation memory](../benchmarks/results/translation_memory.json), [one-shot](../benchmarks/results/parallel_order.json), [4
  bits](../benchmarks/results/weight_bits.json), [beams by their conventions](../benchmarks/results/conventions.json), [samples by
  theirs](../benchmarks/results/conventions_graphs.json), [trainings by theirs](../benchmarks/results/conventions_trainings.json),
  [forms without a key](../benchmarks/results/conventions_unbuilt.json), [quickstart](../benchmarks/results/quickstart.json),
  [memory](../benchmarks/results/serving_memory.json), [drafters](../benchmarks/results/drafters.json),
  [limits](../benchmarks/results/base_size_roofline.json), [Multi30k](../benchmarks/results/parallel_multi30k.json), [settings of
  CTranslate2](../benchmarks/results/ctranslate2_settings.json), [profiles](../benchmarks/results/base_size_profile.json),
  [GPU](../benchmarks/results/gpu.json), [small](../benchmarks/results/parallel_multi30k_small.json), and on a loaded Zen 4 [word
  alignment](../benchmarks/results/word_alignment_zen4.json) and [n-grams](../benchmarks/results/ngram_zen4.json).
"""


def main() -> None:
    PAGE.write_text(page({name: load(RESULTS / f"{name}.json") for name in ORDER}), encoding="utf-8")


def page(tables: dict[str, Table]) -> str:
    """Return the page with all tables in the given order, a heading for each section."""
    parts = [INTRODUCTION]
    for section, members in groupby(tables.items(), key=lambda item: item[1].section):
        parts += [f"## {section}", *(shown(name, table) for name, table in members)]
    return "\n".join(parts)


def shown(name: str, table: Table) -> str:
    """Return one table: explanation, origin, rows."""
    hidden = len(table.rows) - len(table.visible)
    more = f" Rows that are only in [{name}.json](../benchmarks/results/{name}.json): {hidden}." if hidden else ""
    rows = [_line(row) for row in (table.columns, ["---"] * len(table.columns), *table.visible)]
    return "\n".join([table.explanation + more, origin(table), "", *rows, ""])


def origin(table: Table) -> str:
    """Return the line that states where the figures come from and names the fields that were not recorded."""
    versions = table.versions and ", ".join(f"{name} {version}" for name, version in table.versions.items())
    fields = {
        "command": table.command and f"`{table.command}`",
        "commit": table.commit,
        "machine": table.machine,
        "versions": versions,
        "seed": table.seed,
        "rounds": table.rounds and ", ".join(map(str, table.rounds)),
        "spread": table.spread,
    }
    known = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    unknown = [name for name in ORIGIN if fields[name] is None]
    parts = ["; ".join(known), f"not recorded: {', '.join(unknown)}" if unknown else "", table.note or ""]
    sentences = [part[0].upper() + part[1:].removesuffix(".") for part in parts if part]
    return f"*{'. '.join(sentences)}.*"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
