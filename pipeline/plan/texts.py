"""The steps that read, clean, and encode text, and train its vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pipeline.config.schema import Pinned
from pipeline.config.systems import BartTeacher, FairseqTeacher, MarianTeacher, TeacherVocabulary
from pipeline.config.texts import DistilledText, TextConfig, VocabularyDictionaries, VocabularyFiles
from pipeline.plan import stage_configs
from pipeline.plan.flow import Encoded, Flow, Texts, TrainingData
from pipeline.plan.pins import pinned_vocabulary
from pipeline.plan.text_files import directory_files, fairseq_files, monolingual_files, piece_files, text_files
from stages import corpus, encode, import_network, vocabulary
from stages.artifacts import System, Text, Tokens, Vocabulary


def read_texts(flow: Flow) -> Texts:
    """Read and clean the corpus. Training pairs with a side that occurs in the validation or a test text are dropped."""
    parts = flow.config.corpus
    validation = _read(flow, "validation", parts.validation)
    tests = {name: _read(flow, name, text) for name, text in parts.test.items()}
    inputs = corpus.CorpusInputs(text_files(parts.train, flow.access), (validation, *tests.values()))
    config = stage_configs.corpus_config(flow.config, "train", parts.train, parts.filters)
    return Texts(flow.steps.add(corpus.STAGE, "train", inputs, config), validation, tests)


def _read(flow: Flow, name: str, text: TextConfig) -> Text:
    inputs = corpus.CorpusInputs(text_files(text, flow.access))
    return flow.steps.add(corpus.STAGE, name, inputs, stage_configs.corpus_config(flow.config, name, text))


def read_monolingual_text(flow: Flow, name: str, paths: Sequence[Path], texts: Texts, language: str | None = None) -> Text:
    """Read and clean text in one language (None: that of the source), which becomes both sides of its pairs."""
    inputs = corpus.CorpusInputs(monolingual_files(paths, flow.store), texts.held_out)
    config = stage_configs.monolingual_config(flow.config, language or flow.config.languages.source)
    return flow.steps.add(corpus.STAGE, name, inputs, config)


def read_distilled_text(flow: Flow, text: DistilledText, texts: Texts) -> Text:
    """Read and clean text that was distilled elsewhere."""
    inputs = corpus.CorpusInputs(text_files(text, flow.access), texts.held_out)
    return flow.steps.add(corpus.STAGE, "train/distilled", inputs, stage_configs.distilled_text_config(flow.config))


def import_teacher(flow: Flow) -> System | None:
    """Import the teacher, if the config names a network of another toolkit."""
    teacher = flow.config.teacher
    languages = flow.config.languages
    kind: Literal["marian", "bart", "fairseq"]
    if isinstance(teacher, MarianTeacher):
        kind = "marian"
        path = teacher.marian
        files = directory_files("marian", teacher.marian, flow.store)
    elif isinstance(teacher, BartTeacher):
        kind = "bart"
        path = teacher.bart
        files = directory_files("bart", teacher.bart, flow.store)
    elif isinstance(teacher, FairseqTeacher):
        kind = "fairseq"
        path = teacher.fairseq
        files = fairseq_files(teacher, flow.store)
    else:
        return None
    config = import_network.ImportConfig(
        kind=kind,
        name=path.name,
        source_language=languages.source,
        target_language=languages.target,
        target_token=languages.target_token,
    )
    return flow.steps.add(import_network.STAGE, "teacher", import_network.ImportInputs(files), config)


def train_vocabulary(flow: Flow, text: Text, imported: System | None) -> Vocabulary:
    """Train the subword vocabulary, unless the config pins one, names files of one, or uses that of the imported teacher."""
    config = flow.config.vocabulary
    if isinstance(config, TeacherVocabulary):
        assert imported is not None
        return Vocabulary(imported.path, imported.fingerprint)
    if isinstance(config, Pinned):
        return pinned_vocabulary(config, flow.store)
    if isinstance(config, VocabularyFiles | VocabularyDictionaries):
        files = piece_files(config, flow.access)
        inputs = vocabulary.VocabularyInputs(text if isinstance(config, VocabularyDictionaries) else None, files)
        return flow.steps.add(vocabulary.STAGE, "imported", inputs, vocabulary.VocabularyConfig())
    inputs = vocabulary.VocabularyInputs(text)
    trained = vocabulary.VocabularyConfig(**vars(config), placeholders=flow.config.corpus.placeholders)
    return flow.steps.add(vocabulary.STAGE, "joint" if config.joint else "separate", inputs, trained)


def encode_texts(flow: Flow, texts: Texts, vocab: Vocabulary) -> tuple[Encoded, dict[str, Tokens]]:
    """Encode the training and validation texts. Also return the texts whose truncated sources the report counts, by name."""
    training = encode_text(flow, "raw", texts.training, vocab)
    truncated: dict[str, Tokens] = {}
    if flow.config.corpus.max_source_tokens is not None:
        tests = {name: encode_text(flow, f"raw:{name}", text, vocab, training=False) for name, text in texts.tests.items()}
        truncated = {"train": training, **tests}
    validation = encode_text(flow, "validation", texts.validation, vocab, training=False)
    further: dict[str, TrainingData] = {
        name: (_further_text(flow, name, text, texts, vocab),) for name, text in flow.config.corpus.texts.items()
    }
    return Encoded(texts, vocab, training, validation, further), truncated


def _further_text(flow: Flow, name: str, text: TextConfig, texts: Texts, vocab: Vocabulary) -> Tokens:
    """Read, clean and encode a text of `corpus.texts`."""
    inputs = corpus.CorpusInputs(text_files(text, flow.access), texts.held_out)
    config = stage_configs.corpus_config(flow.config, f"train/{name}", text, flow.config.corpus.filters)
    return encode_text(flow, f"raw/{name}", flow.steps.add(corpus.STAGE, f"train/{name}", inputs, config), vocab)


def encode_text(flow: Flow, name: str, text: Text, vocab: Vocabulary, *, training: bool = True, swap: bool = False) -> Tokens:
    """Encode a text by the vocabulary: as it is translated, or with what is only done to text that networks are trained on. `swap`
    exchanges the sides."""
    corpus = flow.config.corpus
    config = encode.EncodeConfig(
        max_source_tokens=corpus.max_source_tokens,
        mask_terms=training and "term" in corpus.placeholders,
        modifiers=corpus.modifiers if training else None,
        swap=swap,
    )
    return flow.steps.add(encode.STAGE, name, encode.EncodeInputs(text, vocab), config)
