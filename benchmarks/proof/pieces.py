"""The pieces of a proof: the steps of the pipeline's plan in the order of their worth, with a benchmark for each system."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from models.bundle.directory import load_model, save_model
from models.family import family_named
from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig
from pipeline.plan.step import Builder, Plan, Step
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from pipeline.store.marker import open_store
from stages import benchmark, report, system
from stages.benchmark import BenchmarkConfig, BenchmarkInputs
from stages.context import StepContext
from stages.errors import DataError
from stages.report import ReportConfig, ReportInputs
from stages.train import TrainConfig, TrainInputs
from stages.train.run import run
from stages.train.token_files import vocabulary_sizes

SETTINGS = ("tracking.enabled=false", "cluster.retries=0")
"""Settings of every proof: MLflow is not needed, and a step that fails is left out."""
STORE = "store"
"""Folder of the artifacts in the folder of a proof."""


@dataclass(frozen=True)
class Proof:
    """The steps of a config, and what is wanted of them."""

    file: Path
    settings: RunConfig
    store: Store
    steps: dict[str, Step]
    """All steps by name, each after those that it needs."""
    targets: tuple[Step, ...]
    """The scores and timings of all systems, a system after the other in the order of the config."""
    report: tuple[ReportInputs, ReportConfig]
    """Inputs and config of the pipeline's report, which this program reads results with."""

    def present(self, step: Step) -> bool:
        """Return whether the artifact of a step is in the store."""
        return self.store.manifest(step.directory) is not None

    def missing(self, targets: Iterable[Step] | None = None) -> list[Step]:
        """Return the steps that are to be executed for `targets` (all by default), those of a target before those of the next."""
        found: dict[str, Step] = {}
        for target in self.targets if targets is None else targets:
            wanted: set[str] = set() if self.present(target) else {target.name}
            for step in reversed(self.steps.values()):
                if step.name in wanted:
                    wanted.update(need for need in step.needs if not self.present(self.steps[need]))
            found |= {name: step for name, step in self.steps.items() if name in wanted and name not in found}
        return list(found.values())

    def before_training(self) -> list[Step]:
        """Return the missing steps that need no training: those that a machine without a GPU does before."""
        trained: set[str] = set()
        for step in self.steps.values():
            if step.stage.trains or trained.intersection(step.needs):
                trained.add(step.name)
        return [step for step in self.missing() if step.name not in trained]

    def plan(self, step: Step) -> Plan:
        """Return a step alone, as a part of the run."""
        return Plan((step,), tuple(self.steps.values()))


def proof_of(file: Path, overrides: Iterable[str], place: Path) -> Proof:
    """Return the proof of a config, whose store is in the folder `place`.

    Raises ConfigError for a wrong config, DataError for missing text and a config without a report, a baseline or a benchmark.
    """
    settings = load_config(
        file, [*overrides, *SETTINGS, f"store.path={place / STORE}"]
    )  # a package that is missing fails the steps that need it alone
    store = open_store(settings.store.path)
    plan = build_plan(settings, store)
    steps = {step.fingerprint: _adapted(step) for step in plan.steps}
    builder = Builder(store.root, steps)
    (last,) = (step for step in plan.steps if step.stage is report.STAGE)
    whole = [step for step in plan.steps if step.stage is benchmark.STAGE]
    targets: list[Step] = []
    for name in settings.systems:
        targets += [steps[item.scores.fingerprint] for item in last.inputs.evaluated if item.system == name]
        for step in whole:
            for label, inputs, config in _timed(step, name):
                targets.append(steps[builder.add(benchmark.STAGE, label, inputs, config).fingerprint])
    return Proof(file, settings, store, {step.name: step for step in steps.values()}, tuple(targets), (last.inputs, last.config))


def _adapted(step: Step) -> Step:
    """Return a step as a proof runs it: trainings leave weights in 16 bits. Raises DataError for weights that they do not leave."""
    if step.stage is system.STAGE and step.config.averaging is not None:
        raise DataError(f"{step.name}: expected a system of the weights that its training averaged; state num_averaged in training")
    return replace(step, stage=replace(step.stage, run=train)) if step.stage.trains else step


def _timed(step: Step, system: str) -> Iterator[tuple[str, BenchmarkInputs, BenchmarkConfig]]:
    """Yield the benchmarks of one system, with the names of their steps: its searches and the baseline; and, where CTranslate2
    decodes the baseline's network, that and the first search of the system (of the baseline's: all that CTranslate2 decodes)."""
    inputs = step.inputs
    config = step.config
    test = step.name.rpartition(":")[2]
    entries: list[str] = [entry for entry in config.searches if entry.partition("/")[0] == system]
    rivals: list[str] = [entry for entry, search in config.searches.items() if search.uses_ctranslate2]
    ours = [entry for entry in entries if entry not in rivals]
    compared = {f"{system}:{test}": [config.baseline, *ours]}
    if rivals:
        shown = rivals if rivals[0] in entries else rivals[:1]
        compared[f"{system}/ctranslate2:{test}"] = [*shown, *ours[:1]]
    for name, kept in compared.items():
        systems = {entry.partition("/")[0]: inputs.systems[entry.partition("/")[0]] for entry in kept}
        measured = {entry: tuned for entry, tuned in inputs.measured.items() if entry in kept}
        searches = {entry: config.searches[entry] for entry in kept}
        yield name, replace(inputs, systems=systems, measured=measured), replace(config, searches=searches, baseline=kept[0])


MAX_WEIGHTS_PER_TOKEN = 50
"""Weights of the layers for each target token of the text beyond which it is too small for a network: half of what Transformer-base
has on Multi30k, for which Wu et al. (2021) chose 4 + 4 layers of width 128."""


def train(inputs: TrainInputs, config: TrainConfig, context: StepContext) -> None:
    """Run the train stage. The weights that it leaves can be stored in 16 bits without a change, and only those are left: an
    artifact that travels is the one that was decoded. Raises DataError for text that is too small, and what the stage raises."""
    refuse_small_text(inputs, config)
    run(inputs, config, context)
    round_weights(inputs, config, context)


def refuse_small_text(inputs: TrainInputs, config: TrainConfig) -> None:
    """Raise DataError if the network has too many weights for its text."""
    tokens = sum(json.loads((part.path / "tokens.json").read_text(encoding="utf-8"))["target_tokens"] for part in inputs.tokens)
    model = family_named(config.family).functions.build(config.network, vocabulary_sizes(inputs.vocabulary))
    layers = (part for part in model.modules() if not isinstance(part, nn.Embedding))
    weights = sum(weight.numel() for part in layers for weight in part.parameters(recurse=False))
    if weights > MAX_WEIGHTS_PER_TOKEN * tokens:
        raise DataError(
            f"training: expected a text of {weights // MAX_WEIGHTS_PER_TOKEN:,} target tokens or more for layers of {weights:,} "
            f"weights, got {tokens:,}; choose a smaller size, or more text"
        )


def round_weights(inputs: TrainInputs, config: TrainConfig, context: StepContext) -> None:
    """Round the weights of a finished training to 16 bits, and remove those of other updates."""
    directory = context.directory
    state = load_model(directory).state_dict()
    rounded = {name: tensor.half().to(tensor.dtype) for name, tensor in state.items()}
    shutil.rmtree(directory / "kept")
    save_model(directory, config.family, config.network, vocabulary_sizes(inputs.vocabulary), rounded)
