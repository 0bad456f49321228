"""The bodies of requests and answers. Their descriptions are the OpenAPI document of a server."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

SearchChoice = Annotated[
    str | dict[str, str] | None,
    Field(
        description="Label of a search of each requested system, or a map from systems to labels. Default: their default searches.",
        examples=["greedy"],
    ),
]


class TranslateRequest(BaseModel):
    """Texts to translate."""

    model_config = ConfigDict(extra="forbid")

    sentences: Annotated[
        list[str],
        Field(
            min_length=1,
            description="Texts. Each is split into sentences, whose translations are joined with the white space of the text.",
            examples=[["A man reads."]],
        ),
    ]
    systems: Annotated[
        list[str] | None, Field(min_length=1, description="Names of systems (GET /systems). Default: the first system.")
    ] = None
    search: SearchChoice = None
    n_best: Annotated[int, Field(ge=1, description="Maximum number of translations of each text, best first.")] = 1
    one_sentence_per_line: Annotated[bool, Field(description="Whether to take each text as one sentence.")] = False
    refuse_long: Annotated[bool, Field(description="Whether to refuse a sentence that would be cut (413).")] = False


class TranslationAnswer(BaseModel):
    """One translation of a text. Numbers of several sentences are summed, except for the margin, which is the lowest."""

    text: str
    score: Annotated[
        float | None, Field(description="The value that the search maximised; natural logarithm. null: no path was found.")
    ]
    steps: Annotated[int, Field(description="Decoder calls until the sentence was finished; 0 for a blank sentence.")]
    statistics: Annotated[dict[str, Any], Field(description="Statistics of the search; numbers that are not finite are null.")]
    sentences: Annotated[int, Field(description="Sentences of the text.")]
    cut: Annotated[int, Field(description="Tokens of sentences that are too long for the system, which it did not read.")]
    unknown: Annotated[list[str], Field(description="Pieces of the text that the system's vocabulary lacks.")]
    replaced: Annotated[int, Field(description="Characters U+FFFD, which stand for invalid ones.")]


class SystemAnswer(BaseModel):
    """The translations by one system."""

    system: str
    search: str
    milliseconds: Annotated[float, Field(description="Time of the batches in which the sentences were decoded.")]
    waited_milliseconds: Annotated[float, Field(description="Time before the first of these batches.")]
    largest_batch: Annotated[int, Field(description="Sentences in the largest of these batches, other requests' included.")]
    translations: Annotated[list[list[TranslationAnswer]], Field(description="For each text its translations, best first.")]


class TranslateAnswer(BaseModel):
    """The translations by each requested system, in the order of the request."""

    systems: list[SystemAnswer]


class ExplainRequest(BaseModel):
    """A sentence whose search is to be shown."""

    model_config = ConfigDict(extra="forbid")

    sentence: Annotated[str, Field(description="A sentence; of several ones the first is shown.")]
    system: Annotated[str | None, Field(description="Name of a system. Default: the first one.")] = None
    search: Annotated[str | None, Field(description="Label of one of its searches. Default: its default search.")] = None


class VertexAnswer(BaseModel):
    """A vertex of a graph, or a candidate of a lattice."""

    layer: Annotated[int, Field(description="Column of a drawing: edges run from lower to higher layers.")]
    probability: Annotated[float, Field(description="Probability that a path passes here.")]
    tokens: Annotated[list[tuple[str, float]], Field(description="Pieces with their probabilities, best first.")]
    on_path: Annotated[bool, Field(description="Whether the translation passes here.")]


class EdgeAnswer(BaseModel):
    """A transition between two vertices."""

    source: Annotated[int, Field(description="Index of a vertex.")]
    target: Annotated[int, Field(description="Index of a vertex.")]
    probability: float
    on_path: bool


class ExplainAnswer(BaseModel):
    """The graph or lattice that the search went through. `kind` is null for families without one."""

    kind: Annotated[str | None, Field(description="`dag`, `lattice`, or null.")]
    vertices: list[VertexAnswer] = []
    edges: list[EdgeAnswer] = []


class SystemDescription(BaseModel):
    """A loaded system."""

    name: str
    family: str
    source_language: str
    target_language: str
    searches: Annotated[dict[str, dict[str, Any]], Field(description="Options of each search by its label.")]
    default_search: str


class SystemsAnswer(BaseModel):
    """The loaded systems; the first one is the default."""

    systems: list[SystemDescription]


class Health(BaseModel):
    """The state of a server: `ok`, or `draining` while it shuts down (503)."""

    status: str


class Problem(BaseModel):
    """An answer with an error status."""

    detail: Annotated[str, Field(description="The place, the expectation, the finding, and the remedy.")]
