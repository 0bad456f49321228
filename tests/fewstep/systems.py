"""Small systems of every family on disk, with random networks, tables and an n-gram model, that several tests share."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from fewstep.config.network import Sizes
from fewstep.config.options import OutputLimits, Shortlist
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.parallel.config import ParallelConfig, ParallelSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.system.format import WEIGHTS
from fewstep.text.masks import symbols
from fewstep.vocabulary import RESERVED, vocabulary_digest
from kernels import NgramModel
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates
from models.bundle.directory import load_model, save_model, write_system
from models.family import family_named
from tests.models.lattice.made import usual_pairs

WORDS = ["ein", "zwei", "drei", "blau", "grün", "hund", "katze", "läuft", "springt", "schnell"]
LINES = [
    "ein hund läuft",
    "",
    "zwei katze springt schnell blau",
    "   ",
    "drei",
    "grün hund <unbekannt> ein",
    "schnell schnell läuft katze ein hund blau",
    "ein " * 30,
]
"""Sources: blank ones, one with unknown characters, and one that is cut."""
SIZES = Sizes(37, 37, True)
SMALL = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "feed_forward": 16, "heads": 2, "max_positions": 24}
LIMITS = OutputLimits(max_extra_tokens=4)
SHORTLIST = Shortlist(tokens=12, links=4)
BEAM = StepwiseSearch(strategy="beam", beam_size=3, n_best=2, output_limits=LIMITS)
GREEDY = StepwiseSearch(output_limits=LIMITS)
LOOKAHEAD = DagSearch(token_weight=0.1)
"""With more weight on tokens, a random graph is left at once: the last vertex writes EOS with certainty."""
GRAPHS = {
    "lookahead": LOOKAHEAD,
    "greedy": DagSearch(strategy="greedy", deduplicate=False),
    "viterbi": DagSearch(strategy="viterbi"),
    "joint": DagSearch(strategy="joint-viterbi"),
    "walk": replace(LOOKAHEAD, no_repeat_ngram=2),
    "beam": DagSearch(strategy="beam", beam_size=20, n_best=3, ngram_weight=0.043, token_weight=0.1),
    "short": replace(LOOKAHEAD, shortlist=SHORTLIST),
    "int8": replace(LOOKAHEAD, precision="int8"),
}
DRAFTS = {
    "gad": AggressiveSearch(output_limits=LIMITS),
    "gad++": AggressiveSearch(strategy="gad++", output_limits=LIMITS),
    "draft": AggressiveSearch(strategy="draft", output_limits=LIMITS),
    "greedy": AggressiveSearch(strategy="greedy", output_limits=LIMITS),
    "lookup": AggressiveSearch(drafter="lookup", output_limits=LIMITS),
    "jacobi": AggressiveSearch(drafter="jacobi", output_limits=LIMITS),
    "short": AggressiveSearch(shortlist=SHORTLIST, draft_shortlist=SHORTLIST, draft_precision="int8", output_limits=LIMITS),
    "int8": AggressiveSearch(verifier_precision="int8", adaptive=True, output_limits=LIMITS),
}
TREES = {
    "tree": AggressiveSearch(tree_nodes=6, output_limits=LIMITS),
    "wide": AggressiveSearch(tree_nodes=50, tree_branches=100, output_limits=LIMITS),
}
"""Trees of drafts; the second has more branches than the vocabulary has tokens."""
MODELS = {
    "model": AggressiveSearch(drafter="draft_model", output_limits=LIMITS),
    "model tree": AggressiveSearch(drafter="draft_model", tree_nodes=6, draft_precision="int8", output_limits=LIMITS),
}
SLOTS = {
    "greedy": ParallelSearch(),
    "lengths": ParallelSearch(length_candidates=3, n_best=2),
    "short": ParallelSearch(shortlist=SHORTLIST, deduplicate=True),
    "int8": ParallelSearch(precision="int8", shortlist=SHORTLIST),
}
ALIGNMENTS = {
    "greedy": ParallelSearch(),
    "beam": ParallelSearch(strategy="prefix-beam", beam_size=4, candidates=4, n_best=2, ngram_weight=0.3),
    "int8": ParallelSearch(precision="int8", shortlist=SHORTLIST),
}
SYSTEMS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "autoregressive": (
        "stepwise",
        StepwiseConfig(**SMALL),
        {
            "greedy": GREEDY,
            "beam": BEAM,
            "gnmt": replace(BEAM, length_penalty_form="gnmt", beam_threshold=3.0, deduplicate=True),
            "short": replace(GREEDY, shortlist=SHORTLIST),
            "int8": replace(BEAM, precision="int8"),
        },
    ),
    "ensemble": ("stepwise", StepwiseConfig(**SMALL), {"greedy": GREEDY, "beam": BEAM}),
    "interleaved": ("stepwise", StepwiseConfig(**SMALL, order="interleaved"), {"greedy": GREEDY, "beam": BEAM}),
    "interleaved-sa": (
        "stepwise",
        StepwiseConfig(**SMALL, order="interleaved-sa"),
        {
            "greedy": GREEDY,
            "coupled": replace(GREEDY, ngram_weight=0.5, deduplicate=True),
            "beam": replace(BEAM, selection="outer"),
        },
    ),
    "dag": ("dag", DagConfig(**SMALL, graph_factor=3), GRAPHS),
    "dag-predicted": ("dag", DagConfig(**SMALL, graph_size="predicted", graph_factor=2), GRAPHS),
    "lattice": (
        "lattice",
        LatticeModelConfig(**SMALL, segment_length=2, normalizer_penalty=0.1, word_dropout=0.1),
        {
            "viterbi": LatticeSearch(candidates=4, token_bonus=4.0),
            "local": LatticeSearch(candidates=8, normalizer="local", count_weight=0.3),
            "union": LatticeSearch(candidates=4, normalizer="union", candidate_threshold=2.0),
            "selfnorm": LatticeSearch(candidates=4, normalizer="selfnorm"),
            "best": LatticeSearch(candidates=4, n_best=3, confidences=True, token_bonus=4.0),
            "lookup": LatticeSearch(strategy="lookup"),
            "int8": LatticeSearch(candidates=4, precision="int8", token_bonus=4.0),
        },
    ),
    "aggressive": (
        "aggressive",
        AggressiveConfig(**SMALL, draft_width=4),
        DRAFTS | TREES | {"system": AggressiveSearch(drafter="system", output_limits=LIMITS)},
    ),
    "shared": (
        "aggressive",
        AggressiveConfig(**SMALL, encoder="shared", draft_width=3, prefix_attention="causal"),
        DRAFTS | MODELS,
    ),
    "head": (
        "aggressive",
        AggressiveConfig(**SMALL, drafting="autoregressive", encoder="shared", draft_width=4),
        DRAFTS | TREES | {"confident": AggressiveSearch(confidence=0.2, output_limits=LIMITS)},
    ),
    "medusa": (
        "aggressive",
        AggressiveConfig(**SMALL, drafting="medusa", encoder="shared", draft_width=3),
        {label: search for label, search in DRAFTS.items() if label != "draft"} | TREES,
    ),
    "glat": ("parallel", ParallelConfig(**SMALL, objective="glat"), SLOTS),
    "ctc": ("parallel", ParallelConfig(**SMALL, objective="ctc"), ALIGNMENTS),
    "cmlm": (
        "parallel",
        ParallelConfig(**SMALL, objective="cmlm"),
        SLOTS | {"passes": ParallelSearch(strategy="mask-predict", iterations=4, length_candidates=2)},
    ),
}
"""The family, the network and the searches of each system."""


def write_systems(root: Path) -> dict[str, Path]:
    """Write all systems below a folder, and return their directories by name."""
    pieces = train_pieces(root / "joint")
    for name, (family, config, searches) in SYSTEMS.items():
        verifier = root / "autoregressive-trained" if family == "aggressive" and config.encoder == "shared" else None
        weights = train(root / f"{name}-trained", family, config, 5, verifier)
        more: dict[str, Any] = {"tables": root / "tables.bin", "ngram": root / "model.ngram"}
        if name == "autoregressive":
            count_tables(root / "tables.bin", pieces)
            estimate_ngram(root / "model.ngram", pieces)
        elif name == "ensemble":
            more = {"members": [train(root / "member", family, config, 3)]}
        elif family == "lattice":
            del more["ngram"]
        elif family == "aggressive":
            drafting = root / ("autoregressive" if name == "shared" else "dag")
            more = {"tables": root / "tables.bin", "companions": {"verifier": root / "autoregressive", "drafter": drafting}}
        write(root / name, family, config, searches, weights, pieces, **more)
    return {name: root / name for name in SYSTEMS}


def write(directory: Path, family: str, config: Any, searches: Mapping[str, Any], weights: Path, pieces: Path, **more: Any) -> None:
    """Write one system."""
    write_system(
        directory,
        family=family,
        network=config,
        sizes=SIZES,
        weights=weights,
        source_vocabulary=pieces,
        target_vocabulary=pieces,
        name=directory.name,
        source_language="en",
        target_language="de",
        searches=searches,
        **more,
    )


def write_masked(root: Path, *names: str, kinds: Sequence[str] = ("term",)) -> dict[str, Path]:
    """Write systems of `SYSTEMS`, each with its first search alone, whose vocabulary has masks of a kind; by name."""
    root.mkdir(exist_ok=True)
    pieces = train_pieces(root / "masked", symbols(kinds))
    for name in names:
        family, config, searches = SYSTEMS[name]
        first = dict(list(searches.items())[:1])
        write(root / name, family, config, first, train(root / f"{name}-trained", family, config, 5), pieces)
    return {name: root / name for name in names}


def train_pieces(prefix: Path, masks: Sequence[str] = ()) -> Path:
    """Train a vocabulary, and return its file."""
    draw = random.Random(1)
    SentencePieceTrainer.train(
        sentence_iterator=iter(" ".join(draw.choices(WORDS, k=6)) for _ in range(200)),
        model_prefix=str(prefix),
        vocab_size=SIZES.target,
        normalization_rule_name="identity",
        num_threads=1,
        minloglevel=2,
        **{f"{name}_id": index for index, name in enumerate(("pad", "bos", "eos", "unk"))},
        **{f"{name}_piece": RESERVED[index] for index, name in enumerate(("pad", "bos", "eos", "unk"))},
        control_symbols=list(RESERVED[4:]),
        user_defined_symbols=list(masks),
    )
    return prefix.with_suffix(".model")


def train(directory: Path, family: str, config: Any, seed: int, verifier: Path | None = None) -> Path:
    """Write a random network with sharp outputs, and return the file of its weights. A drafter shares those of `verifier`."""
    torch.manual_seed(seed)
    model = family_named(family).functions.build(config, SIZES)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.endswith(".bias"):
                values.add_(torch.randn_like(values) * 0.1)
        model.target_embedding.weight.mul_(2 if family == "lattice" else 4)
        if family == "aggressive":
            model.words.counts.copy_(torch.randperm(SIZES.target))
    if verifier is not None:
        taken = load_model(verifier).state_dict()
        model.load_state_dict(model.state_dict() | {name: taken[name] for name in model.shared_parameters()})
    save_model(directory, family, config, SIZES, model.state_dict())
    return directory / WEIGHTS


def count_tables(path: Path, pieces: Path) -> None:
    """Count candidate tables of the vocabulary `pieces`, with a backoff, so that shortlists can use them."""
    folder = path.with_suffix(".vocabulary")
    folder.mkdir()
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(pieces.read_bytes())
    pairs = usual_pairs(size=SIZES.target)
    source, target, links = (Sentences.of([pair[side] for pair in pairs]) for side in range(3))
    options = CountOptions(source_size=SIZES.source, target_size=SIZES.target)
    count_candidates(source, target, links.values, path.with_suffix(".run"), options=options)
    digest = vocabulary_digest(folder)
    merge_candidates([path.with_suffix(".run")], path, options=TableOptions(backoff=4.0, vocabulary=digest))


def estimate_ngram(path: Path, pieces: Path) -> None:
    """Estimate an n-gram model of the pieces of random lines."""
    draw, processor = random.Random(2), SentencePieceProcessor(str(pieces))
    lines = [processor.encode(" ".join(draw.choices(WORDS, k=6)), out_type=str) for _ in range(50)]
    NgramModel.estimate(lines, 3, discount_fallback=(0.5, 1.0, 1.5)).save(path)
