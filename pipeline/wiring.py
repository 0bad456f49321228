"""The flow of the pipeline: from a config to its plan, in plain Python over typed artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pipeline.config import Pinned, RunConfig, TextConfig
from pipeline.config_systems import AggressiveSystem, Distillation, LatticeSystem, StepwiseTeacher, TrainedSystem, UsedSystem
from pipeline.downloads import RemoteFile, fetched
from pipeline.plan import Builder, Plan
from pipeline.store import Store
from pipeline.wiring_evaluation import Evaluation
from stages import (
    align,
    benchmark,
    contrastive,
    corpus,
    decode,
    distill,
    encode,
    graphs,
    lattice,
    lattices,
    likelihood,
    ngram,
    report,
    score,
    system,
    train,
    tune,
    vocabulary,
)
from stages.artifacts import (
    Links,
    Ngram,
    Report,
    System,
    Tables,
    Text,
    Tokens,
    Trained,
    Tuned,
    Vocabulary,
)
from stages.errors import DataError
from stages.families import PenalisedSearch, Search
from stages.stage import Artifact, ExternalFile, Stage

STAGES: tuple[Stage[Any, Any, Any], ...] = (
    corpus.STAGE,
    vocabulary.STAGE,
    encode.STAGE,
    align.STAGE,
    lattice.STAGE,
    ngram.STAGE,
    train.STAGE,
    distill.STAGE,
    system.STAGE,
    tune.STAGE,
    decode.STAGE,
    score.STAGE,
    likelihood.STAGE,
    contrastive.STAGE,
    graphs.STAGE,
    lattices.STAGE,
    benchmark.STAGE,
    report.STAGE,
)


def build_plan(config: RunConfig, store: Store) -> Plan:
    """All steps that `config` asks for. Raises DataError when a file or a pinned artifact that it names is not there.

    Files that it names by URL are downloaded if the store does not hold them.
    """
    wiring = _Wiring(config, store, Builder(store.root))
    wiring.page()
    return wiring.builder.plan()


@dataclass
class _Wiring:
    """Each method plans some steps and returns what they will leave."""

    config: RunConfig
    store: Store
    builder: Builder
    tests: dict[str, Text] = field(default_factory=dict)
    trainings: dict[str, Trained] = field(default_factory=dict)
    cut: dict[str, Tokens] = field(default_factory=dict)
    """Texts whose cut sources the report counts."""
    counts: dict[str, Artifact] = field(default_factory=dict)
    """By step: what was counted rather than trained."""
    language_model: Ngram | None = None
    tables: dict[str, Tables] = field(default_factory=dict)
    """Candidate tables by the text that they are counted from."""
    tuned: dict[str, Tuned] = field(default_factory=dict)
    """By system and search, where the length penalty is tuned."""

    def page(self) -> Report:
        validation = self._text("validation", self.config.corpus.validation)
        self.tests = {name: self._text(name, text) for name, text in self.config.corpus.test.items()}
        train_text = self._training_text((validation, *self.tests.values()))
        systems = self._systems(train_text, validation)
        evaluation = Evaluation(self.config, self.builder, systems, self.tests, train_text, self.trainings, self.tuned)
        config = self.config.evaluation
        inputs = report.ReportInputs(
            corpus=train_text,
            tests=self.tests,
            trainings=self.trainings,
            evaluated=tuple(evaluation.evaluated()),
            timings=evaluation.timings(),
            cut=self.cut,
            counts=self.counts,
            likelihoods=evaluation.likelihoods(),
            contrasts=evaluation.contrasts(),
            graphs=evaluation.graphs(),
            lattices=evaluation.lattices(),
            tuned=self.tuned,
        )
        page = report.ReportConfig(
            title=self.config.name,
            task=self.config.task,
            baseline=config.baseline,
            samples=config.samples,
            minimum_bleu=config.minimum_bleu,
            minimum_rouge=config.minimum_rouge,
            together=evaluation.together(),
        )
        return self.builder.add(report.STAGE, "run", inputs, page)

    def _text(self, part: str, text: TextConfig) -> Text:
        config = self._corpus_config(part, text)
        return self.builder.add(corpus.STAGE, part, corpus.CorpusInputs(self._files(text)), config)

    def _training_text(self, exclude: tuple[Text, ...]) -> Text:
        text = self.config.corpus.train
        config = self._corpus_config("train", text, self.config.corpus.filters)
        return self.builder.add(corpus.STAGE, "train", corpus.CorpusInputs(self._files(text), exclude), config)

    def _corpus_config(self, part: str, text: TextConfig, filters: corpus.Filters | None = None) -> corpus.CorpusConfig:
        languages = self.config.languages
        return corpus.CorpusConfig(
            source_language=languages.source,
            target_language=languages.target,
            embedded=text.embedded,
            task=self.config.task if text.embedded else "translation",
            part=part if text.embedded else "",
            filters=filters,
            shard_rows=self.config.corpus.shard_rows,
        )

    def _files(self, text: TextConfig) -> corpus.TextFiles:
        return corpus.TextFiles(
            source=self._external(text.source),
            target=self._external(text.target),
            references=tuple(self._external(paths) for paths in text.references),
            tsv=self._external(text.tsv),
            parquet=self._external(text.parquet),
        )

    def _external(self, files: Sequence[Path | RemoteFile]) -> tuple[ExternalFile, ...]:
        return tuple(
            fetched(file, self.store) if isinstance(file, RemoteFile) else ExternalFile(file.absolute(), self.store.digest(file))
            for file in files
        )

    def _vocabulary(self, text: Text) -> Vocabulary:
        config = self.config.vocabulary
        if isinstance(config, Pinned):
            pinned, _ = self.store.pinned([vocabulary.STAGE], config.path, "vocabulary.from")
            return cast(Vocabulary, pinned)
        name = "joint" if config.joint else "separate"
        return self.builder.add(vocabulary.STAGE, name, vocabulary.VocabularyInputs(text), config)

    def _systems(self, text: Text, validation: Text) -> dict[str, System]:
        words = self._vocabulary(text)
        raw = self._encode("raw", text, words)
        if self.config.corpus.max_source_tokens is not None:
            self.cut = {"train": raw, **{name: self._encode(f"raw:{name}", test, words) for name, test in self.tests.items()}}
        trainer = _Trainer(self, validation, self._encode("validation", validation, words), words)
        teachers = self._teachers(trainer, raw)
        data: dict[str, tuple[Tokens, ...]] = {"raw": (raw,)}
        if self._distils():
            texts = self._distilled(text, (validation, *self.tests.values()), teachers, words)
            data["distilled"] = tuple(self._encode(name, distilled, words) for name, distilled in texts.items())
        self._count(data, text, trainer)
        self._ngram(raw, text, validation, trainer)
        systems: dict[str, System] = {}
        for name, settings in sorted(self.config.systems.items(), key=lambda item: isinstance(item[1], AggressiveSystem)):
            systems[name] = self._system(name, settings, trainer, data, teachers, systems)
        return {name: systems[name] for name in self.config.systems}

    def _distils(self) -> bool:
        """Does anything learn from the teacher's translations?"""
        learners = any(isinstance(system, TrainedSystem) and system.data != "raw" for system in self.config.systems.values())
        return learners or "distilled" in self._counted()

    def _counted(self) -> list[str]:
        """The texts that candidate tables are counted from."""
        stated = [] if self.config.lattice is None else [self.config.lattice.data]
        systems = [system.counted for system in self.config.systems.values() if isinstance(system, LatticeSystem)]
        return list(dict.fromkeys([*stated, *systems]))

    def _count(self, data: dict[str, tuple[Tokens, ...]], text: Text, trainer: _Trainer) -> None:
        """Link words, and count candidate tables, as far as the config asks for them."""
        alignment, counted = self.config.alignment, self._counted()
        if alignment is not None and not counted:
            self._align("raw", text if alignment.unit == "words" else data["raw"][0])
        counting = lattice.LatticeConfig() if self.config.lattice is None else self.config.lattice.counting
        for name in counted:
            tokens = data[name][0]
            inputs = lattice.LatticeInputs(tokens, self._align(name, tokens), trainer.validation, trainer.vocabulary)
            self.tables[name] = self.builder.add(lattice.STAGE, name, inputs, counting)
            self.counts[f"lattice:{name}"] = self.tables[name]

    def _align(self, name: str, bitext: Text | Tokens) -> Links:
        links = self.builder.add(align.STAGE, name, align.AlignInputs(bitext), self.config.alignment or align.AlignConfig())
        self.counts[f"align:{name}"] = links
        return links

    def _ngram(self, raw: Tokens, text: Text, validation: Text, trainer: _Trainer) -> None:
        """Estimate a language model, if the config asks for one."""
        settings = self.config.ngram
        if settings is None:
            return
        if isinstance(settings, Pinned):
            pinned, manifest = self.store.pinned([ngram.STAGE], settings.path, "ngram.from")
            self.counts["ngram:pinned"] = self.language_model = cast(Ngram, pinned)
            found = manifest.inputs.get("vocabulary")
            if found and found != trainer.vocabulary.fingerprint:
                raise DataError(
                    f"ngram.from: expected a model over this run's vocabulary {trainer.vocabulary.fingerprint[:8]}, got one over "
                    f"{found[:8]}: {settings.path}; pin that vocabulary too (vocabulary.from), or estimate anew"
                )
            return
        if settings.unit == "pieces":
            inputs = ngram.NgramInputs((raw,), trainer.validation, trainer.vocabulary)
        else:
            inputs = ngram.NgramInputs((text,), validation)
        self.language_model = self.builder.add(ngram.STAGE, settings.side, inputs, settings)
        self.counts[f"ngram:{settings.side}"] = self.language_model

    def _encode(self, name: str, text: Text, words: Vocabulary) -> Tokens:
        config = encode.EncodeConfig(max_source_tokens=self.config.corpus.max_source_tokens)
        return self.builder.add(encode.STAGE, name, encode.EncodeInputs(text, words), config)

    def _teachers(self, trainer: _Trainer, raw: Tokens) -> tuple[Trained | System, ...]:
        """The teacher and the others of its ensemble; none without a teacher."""
        settings = self.config.teacher
        if settings is None:
            return ()
        if not isinstance(settings, Pinned):
            members = [replace(settings, training=recipe) for recipe in settings.recipes()]
            return tuple(trainer.train(_member_name(number), member, (raw,)) for number, member in enumerate(members, 1))
        pinned, manifest = self.store.pinned([system.STAGE, train.STAGE], settings.path, "teacher.from")
        if manifest.stage == train.STAGE.name and manifest.inputs["vocabulary"] != trainer.vocabulary.fingerprint:
            raise DataError(
                f"teacher.from: expected a network trained on this run's vocabulary {trainer.vocabulary.fingerprint[:8]}, got one "
                f"trained on {manifest.inputs['vocabulary'][:8]}: {settings.path}; pin that vocabulary too (vocabulary.from), "
                "or name the directory of a system, which brings its own"
            )
        return (cast(Trained | System, pinned),)

    def _distilled(
        self, text: Text, exclude: tuple[Text, ...], teachers: tuple[Trained | System, ...], words: Vocabulary
    ) -> dict[str, Text]:
        """What the teachers make of the training text, and of text in the source language alone."""
        config = self.config.distillation
        if isinstance(config, Pinned):
            pinned, manifest = self.store.pinned([distill.STAGE], config.path, "distillation.from")
            if manifest.inputs["text"] != text.fingerprint:
                raise DataError(
                    f"distillation.from: expected outputs for this run's training text {text.fingerprint[:8]}, which holds no "
                    f"test sentence, got those of {manifest.inputs['text'][:8]}: {config.path}; leave the corpus as it was for "
                    "that text, or distil anew"
                )
            return {"distilled": cast(Text, pinned)}
        teacher = teachers[0]
        if isinstance(teacher, Trained):
            teacher = self._bundle("teacher", system.SystemInputs(teacher, words, members=_others(teachers)), config.search)
        plain = distill.DistillConfig(search=config.search, batch_tokens=config.batch_tokens, max_ratio=config.max_ratio)
        language = self.config.languages.target
        chosen = plain if config.choose == "score" else replace(plain, choose=config.choose, target_language=language)
        found = {"distilled": self._distil("train", text, teacher, chosen)}
        if config.monolingual:
            found["distilled:monolingual"] = self._distil("monolingual", self._monolingual(exclude), teacher, plain)
        return found

    def _distil(self, name: str, text: Text, teacher: System, config: distill.DistillConfig) -> Text:
        distilled = self.builder.add(distill.STAGE, name, distill.DistillInputs(text, teacher), config)
        self.counts[f"distill:{name}"] = distilled
        return distilled

    def _monolingual(self, exclude: tuple[Text, ...]) -> Text:
        """Sentences without a translation stand on both sides, so that they are cleaned as the training text is."""
        assert isinstance(self.config.distillation, Distillation)
        files = self._external(self.config.distillation.monolingual)
        config = self._corpus_config("train", TextConfig(), replace(self.config.corpus.filters, drop_identical=False))
        one_language = replace(config, target_language=config.source_language)
        inputs = corpus.CorpusInputs(corpus.TextFiles(source=files, target=files), exclude)
        return self.builder.add(corpus.STAGE, "train/monolingual", inputs, one_language)

    def _system(
        self,
        name: str,
        settings: TrainedSystem | UsedSystem,
        trainer: _Trainer,
        data: dict[str, tuple[Tokens, ...]],
        teachers: tuple[Trained | System, ...],
        others: dict[str, System],
    ) -> System:
        """`others`: the systems of other families than `aggressive`, which come first."""
        companions: tuple[System | None, System | None] = (None, None)
        if isinstance(settings, AggressiveSystem):
            companions = (others[settings.verifier], others[settings.drafter_system] if settings.drafter_system else None)
        networks: tuple[Trained | System, ...]
        if isinstance(settings, TrainedSystem):
            initial = teachers[0] if settings.initial_weights == "teacher" else None
            if settings.initial_weights == "verifier":
                initial = companions[0]
            tables = self.tables[settings.counted] if isinstance(settings, LatticeSystem) else None
            networks = (trainer.train(name, settings, _mixed(settings, data), initial, tables),)
        else:
            networks, tables = teachers if settings.use == "ensemble" else teachers[:1], None
        first = networks[0]
        if isinstance(first, System):
            self._tune(name, settings, first, trainer.validation_text)
            return first
        weighed = any(getattr(search, "ngram_weight", 0.0) for search in settings.search)
        model = self.language_model if weighed else None
        inputs = system.SystemInputs(first, trainer.vocabulary, model, tables, members=_others(networks))
        inputs = replace(inputs, verifier=companions[0], drafter=companions[1])
        search = settings.search[0]
        tunes_default = search in self._tuned_searches(settings)
        bundle = self._bundle(f"{name}/untuned" if tunes_default else name, inputs, search, settings.family)
        self._tune(name, settings, bundle, trainer.validation_text)
        if not tunes_default:
            return bundle
        return self._bundle(name, replace(inputs, tuned=self.tuned[f"{name}/{search.name}"]), search, settings.family)

    def _tune(self, name: str, settings: TrainedSystem | UsedSystem, bundle: System, validation: Text) -> None:
        """Choose the length penalties of a system's searches, if the config asks for it."""
        wanted = self.config.evaluation
        for search in self._tuned_searches(settings):
            config = tune.TuneConfig(
                search=search,
                length_penalties=wanted.length_penalties,
                target_language=self.config.languages.target,
                task=self.config.task,
                tokenizer=wanted.tokenizer,
                lowercase=wanted.lowercase,
                batch_tokens=wanted.batch_tokens,
            )
            entry = f"{name}/{search.name}"
            self.tuned[entry] = self.builder.add(tune.STAGE, entry, tune.TuneInputs(bundle, validation), config)

    def _tuned_searches(self, settings: TrainedSystem | UsedSystem) -> list[PenalisedSearch]:
        """Searches whose length penalty is chosen on the validation text."""
        if not self.config.evaluation.length_penalties:
            return []
        return [search for search in settings.search if isinstance(search, PenalisedSearch) and search.penalises_length]

    def _bundle(self, name: str, inputs: system.SystemInputs, search: Search, family: str = "stepwise") -> System:
        languages = self.config.languages
        config = system.SystemConfig(
            name=name.removesuffix("/untuned"),
            family=family,
            source_language=languages.source,
            target_language=languages.target,
            search=search,
            task=self.config.task,
            max_source_tokens=self.config.corpus.max_source_tokens,
        )
        return self.builder.add(system.STAGE, name, inputs, config)


def _member_name(number: int) -> str:
    """What the n-th network of the teacher's ensemble is called; no system can be called so."""
    return "teacher" if number == 1 else f"teacher/{number}"


def _others(networks: Sequence[Trained | System]) -> tuple[Trained, ...]:
    """All networks of an ensemble but the first."""
    return tuple(network for network in networks[1:] if isinstance(network, Trained))


def _mixed(settings: TrainedSystem, data: dict[str, tuple[Tokens, ...]]) -> tuple[Tokens, ...]:
    """What a system learns from, as often as it stands in an epoch."""
    if settings.data != "mixed":
        return data[settings.data]
    return data["raw"] * settings.mixture.raw + data["distilled"] * settings.mixture.distilled


@dataclass(frozen=True)
class _Trainer:
    """What every training of a run shares."""

    wiring: _Wiring
    validation_text: Text
    validation: Tokens
    vocabulary: Vocabulary

    def train(
        self,
        name: str,
        settings: StepwiseTeacher | TrainedSystem,
        data: tuple[Tokens, ...],
        initial: Trained | System | None = None,
        tables: Tables | None = None,
    ) -> Trained:
        inputs = train.TrainInputs(data, self.validation, self.validation_text, self.vocabulary, initial, tables)
        config = train.TrainConfig(
            family=settings.family,
            network=settings.network,
            training=settings.training,
            target_language=self.wiring.config.languages.target,
            task=self.wiring.config.task,
        )
        trained = self.wiring.builder.add(train.STAGE, name, inputs, config)
        self.wiring.trainings[name] = trained
        return trained
