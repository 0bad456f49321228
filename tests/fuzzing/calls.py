"""Calls of the functions of the compiled extension whose arguments are changed: they answer or refuse, whatever they are given.

Each function has a call that it answers. All changes of one argument are tried one after the other, then several at a time.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import pairwise
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fewstep.native import fewstep_native
from fewstep.networks.arrays import TransformerShape, expected_arrays, native_arguments
from tests.fuzzing.numbers import at, changes, places, replaced, without

WIDTH, HEADS, VOCABULARY, POSITIONS, SLOTS, CLASSES = 8, 2, 13, 9, 12, 5
SHAPE = TransformerShape(encoder_layers=1, decoder_layers=1, width=WIDTH, feed_forward=8, heads=HEADS, norm="pre", logits_bias=True)
BATCH = {"sources": np.array([[7, 8, 2], [9, 2, 0]]), "lengths": np.array([3, 2])}
SHORTLIST = {"common_tokens": np.arange(8), "linked_tokens": np.arange(VOCABULARY * 2).reshape(VOCABULARY, 2) % VOCABULARY}
NO_LEXICON = {"common_tokens": np.zeros(0, np.int64), "linked_tokens": np.zeros((0, 0), np.int64)}


class Call(NamedTuple):
    """A call that is answered, with keyword arguments alone."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    use: Callable[[Any], object] = lambda found: None
    """A use of the result."""


def numbers(seed: int, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return random numbers."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def network(seed: int, shape: TransformerShape = SHAPE, **more: tuple[int, ...]) -> dict[str, Any]:
    """Return the arguments of a network with random arrays, and `more` of these shapes."""
    rows = {"target_embedding": VOCABULARY, "source_embedding": VOCABULARY, "source_positions": POSITIONS, "slot_codes": SLOTS}
    wanted = expected_arrays(shape, own_source=True) | more
    sizes = {name: (rows[name], *size[1:]) if name in rows else size for name, size in wanted.items()}
    sizes["logits_bias"] = (VOCABULARY,)
    return native_arguments({name: numbers(seed, *size) for name, size in sizes.items()}, wanted | {"logits_bias": (-1,)}, shape)


def calls(directory: Path) -> list[Call]:
    """Return a call of each function; files are written to `directory`."""
    ngram = _ngram()
    return [
        *_transformer_calls(ngram),
        *_aggressive_calls(),
        *_dag_network_calls(),
        *_parallel_calls(),
        *_lattice_network_calls(directory),
        *_search_calls(ngram),
        *_dag_search_calls(ngram),
        *_lattice_calls(),
        *_training_calls(),
        *_ngram_calls(directory),
        *_align_calls(directory),
        *_candidate_calls(directory),
    ]


def _ngram() -> Any:
    pieces = [b"<pad>", b"<s>", b"</s>", *(f"w{token}".encode() for token in range(3, VOCABULARY))]
    text = b"\n".join(b" ".join(pieces[3 + (line + word) % (VOCABULARY - 3)] for word in range(4)) for line in range(9))
    model, _ = fewstep_native.NgramModel.estimate(text, **ESTIMATION)
    return model.scorer(pieces)


ESTIMATION: dict[str, Any] = {
    "order": 3, "prune": [0, 0, 0], "discount_fallback": (0.5, 1.0, 1.5), "interpolate_unigrams": True, "skip_special": False,
    "threads": 1, "memory": 1 << 30,
}  # fmt: skip
STEPS: dict[str, Any] = {
    **BATCH, "limits": np.array([6, 4]), "step_size": 2, "per_direction": False, "eos": 2, "pad": 0, "alpha": 1.0, "gnmt": False,
    "mask": "block", "directions": 1, "banned": [0, 1], "min_tokens": 1, "no_repeat_ngram": 0, "shortlist_tokens": 8,
    "shortlist_links": 2, "threads": 2,
}  # fmt: skip


def _transformer_calls(ngram: Any) -> Iterator[Call]:
    made = network(1) | SHORTLIST | {"precision": "float32"}
    model = fewstep_native.make_transformer(**made)
    coupling = {"ngram": ngram, "ngram_weight": 0.5, "right_to_left": [False]}
    greedy = STEPS | coupling | {"others": [], "end_threshold": 0.0, "num_candidates": 4}
    beam = STEPS | coupling | {
        "others": [], "beams": 3, "selection": "exact", "n_best": 2, "beam_threshold": 5.0, "num_candidates": 4,
        "separate_eos": True,
    }  # fmt: skip
    for precision in ("float32", "bfloat16", "int8"):
        yield Call(
            "make_transformer", fewstep_native.make_transformer, made | {"precision": precision}, methodcaller("greedy", **greedy)
        )
    yield Call("Transformer.greedy", model.greedy, greedy)
    yield Call("Transformer.beam_search", model.beam_search, beam)
    yield Call("Transformer.beam_search", model.beam_search, beam | {"selection": "outer", "ngram": None, "others": [model]})
    pairs = beam | {"selection": "double-top-k", "ngram": None, "num_candidates": 9, "separate_eos": False}
    yield Call("Transformer.beam_search", model.beam_search, pairs)
    yield Call(
        "PackedMatrix",
        fewstep_native.PackedMatrix,
        {"weights": numbers(1, 5, 7), "bias": numbers(2, 5)},
        methodcaller("multiply", numbers(3, 4, 7)),
    )
    packed = fewstep_native.PackedMatrix(numbers(1, 5, 7), numbers(2, 5))
    yield Call("PackedMatrix.multiply", packed.multiply, {"x": numbers(3, 4, 7), "precision": "int8", "threads": 2})


def _aggressive_calls() -> Iterator[Call]:
    flat = np.zeros(0, np.float32)
    lexicons = SHORTLIST | {f"verifier_{name}": part for name, part in SHORTLIST.items()}
    verifier, drafter = network(1), network(2)
    made = {
        "verifier": verifier["arrays"], "verifier_shape": verifier["shape"], "drafter": drafter["arrays"],
        "drafter_shape": drafter["shape"], "shares_encoder": False, "shares_words": False, "sight": "all", "codes_in_layers": True,
        "last_token": True, "mask": 4, "copy_queries": flat, "features": flat, "heads": flat, "heads_bias": flat,
        "precision": "float32", **lexicons,
    }  # fmt: skip
    run = {
        **BATCH, "limits": np.array([6, 4]), "hints": [[7, 8, 2], [9, 2]], "proposals": "network", "verify": True, "width": 3,
        "adaptive": False, "tree_nodes": 0, "tree_branches": 4, "draft_shortlist_tokens": 8, "draft_shortlist_links": 2,
        "confidence": 0.0, "int8": False, "ngram": 3, "top_k": 1, "max_logprob_gap": 0.0, "require_top1_eos": True,
        "min_tokens_per_pass": 1.5, "alpha": 1.0, "gnmt": False, "shortlist_tokens": 8, "shortlist_links": 2, "banned": [0, 1],
        "bos": 1, "eos": 2, "min_tokens": 1, "threads": 2,
    }  # fmt: skip
    kinds: dict[str, dict[str, Any]] = {
        "block": {},
        "copy": {"mask": -1, "copy_queries": numbers(3, SLOTS * WIDTH), "sight": "prefix"},
        "features": {"sight": "causal", "features": numbers(3, WIDTH * WIDTH), "shares_encoder": True, "shares_words": True},
        "heads": {"heads": numbers(3, 3 * WIDTH * WIDTH), "heads_bias": numbers(4, 3 * WIDTH), "shares_encoder": True},
        "none": {"drafter": {}, "drafter_shape": {}},
    }
    for kind, parts in kinds.items():
        used = run | ({"proposals": "lookup", "draft_shortlist_links": 0} if kind == "none" else {"int8": kind == "block"})
        yield Call(f"make_aggressive {kind}", fewstep_native.make_aggressive, made | parts, methodcaller("run", **used))
        model = fewstep_native.make_aggressive(**(made | parts))
        yield Call(f"AggressiveTransformer.run {kind}", model.run, used)
        if kind in ("block", "heads"):
            yield Call(f"AggressiveTransformer.run {kind} tree", model.run, used | {"tree_nodes": 6})
        if kind in ("block", "features"):
            yield Call(f"AggressiveTransformer.run {kind} alone", model.run, used | {"verify": False})
            yield Call(f"AggressiveTransformer.run {kind} loose", model.run, used | {"top_k": 3, "max_logprob_gap": 1.0})


def _dag_network_calls() -> Iterator[Call]:
    links = 2 * WIDTH + HEADS
    made = network(1, links=(links, WIDTH), link_codes=(SLOTS, links), lengths=(CLASSES, WIDTH)) | SHORTLIST
    made |= {"classes": CLASSES, "precision": "float32", "max_transition_length": 4}
    rules = {
        "banned": [0, 1], "bos": 1, "eos": 2, "mask": 4, "shortlist_tokens": 8, "shortlist_links": 2, "length_rank": 1,
        "threads": 2,
    }  # fmt: skip
    lengths = BATCH | {"graph_lengths": np.array([2, 5, 12, 7, 9])}
    given = BATCH | {"graph_lengths": np.array([9, 12])}
    for classes in (CLASSES, 0):
        made["classes"] = classes
        graphs, chosen = (lengths, rules) if classes else (given, rules | {"length_rank": 0})
        model = fewstep_native.make_dag_network(**made)
        follow, scores = graphs | chosen | {"token_weight": 1.0}, graphs | chosen | {"tokens": 3}
        yield Call("make_dag_network", fewstep_native.make_dag_network, dict(made), methodcaller("follow", **follow))
        yield Call("DagNetwork.follow", model.follow, follow)
        yield Call("DagNetwork.scores", model.scores, scores)


def _parallel_calls() -> Iterator[Call]:
    made = network(1, lengths=(CLASSES, WIDTH)) | SHORTLIST | {
        "classes": CLASSES, "input": "mask", "mask": 4, "temperature": 0.3, "upsampling": 0.0, "length_offset": 2, "min_slots": 1,
        "impossible": [0, 1], "precision": "float32",
    }  # fmt: skip
    rules = {"separator": 2, "banned": [0, 1], "shortlist_tokens": 8, "shortlist_links": 2, "threads": 2}
    fill = BATCH | rules | {"candidates": 3, "around": True, "iterations": 3}
    rank = BATCH | rules | {"tokens": 4}
    for slots in ("mask", "uniform", "soft"):
        yield Call(
            "make_parallel_network", fewstep_native.make_parallel_network, made | {"input": slots}, methodcaller("fill", **fill)
        )
    for slots in ("repeat", "gaussian"):
        ctc = made | {"input": slots, "upsampling": 2.0, "classes": 0}
        yield Call("make_parallel_network", fewstep_native.make_parallel_network, ctc, methodcaller("rank", **rank))
        yield Call("ParallelNetwork.rank", fewstep_native.make_parallel_network(**ctc).rank, rank)
    yield Call("ParallelNetwork.fill", fewstep_native.make_parallel_network(**made).fill, fill)


def _lattice_network_calls(directory: Path) -> Iterator[Call]:
    from tests.kernels.candidate_tables import SMALL, build

    (directory / "lattice").mkdir(exist_ok=True)  # an earlier process may have been lost
    tables = fewstep_native.CandidateTables(str(build([SMALL], directory / "lattice").path))
    size = tables.describe()["target_size"]
    made = network(1)
    for name in ("target_embedding", "source_embedding"):
        made["arrays"][name] = numbers(5, size, WIDTH)
    made["arrays"]["logits_bias"] = numbers(6, size)
    made["shape"] |= {"source_vocabulary": tables.describe()["source_size"], "target_vocabulary": size}
    made["arrays"]["source_embedding"] = numbers(5, made["shape"]["source_vocabulary"], WIDTH)
    rules = {
        "normaliser": "local", "count_weight": 0.3, "token_bonus": 0.5, "candidate_threshold": 4.0, "bos": 1, "eos": 2,
        "threads": 2,
    }  # fmt: skip
    sources = BATCH | {"lengths": np.array([3, 2])}
    decode = sources | rules | {"tables": tables, "candidates": 4, "window": 3, "min_prior": 0.0}
    slots, count = 4, 3
    given = sources | rules | {
        "token_ids": np.arange(2 * slots * count).reshape(2, slots, count) % 6, "log_probs": -np.ones((2, slots, count)),
        "min_lengths": np.array([1, 2]), "max_lengths": np.array([4, 3]),
    }  # fmt: skip
    score = given | {
        "start": np.empty((2, count), np.float32), "edges": np.empty((2, slots - 1, count, count), np.float32),
        "exits": np.empty((2, slots, count), np.float32),
    }  # fmt: skip
    model = fewstep_native.make_lattice_network(**made, precision="float32")
    for precision in ("float32", "int8"):
        arguments = made | {"precision": precision}
        yield Call("make_lattice_network", fewstep_native.make_lattice_network, arguments, lambda made: made.decode(**decode))
    for normaliser in ("full", "union", "local", "selfnorm"):
        yield Call("LatticeNetwork.decode", model.decode, decode | {"normaliser": normaliser})
    yield Call("LatticeNetwork.decode_candidates", model.decode_candidates, given)
    yield Call("LatticeNetwork.score", model.score, score)


def _advance(made: dict[str, Any], **step: Any) -> object:
    return fewstep_native.make_beam(**made).advance(**step)


def _search_calls(ngram: Any) -> Iterator[Call]:
    scores = -np.sort(np.abs(numbers(1, 2, 2, 4)))
    ids, ends = np.arange(16).reshape(2, 2, 4) % VOCABULARY, -np.abs(numbers(2, 2, 2))
    coupling = {"ngram": ngram, "ngram_weight": 0.5, "right_to_left": [False]}
    made = {
        "limits": [4, 3], "beams": 3, "step_size": 2, "per_direction": False, "selection": "exact", "eos": 2, "pad": 0,
        "n_best": 2, "alpha": 1.0, "gnmt": False, "beam_threshold": 5.0, **coupling,
    }  # fmt: skip
    step = {"scores": scores, "ids": ids, "eos": ends}
    yield Call("make_beam", fewstep_native.make_beam, made, lambda beam: (beam.advance(**step), beam.outcomes()))
    for selection in ("exact", "outer", "outer-authors", "double-top-k"):
        chosen = made | {"selection": selection, "ngram": ngram if selection == "exact" else None}
        yield Call("Beam.advance", partial(_advance, chosen), step)
    joint = {"scores": scores, "ids": ids, "ends": ends, "eos": 2, "end_threshold": 0.5, **coupling}
    yield Call("choose_jointly", fewstep_native.choose_jointly, joint)
    slots = {"scores": -np.abs(numbers(3, 2, 5, 4)), "token_ids": np.arange(40).reshape(2, 5, 4) % VOCABULARY}
    ctc = slots | {
        "blanks": -np.abs(numbers(4, 2, 5)), "lengths": np.array([5, 3]), "beam_size": 4, "ngram_weight": 0.3, "token_bonus": 0.1,
        "length_penalty": 0.5, "n_best": 2, "ngram": ngram, "threads": 2,
    }  # fmt: skip
    yield Call("ctc_beam", fewstep_native.ctc_beam, ctc)


def _dag_search_calls(ngram: Any) -> Iterator[Call]:
    vertices, count = 7, 3
    later = np.minimum(np.arange(vertices)[:, None] + 1 + np.arange(count), vertices - 1)
    graph = {
        "scores": -np.abs(numbers(1, 2, vertices, count)), "next_vertices": np.stack([later, later]),
        "token_ids": np.arange(2 * vertices * count).reshape(2, vertices, count) % VOCABULARY, "graph_lengths": np.array([7, 5]),
    }  # fmt: skip
    made = {
        "beam_size": 5, "beams_per_length": 3, "candidates": 3, "top_p": 0.9, "length_penalty": 1.0, "count_begin": True,
        "ngram_weight": 0.1, "n_best": 2, "deduplicate": True, "no_repeat_ngram": 2, "no_consecutive_repeat": 2,
    }  # fmt: skip
    search = graph | {"ngram": ngram, "threads": 2}
    yield Call("DagBeam", fewstep_native.DagBeam, made, lambda beam: beam.search(**search))
    yield Call("DagBeam.search", fewstep_native.DagBeam(**made).search, search)
    walk = graph | {"candidates": 3, "top_p": 0.9, "no_repeat_ngram": 2, "no_consecutive_repeat": 2, "threads": 2}
    for seeds in (None, np.array([1, 2])):
        yield Call("dag_walk", fewstep_native.dag_walk, walk | {"seeds": seeds})
    yield Call("dag_follow", fewstep_native.dag_follow, {"next_vertices": later[None, :, 0], "graph_lengths": np.array([7])})
    viterbi = {
        "transition_log_probs": -np.abs(numbers(2, 2, vertices, count)), "token_best": -np.abs(numbers(3, 2, vertices)),
        "graph_lengths": np.array([7, 5]), "max_lengths": np.array([5, 3]), "length_exponent": 1.0, "threads": 2,
    }  # fmt: skip
    yield Call("dag_viterbi", fewstep_native.dag_viterbi, viterbi)
    for kind in (np.float32, np.float64):
        tokens, transitions = numbers(4, 2, 4, vertices).astype(kind), numbers(5, 2, vertices, count).astype(kind)
        batch = {
            "tokens": tokens, "transitions": transitions, "target_lengths": np.array([4, 3]), "graph_lengths": np.array([7, 5]),
        }  # fmt: skip
        for log_space in (False, True):
            result = {"result": np.empty(2, kind), "log_space": log_space, "threads": 2}
            yield Call("dag_log_likelihood", fewstep_native.dag_log_likelihood, batch | result)
            posteriors = {"token_posteriors": np.empty_like(tokens), "transition_posteriors": np.empty_like(transitions)}
            yield Call("dag_posteriors", fewstep_native.dag_posteriors, batch | result | posteriors)
        best = {"vertices": np.empty((2, 4), np.int64), "scores": np.empty(2, kind), "threads": 2}
        yield Call("dag_best_alignment", fewstep_native.dag_best_alignment, batch | best)


def _lattice_calls() -> Iterator[Call]:
    slots, count, n = 5, 4, 3
    for kind in (np.float32, np.float64):
        given = {
            "start": numbers(1, 2, count).astype(kind), "edges": numbers(2, 2, slots - 1, count, count).astype(kind),
            "exits": numbers(3, 2, slots, count).astype(kind), "min_lengths": np.array([1, 2]), "max_lengths": np.array([5, 3]),
            "threads": 2,
        }  # fmt: skip
        rows = {"path": np.empty((2, slots), np.int64), "lengths": np.empty(2, np.int64), "scores": np.empty(2, kind)}
        yield Call("lattice_viterbi", fewstep_native.lattice_viterbi, given | rows)
        ranked = {
            "path": np.empty((2, n, slots), np.int64), "lengths": np.empty((2, n), np.int64), "scores": np.empty((2, n), kind),
        }  # fmt: skip
        yield Call("lattice_n_best", fewstep_native.lattice_n_best, given | ranked)
        marginals = {"marginals": np.empty((2, slots, count), kind)}
        yield Call("lattice_max_marginals", fewstep_native.lattice_max_marginals, given | marginals)


def _training_calls() -> Iterator[Call]:
    for kind in (np.float32, np.uint16):
        values = {"x": numbers(1, 40).astype(kind), "dropped": np.empty(40, kind)}
        yield Call("dropout", fewstep_native.dropout, values | {"probability": 0.1, "seed": 3, "threads": 2})
        heads = {name: numbers(2, 2, 2, 5, 4).astype(kind) for name in ("queries", "keys", "values")}
        options = {
            "seen": np.ones((2, 5), bool), "normalisers": np.zeros((2, 2, 5), np.float32), "causal": True, "dropout": 0.1,
            "seed": 1, "threads": 2,
        }  # fmt: skip
        yield Call("fused_attention", fewstep_native.fused_attention, heads | options | {"mixed": np.empty((2, 2, 5, 4), kind)})
        gradients = {name: np.empty((2, 2, 5, 4), kind) for name in ("upstream", "of_queries", "of_keys", "of_values")}
        gradients["upstream"] = heads["queries"]
        yield Call("fused_attention_gradients", fewstep_native.fused_attention_gradients, heads | options | gradients)
        scored = {
            "logits": numbers(3, 3, 17).astype(kind), "targets": np.array([[1, 2], [3, 4]]), "rows": np.array([0, 3, 5]),
            "normalisers": np.zeros(3, np.float32), "smoothing": 0.1, "threads": 2,
        }  # fmt: skip
        cells = np.zeros((2, 2, 3), np.float32)
        for best in (None, np.empty((2, 3), np.int64)):
            yield Call("token_scores", fewstep_native.token_scores, scored | {"scores": cells, "best": best})
        yield Call("token_gradients", fewstep_native.token_gradients, scored | {"upstream": cells, "penalty": 0.1})


def _ngram_calls(directory: Path) -> Iterator[Call]:
    text, path = b"a b c\nb c\na\n", str(directory / "counts")
    model, _ = fewstep_native.NgramModel.estimate(text, **ESTIMATION)
    counted = {"order": 3, "skip_special": False, "threads": 2}
    words = fewstep_native.ngram_words(text, skip_special=False, threads=1)
    yield Call("NgramModel.estimate", fewstep_native.NgramModel.estimate, {"source": text, **ESTIMATION})
    yield Call("ngram_words", fewstep_native.ngram_words, {"source": text, "skip_special": True, "threads": 2})
    yield Call("count_ngrams", fewstep_native.count_ngrams, {"source": text, "words": words, "path": path, **counted})
    fewstep_native.count_ngrams(text, words, path, **counted)
    opened = fewstep_native.NgramCounts.open([path], words)
    options = {key: ESTIMATION[key] for key in ("prune", "discount_fallback", "interpolate_unigrams", "threads", "memory")}
    estimate = fewstep_native.NgramModel.estimate_counts
    yield Call("NgramModel.estimate_counts", lambda **given: estimate(opened, **given), options)
    yield Call("NgramModel.score_text", model.score_text, {"source": text, "bos": True, "eos": True, "threads": 2})
    yield Call("NgramModel.step", lambda state, word: model.step(state, word), {"state": 0, "word": 1})
    scorer = _ngram()
    yield Call("NgramScorer.step", lambda state, piece: scorer.step(state, piece), {"state": 0, "piece": 1})


ALIGNMENT: dict[str, Any] = {
    "diagonal": True, "variational_bayes": True, "null_word": True, "compatible": True, "p0": 0.08, "alpha": 0.01,
    "max_length": 50,
}  # fmt: skip
IDS: dict[str, Any] = {
    "source_starts": np.array([0, 2, 3]), "source": np.array([0, 1, 1], np.uint32), "target_starts": np.array([0, 2, 3]),
    "target": np.array([0, 1, 2], np.uint32), "source_size": 4, "target_size": 4,
}  # fmt: skip


def _text(**ids: Any) -> Any:
    text = fewstep_native.Bitext()
    text.add_ids(**ids)
    return text


def _aligner(text: Any = None, threads: int = 1, tension: float = 4.0, **options: Any) -> Any:
    made = fewstep_native.align_options(**(ALIGNMENT | options))
    return fewstep_native.Aligner(text or _text(**IDS), False, made, tension, keep_columns=True, threads=threads)


def _trained(aligner: Any) -> object:
    aligner.expect(1)
    aligner.maximise(1)
    links = aligner.align(margins=True, threads=1)
    model = aligner.model()
    return links.format(0, 2, scores=True), model.align(_text(**IDS), 1), [model.row(row) for row in range(4)]


def _align_calls(directory: Path) -> Iterator[Call]:
    native = fewstep_native
    yield Call("align_options", native.align_options, ALIGNMENT, lambda options: _trained(_aligner()))
    yield Call("Bitext.add_ids", lambda **given: _text(**given), IDS, lambda text: _trained(_aligner(text)))
    yield Call("Bitext.add_ids twice", _twice, {"second": IDS}, lambda text: _trained(_aligner(text)))
    lines = {
        "source_starts": np.array([0, 3, 4]), "source": np.frombuffer(b"a bc", np.uint8), "target_starts": np.array([0, 1, 3]),
        "target": np.frombuffer(b"xy ", np.uint8),
    }  # fmt: skip
    yield Call("Bitext.add_lines", _lines, lines, lambda text: _trained(_aligner(text)))
    yield Call("Aligner", _aligner, {**ALIGNMENT, "threads": 2, "tension": 4.0}, _trained)
    links = _aligner().align(margins=True, threads=1)
    yield Call("AlignedLinks.format", links.format, {"first": 0, "last": 2, "words": False, "scores": True})
    yield Call("AlignedLinks.pairs", links.pairs, {"pair": 1})
    yield Call("AlignedLinks.score", links.score, {"pair": 1})
    model = _aligner().model()
    yield Call("AlignModel.cell", model.cell, {"row": 1, "column": 1})
    yield Call("AlignModel.row", model.row, {"row": 1})
    yield Call("AlignModel.align", lambda threads: model.align(_text(**IDS), threads), {"threads": 2})
    yield Call("Bitext.word", lambda id: _lines(**lines).word(id), {"id": 1})
    place = {"j": 2, "m": 5, "n": 4, "tension": 4.0}
    yield Call("diagonal_partition", native.diagonal_partition, place)
    yield Call("diagonal_gradient", native.diagonal_gradient, place | {"compatible": True})
    yield Call("digamma", native.digamma, {"x": 0.5})
    feature = {"sizes": [(3, 4, 2), (5, 1, 1)], "target_words": 11, "tension": 4.0, "compatible": True, "threads": 2}
    yield Call("model_feature", native.model_feature, feature)
    yield Call("step_tension", native.step_tension, {"tension": 4.0, "posterior_feature": -0.1, "model_feature": -0.2})
    yield Call("length_ratio", native.length_ratio, {"sizes": [(3, 4, 2)]})
    yield from _shard_calls()
    symmetric = {"forward": [(0, 0), (1, 2)], "reverse": [(0, 0), (1, 1)], "method": "grow-diag-final-and"}
    yield Call("symmetrise", native.symmetrise, symmetric)
    all_pairs = {
        "target_starts": np.array([0, 2, 3]), "forward": np.array([0, -1, 0], np.int32), "source_starts": np.array([0, 1, 3]),
        "reverse": np.array([1, 0, -1], np.int32), "method": "grow-diag", "threads": 2,
    }  # fmt: skip
    yield Call("symmetrise_all", native.symmetrise_all, all_pairs)


def _twice(second: dict[str, Any]) -> Any:
    text = _text(**IDS)
    text.add_ids(**second)
    return text


def _lines(**lines: Any) -> Any:
    text = fewstep_native.Bitext()
    text.add_lines(**lines)
    return text


def _shard_calls() -> Iterator[Call]:
    native, aligner = fewstep_native, _aligner()
    starts, columns = native.aligner_cells(aligner)
    columns = np.concatenate([np.sort(columns[first:last]) for first, last in pairwise(starts)])
    offsets = native.cell_offsets(starts, columns, starts, columns)
    cells = len(columns)
    low, high = np.ones(cells, np.uint64), np.zeros(cells, np.uint32)
    yield Call("merge_cells", native.merge_cells, {"starts": [starts, starts], "columns": [columns, columns]})
    both = {"whole_starts": starts, "whole": columns, "shard_starts": starts, "shard": columns}
    yield Call("cell_offsets", native.cell_offsets, both)
    counts = {"whole_starts": starts, "shard_starts": starts, "offsets": offsets, "low": low, "high": high}
    yield Call("add_counts", native.add_counts, counts | {"whole_low": low.copy(), "whole_high": high.copy()})
    options = native.align_options(**ALIGNMENT)
    t = np.full(cells, 0.1)
    rows = {"starts": starts, "low": low, "high": high, "options": options, "t": t.copy(), "threads": 2}
    yield Call("maximise_rows", native.maximise_rows, rows)
    taken = {"aligner": aligner, "whole_starts": starts, "offsets": offsets, "whole": t}
    yield Call("aligner_take_probabilities", native.aligner_take_probabilities, taken, lambda _: _trained(aligner))
    model = {
        "starts": starts, "columns": columns, "t": t, "options": options, "reverse": False, "tension": 4.0, "length_ratio": 1.0,
        "words": native.Bitext(),
    }  # fmt: skip
    yield Call("model_of_cells", native.model_of_cells, model, lambda model: model.align(_text(**IDS), 1))


def _candidate_calls(directory: Path) -> Iterator[Call]:
    native, path = fewstep_native, str(directory / "run")
    limits = {"source_size": 9, "target_size": 9, "max_offset": 4, "max_length": 20}
    pairs = {
        "path": path, "source": np.array([7, 8, 7], np.int32), "source_starts": np.array([0, 2, 3]),
        "target": np.array([8, 7, 8], np.int32), "target_starts": np.array([0, 2, 3]), "links": np.array([0, 1, 0], np.int32),
    }  # fmt: skip

    def count(limits: dict[str, int], **given: Any) -> object:
        return native.count_candidates(**given, limits=native.CountLimits(**limits))

    yield Call("count_candidates", count, pairs | {"limits": limits})
    count(limits, **pairs)
    merged = {
        "runs": [path], "path": str(directory / "tables"), "top": 4, "reserved": 7, "tension": 4.0, "backoff": 2.0,
        "vocabulary": b"v" * 32,
    }  # fmt: skip
    native.merge_candidates(**merged)
    tables = native.CandidateTables(merged["path"])
    yield Call("merge_candidates", native.merge_candidates, merged | {"path": str(directory / "others")})
    yield Call("CandidateTables.length", tables.length, {"source_length": 3})
    yield Call("CandidateTables.length_range", tables.length_range, {"source_length": 3, "window": 2})
    yield Call("CandidateTables.row", tables.row, {"piece": 7, "offset": 0})
    yield Call("CandidateTables.lexical_row", tables.lexical_row, {"piece": 7})
    yield Call("CandidateTables.prior", tables.prior, {"source_length": 2, "slot": 1})
    looked_up = {
        "ids": np.array([[7, 8], [7, 0]]), "lengths": np.array([2, 1]), "slots": np.array([3, 2]),
        "token_ids": np.empty((2, 3, 4), np.int64), "log_probs": np.empty((2, 3, 4)), "min_prior": 0.0, "threads": 2,
    }  # fmt: skip
    yield Call("CandidateTables.look_up", tables.look_up, looked_up)


class CallTarget:
    """All calls, of which one is changed in each trial: first each argument by each change, then several at random."""

    refusals: tuple[type[BaseException], ...] = (ValueError, TypeError, MemoryError, OSError, IndexError, OverflowError)

    def __init__(self, scratch: Path | None = None) -> None:
        scratch = scratch or Path(tempfile.mkdtemp())
        os.chdir(scratch)  # functions write where a changed name leads
        self.calls = calls(scratch)
        self.single = [
            (call, path, number)
            for call in self.calls
            for path in places(call.arguments)
            for number, _ in enumerate(changes(at(call.arguments, path)))
        ]

    def trial(self, seed: int) -> str:
        """Make the call with number `seed` among those with one change, or one with several changes."""
        if seed < len(self.single):
            call, path, number = self.single[seed]
            arguments = self._changed(call.arguments, path, number)
            text = f"{call.name}: {'.'.join(map(str, path))}: change {number}"
        else:
            call, arguments, text = self._drawn(random.Random(seed))
        call.use(call.function(**arguments))
        return text

    def _drawn(self, draw: random.Random) -> tuple[Call, dict[str, Any], str]:
        call = draw.choice(self.calls)
        arguments, paths = deepcopy_arrays(call.arguments), list(places(call.arguments))
        text = call.name
        for path in draw.sample(paths, min(len(paths), draw.choice([1, 2, 2, 3]))):
            options = list(changes(at(call.arguments, path)))
            if len(path) > 1 and isinstance(path[-1], str) and draw.random() < 0.1:
                arguments, text = without(arguments, path), f"{text}, without {path}"
            else:
                number = draw.randrange(len(options))
                arguments, text = replaced(arguments, path, options[number]), f"{text}, {path}: change {number}"
        return call, arguments, text

    @staticmethod
    def _changed(arguments: dict[str, Any], path: tuple[Any, ...], number: int) -> dict[str, Any]:
        options = list(changes(at(arguments, path)))
        changed: dict[str, Any] = replaced(deepcopy_arrays(arguments), path, options[number])
        return changed


def deepcopy_arrays(value: Any) -> Any:
    """Return nested values with copies of all arrays, which calls may write to; objects of the extension are shared."""
    if isinstance(value, dict):
        return {key: deepcopy_arrays(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(deepcopy_arrays(part) for part in value)
    return deepcopy(value) if isinstance(value, np.ndarray) else value
