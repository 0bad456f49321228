"""The bodies of requests and answers. Their descriptions are the OpenAPI document of a server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

MAX_KEYS = 256
"""Fields of a request, or systems in a map of searches."""


def _few(value: Any) -> Any:
    """Return a value. Raises ValueError for a map of many keys, for each of which there would be an error."""
    if isinstance(value, dict) and len(value) > MAX_KEYS:
        raise ValueError(f"expected at most {MAX_KEYS} keys, got {len(value)}")
    return value


class Request(BaseModel):
    """The body of a request. Its lists are validated up to the first entry that is not valid."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, value: Any) -> Any:
        return _few(value)


Texts = Annotated[list[str], Field(fail_fast=True)]
SearchChoice = Annotated[
    str | Annotated[dict[str, str], BeforeValidator(_few)] | None,
    Field(
        description="Label of a search of each requested system, or a map from systems to labels. Default: their default searches.",
        examples=["greedy"],
    ),
]


class TranslateRequest(Request):
    """Texts to translate."""

    sentences: Annotated[
        Texts,
        Field(
            min_length=1,
            description="Texts. Each is split into sentences, whose translations are joined with the white space of the text.",
            examples=[["A man reads."]],
        ),
    ]
    systems: Annotated[
        Texts | None,
        Field(min_length=1, description="Names of systems (GET /systems). Default: the first system for the languages."),
    ] = None
    source_language: Annotated[
        str | None, Field(description="Language of the texts, in place of `systems`. Default: that of any system.", examples=["en"])
    ] = None
    target_language: Annotated[
        str | None, Field(description="Language of the translations, in place of `systems`. Default: that of any system.")
    ] = None
    search: SearchChoice = None
    n_best: Annotated[int, Field(ge=1, description="Maximum number of translations of each text, best first.")] = 1
    one_sentence_per_line: Annotated[bool, Field(description="Whether to take each text as one sentence.")] = False
    refuse_long: Annotated[bool, Field(description="Whether to refuse a sentence that would be cut (413).")] = False
    glossary: Annotated[
        list[tuple[str, str]],
        Field(
            max_length=1000,
            fail_fast=True,
            description="Terms, each with the translation that it must have. Needs a system with masks of terms.",
            examples=[[["man", "Mann"]]],
        ),
    ] = []


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
    put_back: Annotated[int, Field(description="Placeholders and terms that were lost, and put where they are likely to stand.")]


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


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value


EMPTY = BeforeValidator(_none_if_empty)
"""A field without a value in a form is no value."""


class ForeignRequest(Request):
    """The body of a request of LibreTranslate's clients. Some send fields that no server knows, which are not used."""

    model_config = ConfigDict(extra="ignore")


class LibreRequest(ForeignRequest):
    """Texts to translate, as clients of LibreTranslate send them."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_fields_of_ours(cls, value: Any) -> Any:
        ours = sorted(TranslateRequest.model_fields.keys() & value.keys()) if isinstance(value, dict) else []
        if ours:
            raise ValueError(f"expected fields of LibreTranslate beside q, got {', '.join(ours)}; send the texts as sentences")
        return value

    q: Annotated[str | Texts, Field(min_length=1, description="A text, or several.", examples=["A man reads."])]
    source: Annotated[str, Field(min_length=1, description="Language of the texts, or `auto`.", examples=["en"])]
    target: Annotated[str, Field(min_length=1, description="Language of the translations.")]
    format: Annotated[
        Literal["text", "html"] | None, EMPTY, Field(description="`html`: text between tags is translated, tags stay.")
    ] = None
    alternatives: Annotated[
        Annotated[int, Field(ge=0)] | None, EMPTY, Field(description="Maximum number of further translations of each text.")
    ] = None
    api_key: Annotated[str | None, Field(description="The token of the server, if it has one.")] = None
    secret: Annotated[str | None, Field(description="Not used.")] = None


class DetectRequest(ForeignRequest):
    """A text whose language is asked for."""

    q: Annotated[str | Texts, Field(min_length=1, description="A text, or several in the same language.")]
    api_key: Annotated[str | None, Field(description="The token of the server, if it has one.")] = None
    secret: Annotated[str | None, Field(description="Not used.")] = None


class DetectedLanguage(BaseModel):
    """A source language of the server that a text may have."""

    language: str
    confidence: Annotated[
        float,
        Field(description="Probability in percent, among all languages that the identifier knows; 0 for others."),
    ]


class LibreAnswer(BaseModel):
    """The translation of a text, or those of several texts in lists. Fields that were not asked for are absent."""

    translatedText: str | list[str]  # noqa: N815
    detectedLanguage: Annotated[  # noqa: N815
        DetectedLanguage | list[DetectedLanguage] | None, Field(description="If `source` is `auto`.")
    ] = None
    alternatives: Annotated[
        list[str] | list[list[str]] | None, Field(description="If `alternatives` are asked for; none of texts with mark-up.")
    ] = None


class Language(BaseModel):
    """A language of the server."""

    code: str
    name: Annotated[str, Field(description="Name in English, or the code.")]
    targets: Annotated[list[str], Field(description="Languages into which it can be translated.")]


class FrontendLanguage(BaseModel):
    """A language that a page begins with."""

    code: str
    name: str


class FrontendLanguages(BaseModel):
    """The languages that a page begins with."""

    source: FrontendLanguage
    target: FrontendLanguage


class FrontendSettings(BaseModel):
    """The answer to a page of LibreTranslate at its start: limits, and the languages that it begins with."""

    charLimit: Annotated[int, Field(description="Characters that a text may have.")]  # noqa: N815
    frontendTimeout: Annotated[int, Field(description="Milliseconds from the last key to a request.")] = 500  # noqa: N815
    apiKeys: Annotated[bool, Field(description="Whether the server has a token.")]  # noqa: N815
    keyRequired: Annotated[bool, Field(description="Whether requests need it.")]  # noqa: N815
    suggestions: Annotated[bool, Field(description="Never.")] = False
    filesTranslation: Annotated[bool, Field(description="Never.")] = False  # noqa: N815
    supportedFilesFormat: Annotated[list[str], Field(description="None.")] = []  # noqa: N815
    language: FrontendLanguages


class DeeplLanguage(BaseModel):
    """A language of the server, for clients of DeepL."""

    language: Annotated[str, Field(description="Its code in capitals.")]
    name: Annotated[str, Field(description="Name in English, or the code.")]
    supports_formality: Annotated[bool, Field(description="Never.")] = False


class GlossaryLanguages(BaseModel):
    """The pairs of languages with glossaries, for clients of DeepL, which ask for them before any text."""

    supported_languages: Annotated[list[dict[str, str]], Field(description="None.")] = []


def _names(value: Any) -> Any:
    """Return a list of names; those of a form are separated by commas."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        return value
    return [name for one in found for part in one.split(",") if (name := part.strip())]


class DeeplRequest(Request):
    """Texts to translate, as clients of DeepL send them."""

    text: Annotated[Texts, Field(min_length=1, description="Texts.", examples=[["A man reads."]])]
    target_lang: Annotated[str, Field(min_length=1, description="Language of the translations.", examples=["DE"])]
    source_lang: Annotated[str | None, EMPTY, Field(description="Language of the texts. Default: it is identified.")] = None
    split_sentences: Annotated[
        Literal["0", "1", "nonewlines"] | None,
        EMPTY,
        Field(description="`0`: each text is one sentence; `nonewlines`: ends of lines are spaces."),
    ] = None
    tag_handling: Annotated[
        Literal["html", "xml"] | None, EMPTY, Field(description="Text between tags is translated, tags stay.")
    ] = None
    ignore_tags: Annotated[
        Texts | None,
        BeforeValidator(_names),
        Field(description="Elements whose content is not translated, with `tag_handling`; in a form separated by commas."),
    ] = None
    formality: Annotated[
        Literal["default", "prefer_more", "prefer_less"] | None, EMPTY, Field(description="A wish without effect.")
    ] = None
    preserve_formatting: Annotated[bool | None, EMPTY, Field(description="Without effect: no formatting is corrected.")] = None
    show_billed_characters: Annotated[bool | None, EMPTY, Field(description="Without effect: the number is always given.")] = None
    context: Annotated[str | None, Field(description="Text around the texts. Not used.")] = None
    model_type: Annotated[
        Literal["latency_optimized", "quality_optimized", "prefer_quality_optimized"] | None, EMPTY, Field(description="Not used.")
    ] = None


class DeeplTranslation(BaseModel):
    """The translation of a text."""

    detected_source_language: Annotated[str, Field(description="The language of the text, in capitals.")]
    text: str
    billed_characters: Annotated[int, Field(description="Characters of the text. Nothing is billed.")]


class DeeplAnswer(BaseModel):
    """The translations, in the order of the texts."""

    translations: list[DeeplTranslation]


class ExplainRequest(Request):
    """A sentence whose search is to be shown."""

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


class LibreProblem(BaseModel):
    """An answer with an error status, for clients of LibreTranslate."""

    error: Annotated[str, Field(description="The place, the expectation, the finding, and the remedy.")]


class DeeplProblem(BaseModel):
    """An answer with an error status, for clients of DeepL."""

    message: Annotated[str, Field(description="The place, the expectation, the finding, and the remedy.")]


class SharedProblem(Problem, LibreProblem):
    """An answer with an error status, for any client: both fields have the same text."""


OWN, LIBRE = "fewstep", "libre"


def _kind_of_request(value: Any) -> str:
    is_libre = isinstance(value, LibreRequest) or (isinstance(value, dict) and "q" in value)
    return LIBRE if is_libre else OWN


AnyTranslateRequest = Annotated[
    Annotated[TranslateRequest, Tag(OWN)] | Annotated[LibreRequest, Tag(LIBRE)], Discriminator(_kind_of_request)
]
"""A request to `/translate`, which is one of LibreTranslate's clients if it has the field `q`."""
