"""The last third of the flow: what is decoded, scored, looked into and timed, once all systems are there."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.search import SearchConfig
from models.stepwise.config import StepwiseConfig
from models.training.recipe import TrainedSystem
from pipeline.config.schema import RunConfig, network_of
from pipeline.plan.step import Builder
from stages import benchmark, contrastive, dag_analysis, decode, lattice_analysis, likelihood, report, score
from stages.artifacts import (
    Artifact,
    Contrasted,
    DagAnalysis,
    LatticeAnalysis,
    Likelihood,
    Report,
    System,
    Text,
    Timings,
    Tokens,
    Trained,
    Tuned,
)


@dataclass(frozen=True)
class Evaluation:
    """Each method plans some steps and returns what they will leave."""

    config: RunConfig
    builder: Builder
    systems: dict[str, System]
    tests: dict[str, Text]
    training_text: Text
    trainings: dict[str, Trained]
    tuned: dict[str, Tuned]
    """By system and search."""

    def page(self, cut: dict[str, Tokens], counts: dict[str, Artifact]) -> Report:
        """`cut`: texts whose cut sources the report counts. `counts`: by step, what was counted rather than trained."""
        config = self.config.evaluation
        inputs = report.ReportInputs(
            corpus=self.training_text,
            tests=self.tests,
            trainings=self.trainings,
            evaluated=tuple(self._evaluated()),
            timings=self._timings(),
            cut=cut,
            counts=counts,
            likelihoods=self._likelihoods(),
            contrasts=self._contrasts(),
            dag_analyses=self._dag_analyses(),
            lattice_analyses=self._lattice_analyses(),
            tuned=self.tuned,
        )
        page = report.ReportConfig(
            title=self.config.name,
            task=self.config.task,
            baseline=self._baseline(),
            samples=config.samples,
            min_bleu=config.min_bleu,
            min_rouge=config.min_rouge,
            together=self._together(),
        )
        return self.builder.add(report.STAGE, "run", inputs, page)

    def _evaluated(self) -> list[report.Evaluated]:
        return [
            self._row(name, self.systems[name], label, search, test)
            for test in self.tests
            for name, settings in self.config.systems.items()
            for label, search in settings.search.items()
        ]

    def _row(self, name: str, bundle: System, label: str, search: SearchConfig, test: str) -> report.Evaluated:
        config, text = self.config.evaluation, self.tests[test]
        step = f"{name}/{label}:{test}"
        decoding = decode.DecodeConfig(search=search, batch_tokens=config.batch_tokens)
        inputs = decode.DecodeInputs(bundle, text, self.tuned.get(f"{name}/{label}"))
        hypotheses = self.builder.add(decode.STAGE, step, inputs, decoding)
        scoring = score.ScoreConfig(
            target_language=self.config.languages.target,
            tokenizer=config.tokenizer,
            lowercase=config.lowercase,
            metrics=config.metrics,
            head_and_tail=config.head_and_tail,
            long_sentences=config.long_sentences,
            length_bins=config.length_bins,
            diversity=search.strategy == "sample" and search.n_best > 1,
        )
        scores = self.builder.add(score.STAGE, step, score.ScoreInputs(hypotheses, text), scoring)
        return report.Evaluated(name, label, test, hypotheses, scores)

    def _likelihoods(self) -> dict[str, dict[str, Likelihood]]:
        if not self.config.evaluation.likelihood:
            return {}
        return {test: {name: self._likelihood(name, bundle, test) for name, bundle in self.systems.items()} for test in self.tests}

    def _likelihood(self, name: str, bundle: System, test: str) -> Likelihood:
        inputs = likelihood.LikelihoodInputs(bundle, self.tests[test])
        return self.builder.add(likelihood.STAGE, f"{name}:{test}", inputs, likelihood.LikelihoodConfig())

    def _together(self) -> dict[str, report.Together]:
        pairs = self.config.evaluation.mutual_information
        networks = {name: network_of(self.config, pair.parallel) for name, pair in pairs.items()}
        return {
            name: report.Together(parallel=pair.parallel, sequential=pair.sequential, step_size=network.generation().step_size)
            for name, pair in pairs.items()
            if isinstance(network := networks[name], StepwiseConfig)
        }

    def _contrasts(self) -> dict[str, Contrasted]:
        if not self.config.evaluation.contrastive:
            return {}
        config = contrastive.ContrastiveConfig(
            pairs=self.config.evaluation.contrastive, target_language="en" if self.config.languages.target == "en" else "de"
        )
        return {
            name: self.builder.add(contrastive.STAGE, name, contrastive.ContrastiveInputs(bundle), config)
            for name, bundle in self.systems.items()
        }

    def _dag_analyses(self) -> dict[str, dict[str, DagAnalysis]]:
        """Of the training text, which nothing is drawn of, and of all test sets."""
        wanted = self.config.evaluation.dag_analysis
        if not wanted:
            return {}
        names = self._analysed("dag_analysis")
        texts = {"train": (self.training_text, 0), **{test: (text, wanted) for test, text in self.tests.items()}}
        return {
            part: {name: self._looked_into(f"{name}:{part}", name, self.systems[name], text, drawn) for name in names}
            for part, (text, drawn) in texts.items()
        }

    def _looked_into(self, step: str, name: str, bundle: System, text: Text, drawn: int) -> DagAnalysis:
        settings = self.config.systems[name]
        assert isinstance(settings, TrainedSystem)
        trained = self.trainings[name] if settings.training.keep_first else None
        inputs = dag_analysis.DagAnalysisInputs(bundle, text, trained)
        return self.builder.add(dag_analysis.STAGE, step, inputs, dag_analysis.DagAnalysisConfig(sentences=drawn))

    def _lattice_analyses(self) -> dict[str, dict[str, LatticeAnalysis]]:
        timed = self.config.evaluation.lattice_analysis
        if not timed:
            return {}
        names = self._analysed("lattice_analysis")
        return {test: {name: self._ranks(name, test, timed) for name in names} for test in self.tests}

    def _ranks(self, name: str, test: str, timed: int) -> LatticeAnalysis:
        inputs = lattice_analysis.LatticeAnalysisInputs(self.systems[name], self.tests[test])
        config = lattice_analysis.LatticeAnalysisConfig(name=f"{name} on {test}", timed=timed)
        return self.builder.add(lattice_analysis.STAGE, f"{name}:{test}", inputs, config)

    def _analysed(self, analysis: str) -> list[str]:
        """The systems of the family that has this analysis."""
        systems = self.config.systems.items()
        return [name for name, settings in systems if isinstance(settings, TrainedSystem) and settings.analysis == analysis]

    def _baseline(self) -> str:
        """`system/label` of the result that the others are compared with."""
        name, _, label = self.config.evaluation.baseline.partition("/")
        return f"{name}/{label or next(iter(self.config.systems[name].search))}"

    def _timings(self) -> dict[str, Timings]:
        config, all_settings = self.config.benchmark, self.config.systems
        if not config.enabled:
            return {}
        protocol = benchmark.BenchmarkConfig(
            searches={f"{name}/{label}": search for name, s in all_settings.items() for label, search in s.search.items()},
            baseline=self._baseline(),
            sentences=config.sentences,
            rounds=config.rounds,
            batch_sizes=config.batch_sizes,
            memory=config.memory,
            task=self.config.task,
        )
        inputs = benchmark.BenchmarkInputs(self.systems, self.tests[config.test])
        return {config.test: self.builder.add(benchmark.STAGE, f"all:{config.test}", inputs, protocol)}
