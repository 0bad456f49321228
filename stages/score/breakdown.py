"""Breakdowns of scores: by the length of references and sources, of several hypotheses for a sentence, and of placeholders."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fewstep.pieces import pieces_of
from fewstep.system.description import read_description
from fewstep.system.format import BundleError
from fewstep.system.networks import sizes_of
from fewstep.system.system import encode_lines
from fewstep.text.glossary import Glossary
from fewstep.text.placeholders import placeholders
from stages.artifacts import Hypotheses, System
from stages.errors import ArtifactError
from stages.shared.decoding.sentences import Sentence
from stages.shared.scoring.metrics import Comparison, score
from stages.shared.scoring.tokenizers import bleu_metric
from stages.shared.shards import read_shards


def by_length(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], lengths: Sequence[int], bins: Sequence[int], how: Comparison
) -> dict[str, Any]:
    """Return BLEU by the length of the first reference.

    `bins` are the upper ends of the bins in words; a last bin holds longer references. `lengths` are the lengths of the first
    references in words.
    """
    inside: list[list[int]] = [[] for _ in range(len(bins) + 1)]
    for row, length in enumerate(lengths):
        inside[bisect_left(bins, length)].append(row)
    found: list[dict[str, Any]] = []
    for rows, longer_than, up_to in zip(inside, (0, *bins), (*bins, None), strict=True):
        found.append({"longer_than": longer_than, "up_to": up_to, **_scored(rows, hypotheses, references, how)})
    return {"bins": found}


def by_source_length(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], lengths: Sequence[int], count: int, how: Comparison
) -> dict[str, Any]:
    """Return BLEU by the length of the source, for `count` bins of equal numbers of sentences (Zhang et al. 2020, figure 3).

    `lengths` are the lengths of the sources in words. Sources of equal length are in the order of the text; the first bins have a
    sentence more than the last ones if the number of sentences is no multiple of `count`.
    """
    ordered = sorted(range(len(lengths)), key=lambda row: lengths[row])
    found = []
    size, longer = divmod(len(ordered), count)
    for number in range(count):
        start = number * size + min(number, longer)
        rows = ordered[start : start + size + (number < longer)]
        ends = (lengths[rows[0]], lengths[rows[-1]]) if rows else (None, None)
        found.append({"shortest": ends[0], "longest": ends[1], **_scored(rows, hypotheses, references, how)})
    return {"bins": found}


def _scored(rows: Sequence[int], hypotheses: Sequence[str], references: Sequence[Sequence[str]], how: Comparison) -> dict[str, Any]:
    bleu = score("bleu", [hypotheses[row] for row in rows], [references[row] for row in rows], how)["score"] if rows else None
    return {"sentences": len(rows), "bleu": bleu}


def diversity(samples: Sequence[Sequence[str]], references: Sequence[Sequence[str]], how: Comparison) -> dict[str, Any]:
    """Return the quality and diversity of the samples, or other hypotheses, of each sentence (Shen et al. 2019).

    `bleu`: BLEU of one sample a sentence against all references, mean over ranks. `pairwise_bleu`: BLEU of each sample against each
    other sample of its sentence as the only reference, over all such pairs; lower is more diverse. `oracle_bleu`: BLEU of the
    best sample of each sentence. With several references also `matched`, see `matched_references`. Sentences with fewer samples
    than others, such as blank ones, are left out and counted.
    """
    count = max(map(len, samples), default=0)
    full = [row for row, texts in enumerate(samples) if len(texts) == count]
    known = [references[row] for row in full]
    chosen = [samples[row] for row in full]
    best = oracle(chosen, known, how)
    ranks = [score("bleu", [samples[row][rank] for row in full], known, how)["score"] for rank in range(count)]
    pairs = [(one, other) for one in range(count) for other in range(count) if one != other]
    written = [samples[row][one] for row in full for one, _ in pairs]
    others = [[samples[row][other]] for row in full for _, other in pairs]
    return {
        "samples": count,
        "sentences": len(full),
        "left_out": len(samples) - len(full),
        "bleu": round(sum(ranks) / count, 4),
        "bleu_by_rank": ranks,
        "pairwise_bleu": score("bleu", written, others, how)["score"] if written else None,
        "oracle_bleu": score("bleu", best, known, how)["score"],
        **({"matched": matched_references(chosen, known, how)} if max(map(len, known), default=1) > 1 else {}),
    }


def oracle(samples: Sequence[Sequence[str]], references: Sequence[Sequence[str]], how: Comparison) -> list[str]:
    """Return the sample of each sentence with the highest sentence BLEU against all of its references; the first of several."""
    metric = bleu_metric(how.tokenizer, how.lowercase, effective_order=True)
    return [
        max(texts, key=lambda text, known=list(known): metric.sentence_score(text, known).score)  # type: ignore[misc]
        for texts, known in zip(samples, references, strict=True)
    ]


def matched_references(samples: Sequence[Sequence[str]], references: Sequence[Sequence[str]], how: Comparison) -> dict[str, Any]:
    """Return how samples match the references one by one (Ott et al. 2018).

    `references`: mean number of references of a sentence. `bleu`: sentence BLEU of a sample against the reference that it is
    closest to, mean over all samples. `covered`: mean number of the references of a sentence that some sample is closest to.
    """
    metric = bleu_metric(how.tokenizer, how.lowercase, effective_order=True)
    scores = [
        [[metric.sentence_score(text, [reference]).score for reference in known] for text in texts]
        for texts, known in zip(samples, references, strict=True)
    ]
    closest = [max(found) for sentence in scores for found in sentence]
    covered = [len({found.index(max(found)) for found in sentence}) for sentence in scores]
    return {
        "references": round(sum(map(len, references)) / len(references), 4),
        "bleu": round(sum(closest) / len(closest), 4),
        "covered": round(sum(covered) / len(covered), 4),
    }


def repeated(rows: Sequence[Sequence[Any]]) -> dict[str, int]:
    """Return the numbers of tokens or words that equal the one before them in their row, and of all (Xia et al. 2022, table 9)."""
    pairs = (one == other for row in rows for one, other in pairwise(row))
    return {"repeated": sum(pairs), "total": sum(map(len, rows))}


def put_back(hypotheses: Hypotheses, sentences: Sequence[Sentence]) -> list[int]:
    """Return how many masks were put back into the best hypothesis of each sentence; 0 for systems without masks."""
    found = dict[int, int]()
    for table in read_shards(hypotheses.path):
        if "put_back" in table.column_names:
            rows = table.select(["id", "rank", "put_back"]).to_pydict()
            found |= {id_: count for id_, rank, count in zip(*rows.values(), strict=True) if not rank}
    return [found.get(sentence.id, 0) for sentence in sentences]


def placeholders_kept(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], masks_put_back: Sequence[int]
) -> dict[str, Any]:
    """Return how many sentences have the placeholders of their sources (`fewstep.text.placeholders`), each as often, and no others.

    `sentences`: those whose source has a placeholder; `kept` and `reference_kept`: those of them whose hypothesis, or reference,
    has the same ones; `searched`: those of `kept` into which no mask was put back, of `masks_put_back` for each sentence. `kinds`:
    for each kind of placeholder the number in the sources, and that in the hypotheses as well. Empty for sources without
    placeholders.
    """
    sentences = kept = searched = reference_kept = 0
    total, found = Counter[str](), Counter[str]()
    for source, hypothesis, reference, added in zip(sources, hypotheses, references, masks_put_back, strict=True):
        wanted = placeholders_of(source)
        if not wanted:
            continue
        written = placeholders_of(hypothesis)
        sentences += 1
        kept += wanted == written
        searched += wanted == written and not added
        reference_kept += wanted == placeholders_of(reference)
        for (kind, _), count in wanted.items():
            total[kind] += count
        for (kind, _), count in (wanted & written).items():
            found[kind] += count
    if not sentences:
        return {}
    kinds = {kind: {"total": total[kind], "kept": found[kind]} for kind in sorted(total)}
    return {"sentences": sentences, "kept": kept, "searched": searched, "reference_kept": reference_kept, "kinds": kinds}


def terms_honoured(
    glossary: Glossary, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, int]:
    """Return how many terms of a glossary the sources have (`terms`), in how many `sentences`, and how many of these terms the
    hypotheses (`honoured`) and the references (`reference_honoured`) have as the glossary states."""
    found = [glossary.honoured(source, text) for source, text in zip(sources, hypotheses, strict=True)]
    known = [glossary.honoured(source, text) for source, text in zip(sources, references, strict=True)]
    return {
        "terms": sum(count for count, _ in found),
        "sentences": sum(count > 0 for count, _ in found),
        "honoured": sum(count for _, count in found),
        "reference_honoured": sum(count for _, count in known),
    }


def placeholders_of(text: str) -> Counter[tuple[str, str]]:
    """Return the placeholders of a text with their kinds."""
    return Counter((str(one.lastgroup), one[0]) for one in placeholders(text))


def best_tokens(hypotheses: Hypotheses) -> list[list[int]]:
    """Return the tokens of the best hypothesis of each sentence, without EOS, in the order of the shards."""
    tokens: list[list[int]] = []
    for table in read_shards(hypotheses.path):
        rows = table.select(["rank", "ids"]).to_pydict()
        tokens += [ids for rank, ids in zip(rows["rank"], rows["ids"], strict=True) if not rank]
    return tokens


def tokens_of(system: System, texts: Sequence[str]) -> list[list[int]]:
    """Return the tokens of target texts in the vocabulary of a system. Raises ArtifactError for a damaged system."""
    try:
        description = read_description(system.path, verify=False)
        pieces = pieces_of(system.path, description, "target", sizes_of(system.path, description).target)
    except BundleError as error:
        raise ArtifactError(f"{error}; remove the artifact and run again") from error
    return encode_lines(pieces, texts)
