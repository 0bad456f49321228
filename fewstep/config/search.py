"""The options and properties that every search has, whatever its family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, Self, get_args, get_type_hints

from fewstep.config.bounds import Ge, Le
from fewstep.config.labels import label_of, parse_label
from fewstep.config.network import NetworkConfig
from fewstep.config.options import MAX_HYPOTHESES, OutputLimits, Precision, Shortlist
from fewstep.config.problems import Problem, refuse
from fewstep.config.values import config_of, value_problems


@dataclass(frozen=True)
class SystemParts:
    """The parts of a system that a search may need in addition to its network. None: not known yet."""

    ngram: bool | None = None
    """Whether there is an n-gram model of the target."""
    tables: bool | None = None
    """Whether there are candidate tables."""
    drafter: bool | None = None
    """Whether the system contains another one whose outputs may be drafts."""
    draft_model: bool | None = None
    """Whether that system may draft token by token: one network that writes one token a step from left to right."""
    rescorer: bool | None = None
    """Whether the system contains another one that may score its outputs."""
    networks: int = 1
    """Number of networks whose probabilities are averaged."""
    target_size: int | None = None
    """Size of the target vocabulary."""


class Workload(NamedTuple):
    """The options that determine the cost of a search. Searches of equal workloads can be compared directly."""

    hypotheses: str
    """`one`, `beam` or `sample`."""
    engine: str
    precision: Precision
    shortlist: Shortlist | None


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """A decoding strategy with its options."""

    strategy: str = ""
    """Name of the decoding strategy."""
    n_best: Annotated[int, Ge(1), Le(MAX_HYPOTHESES)] = 1
    """Number of hypotheses returned for each sentence."""

    @property
    def label(self) -> str:
        """The name that is derived from all options (see `fewstep.config.labels`)."""
        return label_of(self)

    @classmethod
    def parse(cls, label: str) -> Self | None:
        """Return the search with this derived label; None if it is not one."""
        return parse_label(label, cls)

    @classmethod
    def for_network(cls, network: NetworkConfig) -> Self:
        """Return the search that a network is validated with: the default one, unless the network needs another."""
        return cls()

    @classmethod
    def strategies(cls) -> tuple[str, ...]:
        """Return the names of the strategies."""
        return get_args(get_type_hints(cls)["strategy"])

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Return the search of which `dataclasses.asdict` gave `values`.

        Raises ValueError for unknown options and for values that an option does not have.
        """
        return config_of(cls, values)

    def values(self) -> dict[str, Any]:
        """Return the options as plain values, from which `from_values` returns the search. Options that a shortlist leaves unset
        are left out."""
        return {
            key: {name: part for name, part in value.items() if part is not None} if key.endswith("shortlist") and value else value
            for key, value in asdict(self).items()
        }

    def problems(self, network: NetworkConfig | None, parts: SystemParts) -> Iterator[Problem]:
        """Yield the options that are not valid with one another, with the network (None: not known) or with the system's parts."""
        yield from ()

    def shortlist_problems(self, parts: SystemParts) -> Iterator[Problem]:
        """Yield the options of the shortlist that are not valid."""
        shortlist = self.workload.shortlist
        for problem in () if shortlist is None else shortlist.problems(parts.tables):
            yield replace(problem, path=("shortlist", *problem.path))

    @property
    def unmeasured_shortlist(self) -> Shortlist | None:
        """The shortlist if its size is still to follow from a recall."""
        shortlist = self.workload.shortlist
        return None if shortlist is None or shortlist.tokens is not None else shortlist

    def with_shortlist(self, shortlist: Shortlist | None) -> Self:
        """Return the search with another shortlist; the search itself if it has none."""
        return self if self.workload.shortlist is None else replace(self, shortlist=shortlist)  # type: ignore[call-arg]

    @property
    def penalises_length(self) -> bool:
        """Whether a `length_penalty` changes the result."""
        return False

    @property
    def needs_ngram(self) -> bool:
        """Whether the search reads an n-gram model."""
        return False

    @property
    def needs_tables(self) -> bool:
        """Whether the search reads links between tokens, for shortlists."""
        return False

    @property
    def uses_ctranslate2(self) -> bool:
        """Whether CTranslate2 decodes."""
        return False

    @property
    def workload(self) -> Workload:
        """The options that decide with which baseline a timing is compared."""
        return Workload("one", "auto", "float32", None)

    @property
    def precisions(self) -> dict[str, Precision]:
        """The precisions of products by their options."""
        return {"precision": self.workload.precision}

    def equally_wide(self, other: SearchConfig) -> bool:
        """Return whether a search of equal workload keeps as many hypotheses alive."""
        return True

    def without_rescoring(self) -> Self:
        """Return the search without passes that serve only the scores of hypotheses, for timings."""
        return self

    def with_max_tokens(self, count: int) -> Self:
        """Return the search with outputs of at most `count` tokens, EOS included, if it limits outputs by their length."""
        return self


@dataclass(frozen=True, kw_only=True)
class LimitedSearch(SearchConfig):
    """A search whose outputs are limited by `output_limits`."""

    output_limits: OutputLimits = field(default_factory=OutputLimits)
    """Bounds on the length of an output, and on the tokens in it."""

    def with_max_tokens(self, count: int) -> Self:
        """Return the search with outputs of at most `count` tokens, EOS included."""
        return replace(self, output_limits=replace(self.output_limits, max_tokens=count))


@lru_cache(maxsize=256)
def check_search(search: SearchConfig, network: NetworkConfig, parts: SystemParts) -> None:
    """Raise ValueError that names all options which are out of bounds, or not valid for this network and these parts."""
    refuse(value_problems(search))
    refuse(search.problems(network, parts))
