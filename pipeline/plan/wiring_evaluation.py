"""The last third of the flow: what is decoded, scored, looked into and timed, once all systems are there."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.config.schema import RunConfig, stepwise_network
from pipeline.config.systems import DagSystem, LatticeSystem
from pipeline.plan.step import Builder
from stages import benchmark, contrastive, decode, likelihood, report, score
from stages import dag_analysis as graphs
from stages import lattice_analysis as lattices
from stages.artifacts import (
    Artifact,
    Contrasted,
    Graphs,
    Lattices,
    Likelihood,
    Report,
    System,
    Text,
    Timings,
    Tokens,
    Trained,
    Tuned,
)
from stages.families import Search


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
            graphs=self._graphs(),
            lattices=self._lattices(),
            tuned=self.tuned,
        )
        page = report.ReportConfig(
            title=self.config.name,
            task=self.config.task,
            baseline=config.baseline,
            samples=config.samples,
            minimum_bleu=config.minimum_bleu,
            minimum_rouge=config.minimum_rouge,
            together=self._together(),
        )
        return self.builder.add(report.STAGE, "run", inputs, page)

    def _evaluated(self) -> list[report.Evaluated]:
        return [
            self._row(name, self.systems[name], search, test)
            for test in self.tests
            for name, settings in self.config.systems.items()
            for search in settings.search
        ]

    def _row(self, name: str, bundle: System, search: Search, test: str) -> report.Evaluated:
        config, text = self.config.evaluation, self.tests[test]
        step = f"{name}/{search.name}:{test}"
        decoding = decode.DecodeConfig(search=search, batch_tokens=config.batch_tokens)
        inputs = decode.DecodeInputs(bundle, text, self.tuned.get(f"{name}/{search.name}"))
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
        return report.Evaluated(name, search.name, test, hypotheses, scores)

    def _likelihoods(self) -> dict[str, dict[str, Likelihood]]:
        if not self.config.evaluation.likelihood:
            return {}
        return {test: {name: self._likelihood(name, bundle, test) for name, bundle in self.systems.items()} for test in self.tests}

    def _likelihood(self, name: str, bundle: System, test: str) -> Likelihood:
        inputs = likelihood.LikelihoodInputs(bundle, self.tests[test])
        return self.builder.add(likelihood.STAGE, f"{name}:{test}", inputs, likelihood.LikelihoodConfig())

    def _together(self) -> dict[str, report.Together]:
        pairs = self.config.evaluation.mutual_information
        networks = {name: stepwise_network(self.config, pair.parallel) for name, pair in pairs.items()}
        return {
            name: report.Together(parallel=pair.parallel, sequential=pair.sequential, step_size=network.generation().step_size)
            for name, pair in pairs.items()
            if (network := networks[name])
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

    def _graphs(self) -> dict[str, dict[str, Graphs]]:
        """Of the training text, which nothing is drawn of, and of all test sets."""
        wanted = self.config.evaluation.graphs
        if not wanted:
            return {}
        names = [name for name, settings in self.config.systems.items() if isinstance(settings, DagSystem)]
        texts = {"train": (self.training_text, 0), **{test: (text, wanted) for test, text in self.tests.items()}}
        return {
            part: {name: self._looked_into(f"{name}:{part}", name, self.systems[name], text, drawn) for name in names}
            for part, (text, drawn) in texts.items()
        }

    def _looked_into(self, step: str, name: str, bundle: System, text: Text, drawn: int) -> Graphs:
        settings = self.config.systems[name]
        assert isinstance(settings, DagSystem)
        trained = self.trainings[name] if settings.training.keep_first else None
        inputs = graphs.GraphsInputs(bundle, text, trained)
        return self.builder.add(graphs.STAGE, step, inputs, graphs.GraphsConfig(sentences=drawn))

    def _lattices(self) -> dict[str, dict[str, Lattices]]:
        timed = self.config.evaluation.lattices
        if not timed:
            return {}
        names = [name for name, settings in self.config.systems.items() if isinstance(settings, LatticeSystem)]
        return {test: {name: self._ranks(name, test, timed) for name in names} for test in self.tests}

    def _ranks(self, name: str, test: str, timed: int) -> Lattices:
        inputs = lattices.LatticesInputs(self.systems[name], self.tests[test])
        config = lattices.LatticesConfig(name=f"{name} on {test}", timed=timed)
        return self.builder.add(lattices.STAGE, f"{name}:{test}", inputs, config)

    def _timings(self) -> dict[str, Timings]:
        config, all_settings = self.config.benchmark, self.config.systems
        if not config.enabled:
            return {}
        baseline = self.config.evaluation.baseline
        protocol = benchmark.BenchmarkConfig(
            searches={f"{name}/{search.name}": search for name, s in all_settings.items() for search in s.search},
            baseline=f"{baseline}/{all_settings[baseline].search[0].name}",
            sentences=config.sentences,
            rounds=config.rounds,
            batch_sizes=config.batch_sizes,
            memory=config.memory,
            task=self.config.task,
        )
        inputs = benchmark.BenchmarkInputs(self.systems, self.tests[config.test])
        return {config.test: self.builder.add(benchmark.STAGE, f"all:{config.test}", inputs, protocol)}
