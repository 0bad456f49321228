"""The native decoder of the aggressive family: a drafter and its verifier on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fewstep.config.network import NetworkConfig, Sizes
from fewstep.config.problems import Problem, refuse
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.decoding import Decoder
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.aggressive.drafter import draft_model_of, drafter_of
from fewstep.families.aggressive.options import draft_options, slot_rules
from fewstep.families.aggressive.pair import check_pair
from fewstep.families.aggressive.record import Drafting, DraftRecord, draft_statistics
from fewstep.families.aggressive.roles import can_draft, check_verifier
from fewstep.families.table import family_named
from fewstep.networks.aggressive_transformer import AggressiveTransformer, Drafter
from fewstep.networks.copies import Copies
from fewstep.search.beam import BeamOptions
from fewstep.sources import Ints, Sources, gather, max_output_lengths
from fewstep.system.description import read_description
from fewstep.system.format import DRAFTER, VERIFIER, BundleError, network_folders
from fewstep.system.load import load as load_system
from fewstep.system.networks import network_of, read_network, shape_of, sizes_of
from fewstep.system.parts import load_lexicon
from fewstep.threads import default_threads
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS, PAD, vocabulary_digest

if TYPE_CHECKING:
    from fewstep.shortlist import Lexicon
    from fewstep.system.networks import Arrays
    from fewstep.system.system import System

BEAM = BeamOptions(beam_size=1, eos=EOS, pad=PAD)


class DraftSystem(NamedTuple):
    """Another system whose outputs are drafts."""

    decoder: Decoder
    search: Any
    max_source_tokens: int
    """Tokens of a source without EOS after which it is cut for this system alone."""


class NativeDecoder:
    """Copies of a drafter and its verifier. Several threads may use it at the same time. Outputs are bit-identical in any batch."""

    memory_errors = (MemoryError,)

    def __init__(
        self,
        config: AggressiveConfig,
        arrays: Arrays,
        sizes: Sizes,
        verifier: NetworkConfig,
        verifier_arrays: Arrays,
        *,
        draft_system: DraftSystem | None = None,
        draft_model: tuple[NetworkConfig, Arrays] | None = None,
        lexicon: Lexicon | None = None,
        search: AggressiveSearch | None = None,
    ) -> None:
        """Copy a pair with the arrays of `fewstep.Transformer`, ready for `search` (None: the default). The arrays of a drafter
        also hold its further weights and, with a soft copy, `copy_queries`.

        `draft_model` is the config of an autoregressive network and its arrays; `lexicon` provides shortlists. Raises ValueError
        for arrays that do not fit the configs, and for a verifier that torch alone decodes.
        """
        if verifier.needs_torch:
            raise ValueError(
                "verifier: expected a network that native code decodes, got one with embedding_norm or begin_vectors, or without "
                "tied_output; load the system in a checkout with models.bundle.directory.load_system, which decodes it with torch"
            )
        self.config = config
        self.sizes = sizes
        self.draft_system = draft_system
        self.lexicon = lexicon
        self.record = DraftRecord()
        linked = None if lexicon is None else lexicon.linked_tokens
        self.parts = SystemParts(
            tables=linked is not None,
            drafter=draft_system is not None or draft_model is not None,
            draft_model=draft_model is not None,
            target_size=sizes.target,
        )
        drafters = {"network": drafter_of(config, arrays, sizes.joint, linked)}
        if draft_model is not None:
            drafters["draft_model"] = draft_model_of(*draft_model, drafters["network"].lexicon)

        def copies(drafter: Drafter) -> Copies[AggressiveTransformer]:
            return Copies(
                lambda precision: AggressiveTransformer(
                    verifier_arrays,
                    shape=shape_of(verifier),
                    precision=precision,
                    drafter=drafter,
                    lexicon=lexicon,
                    beside=next((made for others in self._copies.values() if (made := others.made(precision))), None),
                )
            )

        self._copies = {name: copies(drafter) for name, drafter in drafters.items()}
        search = search or AggressiveSearch()
        # Made now, so that the first sentence does not wait for it.
        self._copies_for(search)["float32" if search.verifier_precision == "float16" else search.verifier_precision]

    def _copies_for(self, search: AggressiveSearch) -> Copies[AggressiveTransformer]:
        """Return the copies with the drafter of a search; those with the trained network for a search without one."""
        return self._copies.get(search.drafts_by, self._copies["network"])

    def problems(self, search: AggressiveSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system, or that native code does not support."""
        yield from search.problems(self.config, self.parts)
        if search.engine != "auto":
            yield Problem(("engine",), "auto in native code", search.engine)
        yield from self.unsupported(search)

    def unsupported(self, search: AggressiveSearch) -> Iterator[Problem]:
        """Yield the strategy of a search if native code does not have it."""
        if search.strategy == "sample":
            yield Problem(("strategy",), "a strategy other than sample in native code", search.strategy)

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> Sources:
        """Return sources without EOS as one batch. Raises ValueError for one that exceeds the networks' `max_positions`."""
        return gather(sources, self.config.max_positions - 1)

    def decode(self, prepared: Sources, search: AggressiveSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypothesis of each source. Raises ValueError for a search with `problems`."""
        check_search(search, self.config, self.parts)
        refuse(self.problems(search))
        if not prepared.rows:
            return []
        threads = threads or default_threads()
        limits = max_output_lengths(search.output_limits, prepared.lengths, self.config.max_positions)
        hints = draft_hints(prepared, search, self.draft_system, self.sizes.joint, threads)
        found = self.search(prepared, search, limits, hints, threads)
        self.record.add(found, search)
        return [[hypothesis] for hypothesis in found.hypotheses]

    def search(
        self, prepared: Sources, search: AggressiveSearch, limits: Ints, hints: Sequence[Sequence[int]], threads: int
    ) -> Drafting:
        """Return the result of a search without problems; `limits` [B] are maximum output lengths in tokens with EOS, and `hints`
        are texts in which n-grams are looked up, if the search does so."""
        drafts = self._copies_for(search)[search.verifier_precision](
            prepared.ids,
            prepared.lengths,
            limits,
            options=BEAM,
            rules=slot_rules(search),
            drafts=draft_options(search, self.config),
            hints=hints,
            threads=threads,
        )
        hypotheses = [Hypothesis(one.tokens, one.score, one.steps, draft_statistics(*one[3:])) for one in drafts.outcomes]
        return Drafting(hypotheses, drafts.seconds._asdict())


def draft_hints(
    prepared: Sources, search: AggressiveSearch, draft_system: DraftSystem | None, joint: bool, threads: int | None
) -> list[list[int]]:
    """Return the texts in which n-grams are looked up in addition to the output: the sources of a joint vocabulary, or the outputs
    of the draft system; none if the search looks nothing up."""
    if not search.looks_up:
        return []
    if search.drafter == "system" and draft_system is not None:
        decoder, its_search, longest = draft_system
        found = decoder.decode(decoder.prepare([row[:longest] for row in prepared.rows], its_search, threads), its_search, threads)
        return [[*ranked[0].ids, EOS] for ranked in found]
    return [[*row, EOS] if joint else [] for row in prepared.rows]


def load(directory: Path, description: Mapping[str, Any], search: SearchConfig) -> NativeDecoder:
    """Load the decoder of a system directory, ready for `search`. Raises BundleError."""
    config = cast(AggressiveConfig, network_of(directory, description, AggressiveConfig))
    sizes = sizes_of(directory, description)
    arrays = read_network(directory, config, sizes)
    verifier, verifier_sizes, verifier_arrays = _read_verifier(directory)
    draft_system = None
    if any(part.startswith(f"{DRAFTER}/") for part in description["parts"]):
        draft_system = draft_system_of(directory, load_system)
    lexicon = load_lexicon(directory, description, sizes)
    try:
        if config.train_verifier:
            verifier_arrays |= {name: arrays[name] for name in verifier_arrays if name in arrays}
        check_pair(config, sizes, arrays, verifier, verifier_sizes, verifier_arrays)
        return NativeDecoder(
            config,
            arrays,
            sizes,
            verifier,
            verifier_arrays,
            draft_system=draft_system,
            draft_model=None if draft_system is None else _read_draft_model(directory, config, sizes),
            lexicon=lexicon,
            search=cast(AggressiveSearch, search),
        )
    except ValueError as error:
        raise BundleError(f"{directory}: {error}") from error


def draft_system_of(directory: Path, load_part: Callable[..., System]) -> DraftSystem:
    """Return the draft system in a system directory, which `load_part` loads. Raises BundleError."""
    folder = directory / DRAFTER
    check_vocabularies(directory, folder, "the draft system")
    other = load_part(folder, verify=False)  # compared already, as parts of this system
    if problem := next(iter(other.problems(other.search)), None):
        raise BundleError(f"{folder}: its search is not valid for it: {problem}; copy the directory again")
    return DraftSystem(other.decoder, other.search, other.max_source_tokens)


def _read_verifier(directory: Path) -> tuple[NetworkConfig, Sizes, Arrays]:
    described = verifier_description(directory)
    folder = directory / VERIFIER
    sizes = sizes_of(folder, described)
    try:
        config = network_of(folder, described, family_named(described["family"]).network)
        check_verifier(config)
    except (KeyError, ValueError) as error:
        raise BundleError(f"{directory}: {error}") from error
    return config, sizes, read_network(folder, config, sizes)


def _read_draft_model(directory: Path, config: AggressiveConfig, sizes: Sizes) -> tuple[NetworkConfig, Arrays] | None:
    described = draft_model_description(directory, config)
    if described is None:
        return None
    network = network_of(directory / DRAFTER, described, family_named(described["family"]).network)
    return network, read_network(directory / DRAFTER, network, sizes)


def draft_model_description(directory: Path, config: AggressiveConfig) -> dict[str, Any] | None:
    """Return the description of a system's draft system; None if it may not be a draft model (`can_draft`), or is an ensemble.
    Raises BundleError."""
    folder = directory / DRAFTER
    described = read_description(folder, verify=False)  # compared already, as a part of this system
    network = network_of(folder, described, family_named(described["family"]).network)
    return described if can_draft(network, config) and len(network_folders(described)) == 1 else None


def verifier_description(directory: Path) -> dict[str, Any]:
    """Return the description of a system's verifier, which has one network and the system's vocabulary. Raises BundleError."""
    folder = directory / VERIFIER
    described = read_description(folder, verify=False)  # compared already, as a part of this system
    if len(network_folders(described)) > 1:
        raise BundleError(f"{folder}: expected a verifier of one network, got an ensemble; name one of its members, or a student")
    check_vocabularies(directory, folder, "the verifier")
    return described


def check_vocabularies(directory: Path, other: Path, name: str) -> None:
    """Raise BundleError for two systems of different vocabularies, or without one."""
    try:
        same = vocabulary_digest(directory) == vocabulary_digest(other)
    except OSError as error:
        raise BundleError(f"{directory}: {error}; the directory is incomplete, create it again") from error
    if not same:
        raise BundleError(f"{directory}: expected one vocabulary for the drafter and {name}, got two; train both on one vocabulary")
