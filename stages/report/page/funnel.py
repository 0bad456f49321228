"""The funnel of the training text: pairs read, dropped by reason, kept, truncated and distilled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.report.findings.results import Findings
from stages.report.page.markdown import cut_line
from stages.report.page.markup import Markup, Section, count, element, table


def corpus(findings: Findings, distilled: Mapping[str, Mapping[str, Any]]) -> Section:
    """Return the funnel; `distilled` holds the counts of distilled texts by step."""
    ledger, cut = findings.corpus, cut_line(findings)
    below = element("p", cut, class_="note") if cut else None
    funnels = list(_texts(ledger, distilled))
    if "pairs_in" not in ledger:
        funnels.insert(0, element("p", f"{ledger['rows']:,} pairs.", class_="note"))
    note = _note(ledger)
    return Section("corpus", "Training text", [*funnels, element("p", note, class_="note") if note else None, below], "Corpus")


def _texts(ledger: Mapping[str, Any], distilled: Mapping[str, Mapping[str, Any]]) -> Iterator[Markup]:
    heads = ["", "pairs left", "share", "", "dropped", "examples"]
    if "pairs_in" in ledger:
        rows = list(_rows("read", ledger["pairs_in"], ledger["dropped"], "kept", ledger.get("samples", {})))
        yield table(heads, rows, text=(0, 3, 5), sortable=False)
    for step, found in distilled.items():
        dropped = {name: pairs for name, pairs in found.items() if name not in ("rows", "kept") and isinstance(pairs, int)}
        rows = list(_rows("decoded by the teacher", found["rows"], dropped, "usable targets", {}))
        yield table([step, *heads[1:]], rows, text=(0, 3, 5), sortable=False)


def _rows(
    first: str, total: int, dropped: Mapping[str, int], last: str, samples: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[list[object]]:
    """Yield the rows of a funnel: all pairs, those left after each reason that dropped some, and those kept."""
    left = total
    yield [element("b", first), f"{total:,}", "", _bar(left, 0, total), "", ""]
    for reason, pairs in dropped.items():
        if pairs:
            left -= pairs
            examples = _examples(samples.get(reason, []))
            yield [_words(reason), f"{left:,}", f"{left / total:.1%}", _bar(left, pairs, total), f"−{pairs:,}", examples]
    yield [element("b", last), element("b", f"{left:,}"), f"{left / max(total, 1):.1%}", _bar(left, 0, total), "", ""]


def _bar(left: int, dropped: int, total: int) -> Markup:
    """Return a bar of the pairs that are left, and behind it those that were dropped."""
    parts = [("left", left), ("dropped", dropped)]
    spans = [element("span", "", class_=kind, style=f"width:{100 * pairs / max(total, 1):.2f}%") for kind, pairs in parts if pairs]
    return element("span", *spans, class_="funnel", role="img", aria_label=f"{left:,} of {total:,} pairs")


def _note(ledger: Mapping[str, Any]) -> str:
    if "pairs_in" not in ledger:
        return ""
    unused = [_words(reason) for reason, pairs in ledger["dropped"].items() if not pairs]
    note = "A pair is counted under the first reason that applies."
    return f"{note} No pair was dropped for: {', '.join(unused)}." if unused else note


def _examples(samples: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not samples:
        return None
    texts = [element("div", sample["source"], element("br"), sample["target"], class_="pair") for sample in samples]
    return element("details", element("summary", count(len(samples), "example")), *texts)


def _words(name: str) -> str:
    return name.replace("_", " ")
