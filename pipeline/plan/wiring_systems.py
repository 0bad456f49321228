"""The middle of the flow: teachers, what they write, and all systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from models.config.search import LimitedSearch, SearchConfig
from models.family import family_named
from models.stepwise.system import StepwiseTeacher
from models.training.config import TrainingConfig
from models.training.recipe import TrainedSystem
from pipeline.config.schema import Pinned, RunConfig
from pipeline.config.systems import TEACHER_FAMILY, UsedSystem
from pipeline.plan.step import Builder
from pipeline.plan.wiring_counts import Counts
from pipeline.plan.wiring_texts import Texts
from pipeline.store.artifacts import Store
from stages import distill, system, train, tune
from stages.artifacts import System, Tables, Text, Tokens, Trained, Tuned, Vocabulary
from stages.errors import DataError

Teachers = tuple[Trained | System, ...]
"""The teacher and the others of its ensemble; empty without a teacher."""


@dataclass(frozen=True)
class Systems:
    """Each method plans some steps and returns what they will leave."""

    config: RunConfig
    store: Store
    builder: Builder
    texts: Texts
    training: Text
    held_out: tuple[Text, ...]
    """Texts whose sentences no other may hold."""
    vocabulary: Vocabulary
    validation_text: Text
    validation: Tokens
    trainings: dict[str, Trained] = field(default_factory=dict)
    tuned: dict[str, Tuned] = field(default_factory=dict)
    """By system and search, where the length penalty is tuned."""
    written: dict[str, Tokens] = field(default_factory=dict)
    """In pieces, what systems that verify drafts made of the training text and of more."""
    distillations: dict[str, Text] = field(default_factory=dict)
    """What the teacher made of `train` and `monolingual`, and what systems that verify drafts made of the training text and of
    more."""

    def teachers(self, raw: Tokens) -> Teachers:
        settings = self.config.teacher
        if settings is None:
            return ()
        if not isinstance(settings, Pinned):
            members = [replace(settings, training=recipe) for recipe in settings.recipes()]
            return tuple(self._train(_member_name(number), member, (raw,)) for number, member in enumerate(members, 1))
        pinned, manifest = self.store.pinned([system.STAGE, train.STAGE], settings.path, "teacher.from")
        if manifest.stage == train.STAGE.name and manifest.inputs["vocabulary"] != self.vocabulary.fingerprint:
            raise DataError(
                f"teacher.from: expected a network trained on this run's vocabulary {self.vocabulary.fingerprint[:8]}, got one "
                f"trained on {manifest.inputs['vocabulary'][:8]}: {settings.path}; pin that vocabulary too (vocabulary.from), "
                "or name the directory of a system, which brings its own"
            )
        return (cast(Trained | System, pinned),)

    def distilled(self, text: Text, teachers: Teachers) -> dict[str, Text]:
        """What the teachers make of the training text, and of text in the source language alone; by the name of the data."""
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
            inputs = system.SystemInputs(teacher, self.vocabulary, members=_others(teachers))
            teacher = self._bundle("teacher", inputs, {config.search.label: config.search})
        plain = distill.DistillConfig(search=config.search, batch_tokens=config.batch_tokens, max_ratio=config.max_ratio)
        language = self.config.languages.target
        chosen = plain if config.choose == "score" else replace(plain, choose=config.choose, target_language=language)
        found = {"distilled": self._distil("train", text, teacher, chosen)}
        if config.monolingual:
            monolingual = self.texts.monolingual("", config.monolingual, self.held_out)
            found["distilled:monolingual"] = self._distil("monolingual", monolingual, teacher, plain)
        return found

    def all(self, data: dict[str, tuple[Tokens, ...]], teachers: Teachers, counts: Counts) -> dict[str, System]:
        """By name, in the order of the config. What verifies or drafts for others comes before them."""
        found: dict[str, System] = {}
        for name, settings in sorted(self.config.systems.items(), key=lambda item: bool(item[1].companions)):
            found[name] = self._system(name, settings, data, teachers, counts, found)
        return {name: found[name] for name in self.config.systems}

    def _system(
        self,
        name: str,
        settings: TrainedSystem | UsedSystem,
        data: dict[str, tuple[Tokens, ...]],
        teachers: Teachers,
        counts: Counts,
        others: dict[str, System],
    ) -> System:
        """`others`: the systems without companions, which come first."""
        companions = {role: others[companion] for role, companion in settings.companions.items()}
        networks: Teachers
        if isinstance(settings, TrainedSystem):
            if settings.data in companions:
                data = data | {settings.data: self._written_by(name, settings, others)}
            initial, learnt = self._initial(settings, teachers, companions), _mixed(settings, data)
            tables = counts.tables[settings.table_text] if settings.table_text else None
            networks = (self._train(name, settings, learnt, initial, tables),)
        else:
            networks, learnt, tables = teachers if settings.use == "ensemble" else teachers[:1], data["raw"], None
        first = networks[0]
        if isinstance(first, System):
            self._tune(name, settings, first)
            return first
        if any(search.needs_tables for search in settings.search.values()):
            tables = counts.shortlist(name, learnt[-1])
        weighed = any(search.needs_ngram for search in settings.search.values())
        model = counts.language_model if weighed else None
        inputs = system.SystemInputs(first, self.vocabulary, model, tables, members=_others(networks), companions=companions)
        return self._bundles(name, settings, inputs)

    def _bundles(self, name: str, settings: TrainedSystem | UsedSystem, inputs: system.SystemInputs) -> System:
        """Plan the system with all of its searches, and return it with its default search alone.

        Everything in the plan uses the latter, so that another search, label or length penalty leaves the other steps as they are.
        """
        averaging = None if isinstance(settings, UsedSystem) else settings.averaging
        default = next(iter(settings.search.values()))
        alone = {default.label: default}
        whole = settings.search == alone and not self._tuned_searches(settings)
        bundle = self._bundle(name if whole else f"{name}/default", inputs, alone, settings.family, averaging)
        tuned = self._tune(name, settings, bundle)
        if not whole:
            self._bundle(name, replace(inputs, tuned=tuned), settings.search, settings.family, averaging)
        return bundle

    def _initial(self, settings: TrainedSystem, teachers: Teachers, companions: Mapping[str, System]) -> Trained | System | None:
        """Whose weights a training starts from."""
        if settings.initial_weights == "random":
            return None
        if settings.initial_weights == "teacher":
            return teachers[0]
        return companions.get(settings.initial_weights) or self.trainings[settings.initial_weights]

    def _train(
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
            target_language=self.config.languages.target,
            task=self.config.task,
        )
        trained = self.builder.add(train.STAGE, name, inputs, config)
        self.trainings[name] = trained
        return trained

    def _tune(self, name: str, settings: TrainedSystem | UsedSystem, bundle: System) -> dict[str, Tuned]:
        """Choose the length penalties of a system's searches by label, if the config asks for it."""
        wanted = self.config.evaluation
        found: dict[str, Tuned] = {}
        for label, search in self._tuned_searches(settings).items():
            config = tune.TuneConfig(
                search=search,
                length_penalties=wanted.length_penalties,
                target_language=self.config.languages.target,
                task=self.config.task,
                tokenizer=wanted.tokenizer,
                lowercase=wanted.lowercase,
                batch_tokens=wanted.batch_tokens,
            )
            entry = f"{name}/{label}"
            found[label] = self.builder.add(tune.STAGE, entry, tune.TuneInputs(bundle, self.validation_text), config)
            self.tuned[entry] = found[label]
        return found

    def _tuned_searches(self, settings: TrainedSystem | UsedSystem) -> dict[str, SearchConfig]:
        """Searches by label whose length penalty is chosen on the validation text."""
        if not self.config.evaluation.length_penalties:
            return {}
        return {label: search for label, search in settings.search.items() if search.penalises_length}

    def _written_by(self, drafter: str, settings: TrainedSystem, others: dict[str, System]) -> tuple[Tokens, ...]:
        """The outputs of a companion, by its family's default search, for the training text and for further text of the system."""
        companion = settings.companions[settings.data]
        search = cast(LimitedSearch, family_named(self.config.systems[companion].family).search())
        texts = {f"{companion}/{search.label}": self.training}
        if settings.further_sources:
            further = self.texts.monolingual(drafter, settings.further_sources, self.held_out)
            texts[f"{companion}/{search.label}:{drafter}"] = further
        for name, text in texts.items():
            if name not in self.distillations:
                self._distil(name, text, others[companion], distill.DistillConfig(search=search))
                self.written[name] = self.texts.encoded(name, self.distillations[name], self.vocabulary)
        return tuple(self.written[name] for name in texts)

    def _distil(self, name: str, text: Text, teacher: System, config: distill.DistillConfig) -> Text:
        self.distillations[name] = self.builder.add(distill.STAGE, name, distill.DistillInputs(text, teacher), config)
        return self.distillations[name]

    def _bundle(
        self,
        name: str,
        inputs: system.SystemInputs,
        searches: Mapping[str, SearchConfig],
        family: str = TEACHER_FAMILY,
        averaging: TrainingConfig | None = None,
    ) -> System:
        languages = self.config.languages
        config = system.SystemConfig(
            name=name.removesuffix("/default"),
            family=family,
            source_language=languages.source,
            target_language=languages.target,
            searches=dict(searches),
            default=next(iter(searches)),
            task=self.config.task,
            max_source_tokens=self.config.corpus.max_source_tokens,
            averaging=averaging,
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
