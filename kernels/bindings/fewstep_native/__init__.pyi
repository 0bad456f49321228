"""The compiled extension as Python sees it. Its users are the modules of `kernels`, which document and check."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

I32: TypeAlias = npt.NDArray[np.int32]
I64: TypeAlias = npt.NDArray[np.int64]
Bool: TypeAlias = npt.NDArray[np.bool_]
U8: TypeAlias = npt.NDArray[np.uint8]
U16: TypeAlias = npt.NDArray[np.uint16]
U32: TypeAlias = npt.NDArray[np.uint32]
U64: TypeAlias = npt.NDArray[np.uint64]
F32: TypeAlias = npt.NDArray[np.float32]
F64: TypeAlias = npt.NDArray[np.float64]
Floats: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Halves: TypeAlias = tuple[int, int]
Sizes: TypeAlias = Sequence[tuple[int, int, int]]
Links: TypeAlias = list[tuple[int, int]]

ABI: int
LEVEL: str
LEVELS: tuple[str, ...]
MISSING: tuple[str, ...]

class AggressiveTransformer:
    def run(
        self,
        sources: I64,
        lengths: I64,
        limits: I64,
        hints: Sequence[Sequence[int]],
        *,
        proposals: str,
        verify: bool,
        width: int,
        adaptive: bool,
        tree_nodes: int,
        tree_branches: int,
        draft_shortlist_tokens: int,
        draft_shortlist_links: int,
        confidence: float,
        int8: bool,
        ngram: int,
        top_k: int,
        max_logprob_gap: float,
        require_top1_eos: bool,
        min_tokens_per_pass: float,
        alpha: float,
        gnmt: bool,
        shortlist_tokens: int,
        shortlist_links: int,
        banned: Sequence[int],
        bos: int,
        eos: int,
        min_tokens: int,
        threads: int,
    ) -> tuple[
        list[tuple[float, list[int], int, float, int, int, bool, list[int], list[int]]], tuple[float, float, float, float, float]
    ]: ...

def make_aggressive(
    verifier: dict[str, F32],
    verifier_shape: dict[str, int],
    drafter: dict[str, F32],
    drafter_shape: dict[str, int],
    *,
    shares_encoder: bool,
    shares_words: bool,
    sight: str,
    codes_in_layers: bool,
    last_token: bool,
    mask: int,
    copy_queries: F32,
    features: F32,
    heads: F32,
    heads_bias: F32,
    common_tokens: I64,
    linked_tokens: I64,
    verifier_common_tokens: I64,
    verifier_linked_tokens: I64,
    precision: str,
    beside: AggressiveTransformer | None = None,
) -> AggressiveTransformer: ...

class Beam:
    def advance(self, scores: F32, ids: I64, eos: F32) -> tuple[I64, I64, I64, I64]: ...
    def outcomes(self) -> list[tuple[list[tuple[float, list[int]]], int, float]]: ...

def make_beam(
    limits: Sequence[int],
    *,
    beams: int,
    step_size: int,
    per_direction: bool,
    selection: str,
    eos: int,
    pad: int,
    n_best: int,
    alpha: float,
    gnmt: bool,
    beam_threshold: float,
    ngram: NgramScorer | None,
    ngram_weight: float,
    right_to_left: Sequence[bool],
) -> Beam: ...
def choose_jointly(
    scores: F32,
    ids: I64,
    ends: F32,
    *,
    eos: int,
    end_threshold: float,
    ngram: NgramScorer | None,
    ngram_weight: float,
    right_to_left: Sequence[bool],
) -> tuple[I64, F32]: ...

class PackedMatrix:
    def __init__(self, weights: F32, bias: F32) -> None: ...
    def multiply(self, x: F32, *, precision: str = "float32", threads: int = 1) -> F32: ...

class Transformer:
    def greedy(
        self,
        sources: I64,
        lengths: I64,
        limits: I64,
        *,
        step_size: int,
        per_direction: bool,
        eos: int,
        pad: int,
        alpha: float,
        gnmt: bool,
        mask: str,
        directions: int,
        banned: Sequence[int],
        min_tokens: int,
        no_repeat_ngram: int,
        shortlist_tokens: int,
        shortlist_links: int,
        threads: int,
        others: Sequence[Transformer],
        ngram: NgramScorer | None,
        ngram_weight: float,
        right_to_left: Sequence[bool],
        end_threshold: float,
        num_candidates: int,
    ) -> list[tuple[list[tuple[float, list[int]]], int, float]]: ...
    def beam_search(
        self,
        sources: I64,
        lengths: I64,
        limits: I64,
        *,
        beams: int,
        step_size: int,
        per_direction: bool,
        selection: str,
        eos: int,
        pad: int,
        n_best: int,
        alpha: float,
        gnmt: bool,
        beam_threshold: float,
        mask: str,
        directions: int,
        banned: Sequence[int],
        min_tokens: int,
        no_repeat_ngram: int,
        shortlist_tokens: int,
        shortlist_links: int,
        num_candidates: int,
        separate_eos: bool,
        threads: int,
        others: Sequence[Transformer],
        ngram: NgramScorer | None,
        ngram_weight: float,
        right_to_left: Sequence[bool],
    ) -> list[tuple[list[tuple[float, list[int]]], int, float]]: ...

def make_transformer(
    arrays: dict[str, F32],
    *,
    shape: dict[str, int],
    common_tokens: I64,
    linked_tokens: I64,
    precision: str,
) -> Transformer: ...

class DagNetwork:
    def follow(
        self,
        sources: I64,
        lengths: I64,
        graph_lengths: I64,
        *,
        token_weight: float,
        banned: Sequence[int],
        bos: int,
        eos: int,
        mask: int,
        shortlist_tokens: int,
        shortlist_links: int,
        length_rank: int,
        threads: int,
    ) -> list[tuple[list[int], float]]: ...
    def scores(
        self,
        sources: I64,
        lengths: I64,
        graph_lengths: I64,
        *,
        tokens: int,
        banned: Sequence[int],
        bos: int,
        eos: int,
        mask: int,
        shortlist_tokens: int,
        shortlist_links: int,
        length_rank: int,
        threads: int,
    ) -> tuple[I64, F32, F32, I64]: ...

def make_dag_network(
    arrays: dict[str, F32],
    *,
    shape: dict[str, int],
    classes: int,
    common_tokens: I64,
    linked_tokens: I64,
    precision: str,
    max_transition_length: int,
) -> DagNetwork: ...

class ParallelNetwork:
    def fill(
        self,
        sources: I64,
        lengths: I64,
        *,
        candidates: int,
        around: bool,
        iterations: int,
        separator: int,
        banned: Sequence[int],
        shortlist_tokens: int,
        shortlist_links: int,
        threads: int,
    ) -> tuple[I64, I64, I64, F32]: ...
    def rank(
        self,
        sources: I64,
        lengths: I64,
        *,
        tokens: int,
        separator: int,
        banned: Sequence[int],
        shortlist_tokens: int,
        shortlist_links: int,
        threads: int,
    ) -> tuple[F32, I64, F32, I64]: ...

def make_parallel_network(
    arrays: dict[str, F32],
    *,
    shape: dict[str, int],
    classes: int,
    input: str,
    mask: int,
    temperature: float,
    upsampling: float,
    length_offset: int,
    min_slots: int,
    impossible: list[int],
    common_tokens: I64,
    linked_tokens: I64,
    precision: str,
) -> ParallelNetwork: ...

class Bitext:
    def __init__(self) -> None: ...
    @staticmethod
    def read(path: str) -> Bitext: ...
    def add_words(self, source: Sequence[str], target: Sequence[str]) -> None: ...
    def add_lines(self, source_starts: I64, source: U8, target_starts: I64, target: U8) -> None: ...
    def add_ids(
        self, source_starts: I64, source: U32, target_starts: I64, target: U32, source_size: int, target_size: int
    ) -> None: ...
    @property
    def pairs(self) -> int: ...
    @property
    def words(self) -> int: ...
    @property
    def carriage_returns(self) -> int: ...
    def word(self, id: int) -> bytes: ...
    def ids(self, target: bool) -> tuple[I64, U32]: ...

class AlignOptions:
    diagonal: bool
    variational_bayes: bool
    null_word: bool
    compatible: bool
    p0: float
    alpha: float
    max_length: int

def align_options(
    *,
    diagonal: bool,
    variational_bayes: bool,
    null_word: bool,
    compatible: bool,
    p0: float,
    alpha: float,
    max_length: int,
) -> AlignOptions: ...

class AlignedLinks:
    def pairs(self, pair: int) -> Links: ...
    def format(self, first: int, last: int, *, words: bool = False, scores: bool = False) -> bytes: ...
    def sources(self) -> I32: ...
    def margins(self) -> F64: ...
    def score(self, pair: int) -> float: ...
    @property
    def near_ties(self) -> int: ...
    @property
    def log_likelihood(self) -> Halves: ...

class Aligner:
    tension: float
    def __init__(
        self, bitext: Bitext, reverse: bool, options: AlignOptions, tension: float, *, keep_columns: bool, threads: int
    ) -> None: ...
    @property
    def target_words(self) -> int: ...
    @property
    def empty(self) -> int: ...
    @property
    def long(self) -> int: ...
    @property
    def cells(self) -> int: ...
    def sizes(self) -> list[tuple[int, int, int]]: ...
    def expect(self, threads: int) -> tuple[Halves, Halves, Halves]: ...
    def maximise(self, threads: int) -> None: ...
    def align(self, *, margins: bool, threads: int) -> AlignedLinks: ...
    def model(self) -> AlignModel: ...

class AlignModel:
    @staticmethod
    def load(path: str) -> AlignModel: ...
    @staticmethod
    def read_text(path: str, options: AlignOptions, reverse: bool, tension: float, length_ratio: float) -> AlignModel: ...
    def save(self, path: str) -> None: ...
    def write_text(self, path: str, beam: float) -> None: ...
    def align(self, bitext: Bitext, threads: int) -> AlignedLinks: ...
    def probability(self, source: str | None, target: str) -> float: ...
    def cell(self, row: int, column: int) -> float: ...
    def row(self, row: int) -> tuple[U32, F64]: ...
    @property
    def options(self) -> AlignOptions: ...
    @property
    def reverse(self) -> bool: ...
    @property
    def tension(self) -> float: ...
    @property
    def length_ratio(self) -> float: ...
    @property
    def cells(self) -> int: ...

def diagonal_partition(j: int, m: int, n: int, tension: float) -> float: ...
def diagonal_gradient(j: int, m: int, n: int, tension: float, compatible: bool) -> float: ...
def digamma(x: float) -> float: ...
def model_feature(sizes: Sizes, target_words: int, tension: float, compatible: bool, threads: int) -> float: ...
def step_tension(tension: float, posterior_feature: float, model_feature: float) -> float: ...
def length_ratio(sizes: Sizes) -> float: ...
def merge_cells(starts: Sequence[U64], columns: Sequence[U32]) -> tuple[U64, U32]: ...
def cell_offsets(whole_starts: U64, whole: U32, shard_starts: U64, shard: U32) -> U32: ...
def add_counts(
    whole_starts: U64, shard_starts: U64, offsets: U32, low: U64, high: U32, whole_low: U64, whole_high: U32
) -> None: ...
def maximise_rows(starts: U64, low: U64, high: U32, options: AlignOptions, t: F64, threads: int) -> None: ...
def aligner_cells(aligner: Aligner) -> tuple[U64, U32]: ...
def aligner_counts(aligner: Aligner) -> tuple[U64, U32]: ...
def aligner_take_probabilities(aligner: Aligner, whole_starts: U64, offsets: U32, whole: F64) -> None: ...
def model_of_cells(
    starts: U64,
    columns: U32,
    t: F64,
    options: AlignOptions,
    reverse: bool,
    tension: float,
    length_ratio: float,
    words: Bitext,
) -> AlignModel: ...
def symmetrise(forward: Links, reverse: Links, method: str) -> Links: ...
def symmetrise_all(
    target_starts: I64, forward: I32, source_starts: I64, reverse: I32, method: str, threads: int
) -> tuple[I64, U32, U32]: ...

class CountLimits:
    def __init__(self, source_size: int, target_size: int, max_offset: int, max_length: int) -> None: ...

def count_candidates(
    path: str, source: I32, source_starts: I64, target: I32, target_starts: I64, links: I32, limits: CountLimits
) -> dict[str, int]: ...
def run_totals(path: str) -> dict[str, int]: ...
def merge_candidates(
    runs: Sequence[str], path: str, top: int, reserved: int, tension: float, backoff: float, vocabulary: bytes
) -> dict[str, Any]: ...

class CandidateTables:
    def __init__(self, path: str) -> None: ...
    def describe(self) -> dict[str, Any]: ...
    def verify(self) -> None: ...
    def length(self, source_length: int) -> int: ...
    def length_range(self, source_length: int, window: int) -> tuple[int, int]: ...
    def row(self, piece: int, offset: int) -> tuple[list[tuple[int, int]], int]: ...
    def lexical_row(self, piece: int) -> tuple[list[tuple[int, int]], int]: ...
    def prior(self, source_length: int, slot: int) -> list[tuple[int, int]]: ...
    def look_up(
        self, ids: I64, lengths: I64, slots: I64, token_ids: I64, log_probs: F64, min_prior: float, threads: int
    ) -> None: ...

class NgramScorer:
    def __len__(self) -> int: ...
    def begin(self) -> int: ...
    def step(self, state: int, piece: int) -> tuple[float, int]: ...
    def bigrams(self) -> tuple[F32, F32, I64, F32]: ...
    @property
    def words(self) -> list[int]: ...

def ngram_words(source: bytes | str, *, skip_special: bool, threads: int) -> bytes: ...
def count_ngrams(
    source: bytes | str, words: bytes | str, path: str, *, order: int, skip_special: bool, threads: int
) -> dict[str, int]: ...
def read_ngram_counts(path: str) -> dict[str, int]: ...

class NgramCounts:
    @staticmethod
    def open(paths: list[str], words: bytes | str) -> NgramCounts: ...

class NgramModel:
    @staticmethod
    def estimate(
        source: bytes | str,
        *,
        order: int,
        prune: list[int],
        discount_fallback: tuple[float, float, float] | None,
        interpolate_unigrams: bool,
        skip_special: bool,
        threads: int,
        memory: int,
    ) -> tuple[NgramModel, dict[str, Any]]: ...
    @staticmethod
    def estimate_counts(
        counts: NgramCounts,
        *,
        prune: list[int],
        discount_fallback: tuple[float, float, float] | None,
        interpolate_unigrams: bool,
        threads: int,
        memory: int,
    ) -> tuple[NgramModel, dict[str, Any]]: ...
    @staticmethod
    def read_arpa(source: bytes | str, name: str) -> NgramModel: ...
    @staticmethod
    def map(path: str) -> NgramModel: ...
    def write(self, path: str) -> None: ...
    def write_arpa(self, path: str) -> None: ...
    @property
    def order(self) -> int: ...
    @property
    def counts(self) -> list[int]: ...
    @property
    def size(self) -> int: ...
    def words(self) -> list[bytes]: ...
    def word(self, text: bytes) -> int: ...
    def begin(self) -> int: ...
    def step(self, state: int, word: int) -> tuple[float, int]: ...
    def score_text(self, source: bytes | str, *, bos: bool, eos: bool, threads: int) -> tuple[int, int, int, float, float]: ...
    def scorer(self, pieces: list[bytes]) -> NgramScorer: ...

def dag_log_likelihood(
    tokens: Floats, transitions: Floats, target_lengths: I64, graph_lengths: I64, result: Floats, *, log_space: bool, threads: int
) -> None: ...
def dag_posteriors(
    tokens: Floats,
    transitions: Floats,
    target_lengths: I64,
    graph_lengths: I64,
    result: Floats,
    token_posteriors: Floats,
    transition_posteriors: Floats,
    *,
    log_space: bool,
    threads: int,
) -> None: ...
def dag_best_alignment(
    tokens: Floats, transitions: Floats, target_lengths: I64, graph_lengths: I64, vertices: I64, scores: Floats, *, threads: int
) -> None: ...

class DagBeam:
    def __init__(
        self,
        *,
        beam_size: int,
        beams_per_length: int,
        candidates: int,
        top_p: float,
        length_penalty: float,
        count_begin: bool,
        ngram_weight: float,
        n_best: int,
        deduplicate: bool,
        no_repeat_ngram: int,
        no_consecutive_repeat: int,
    ) -> None: ...
    def search(
        self, scores: F32, next_vertices: I64, token_ids: I64, graph_lengths: I64, *, ngram: NgramScorer | None, threads: int
    ) -> list[list[tuple[list[int], float]]]: ...

def ctc_beam(
    scores: F32,
    token_ids: I64,
    blanks: F32,
    lengths: I64,
    *,
    beam_size: int,
    ngram_weight: float,
    token_bonus: float,
    length_penalty: float,
    n_best: int,
    ngram: NgramScorer | None,
    threads: int,
) -> list[list[tuple[list[int], float]]]: ...
def dag_viterbi(
    transition_log_probs: F32, token_best: F32, graph_lengths: I64, *, max_lengths: I64, length_exponent: float, threads: int
) -> tuple[I64, I64, F64]: ...
def dag_follow(next_vertices: I64, graph_lengths: I64) -> I64: ...
def dag_walk(
    scores: F32,
    next_vertices: I64,
    token_ids: I64,
    graph_lengths: I64,
    *,
    seeds: I64 | None,
    candidates: int,
    top_p: float,
    no_repeat_ngram: int,
    no_consecutive_repeat: int,
    threads: int,
) -> tuple[I64, I64, F64]: ...
def dropout(x: F32 | U16, dropped: F32 | U16, *, probability: float, seed: int, threads: int) -> None: ...
def fused_attention(
    queries: F32 | U16,
    keys: F32 | U16,
    values: F32 | U16,
    seen: Bool | None,
    mixed: F32 | U16,
    normalisers: F32,
    *,
    causal: bool,
    dropout: float,
    seed: int,
    threads: int,
) -> None: ...
def fused_attention_gradients(
    queries: F32 | U16,
    keys: F32 | U16,
    values: F32 | U16,
    seen: Bool | None,
    normalisers: F32,
    upstream: F32 | U16,
    of_queries: F32 | U16,
    of_keys: F32 | U16,
    of_values: F32 | U16,
    *,
    causal: bool,
    dropout: float,
    seed: int,
    threads: int,
) -> None: ...
def token_scores(
    logits: F32 | U16,
    targets: I64,
    rows: I64,
    scores: F32,
    normalisers: F32,
    best: I64 | None,
    *,
    smoothing: float,
    threads: int,
) -> None: ...
def token_gradients(
    logits: F32 | U16,
    targets: I64,
    rows: I64,
    upstream: F32,
    normalisers: F32,
    *,
    smoothing: float,
    penalty: float,
    threads: int,
) -> None: ...
def lattice_viterbi(
    start: Floats,
    edges: Floats,
    exits: Floats,
    min_lengths: I64,
    max_lengths: I64,
    path: I64,
    lengths: I64,
    scores: Floats,
    *,
    threads: int,
) -> None: ...
def lattice_n_best(
    start: Floats,
    edges: Floats,
    exits: Floats,
    min_lengths: I64,
    max_lengths: I64,
    path: I64,
    lengths: I64,
    scores: Floats,
    *,
    threads: int,
) -> None: ...
def lattice_max_marginals(
    start: Floats, edges: Floats, exits: Floats, min_lengths: I64, max_lengths: I64, marginals: Floats, *, threads: int
) -> None: ...

class LatticeNetwork:
    def decode(
        self,
        sources: I64,
        lengths: I64,
        tables: CandidateTables,
        *,
        candidates: int,
        window: int,
        min_prior: float,
        normaliser: str,
        count_weight: float,
        token_bonus: float,
        candidate_threshold: float,
        bos: int,
        eos: int,
        threads: int,
    ) -> tuple[list[tuple[list[int], float]], list[float]]: ...
    def decode_candidates(
        self,
        sources: I64,
        lengths: I64,
        token_ids: I64,
        log_probs: F64,
        min_lengths: I64,
        max_lengths: I64,
        *,
        normaliser: str,
        count_weight: float,
        token_bonus: float,
        candidate_threshold: float,
        bos: int,
        eos: int,
        threads: int,
    ) -> tuple[list[tuple[list[int], float]], list[float]]: ...
    def score(
        self,
        sources: I64,
        lengths: I64,
        token_ids: I64,
        log_probs: F64,
        min_lengths: I64,
        max_lengths: I64,
        start: F32,
        edges: F32,
        exits: F32,
        *,
        normaliser: str,
        count_weight: float,
        token_bonus: float,
        candidate_threshold: float,
        bos: int,
        eos: int,
        threads: int,
    ) -> None: ...

def make_lattice_network(
    arrays: dict[str, F32],
    *,
    shape: dict[str, int],
    precision: str,
) -> LatticeNetwork: ...
