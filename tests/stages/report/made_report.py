"""Plausible inputs for a report and for all optional analyses, and the parts of a page."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.artifacts import Hypotheses, Scores, Text, Timings, Trained
from stages.benchmark.summary import by_sentence, summarise, table
from stages.benchmark.timing import RoundTimings
from stages.context import StepContext
from stages.contrastive import Contrasted
from stages.dag_analysis import DagAnalysis
from stages.dag_analysis.drawing import Drawing, Vertex, draw
from stages.likelihood import Likelihood
from stages.parallel_analysis import ParallelAnalysis
from stages.report import STAGE, Evaluated, ReportConfig, ReportInputs, SystemPair
from stages.score import MetricName, ScoreConfig, ScoreInputs
from stages.score.run import run as score
from stages.shared.shards import shard_path, write_shard
from stages.shared.tasks import TRANSLATION, Task
from tests.stages.steps import context_in

ENGLISH = re.split(
    " ", "the old farmer sells a brown horse <b>today</b> because the small market near our village opens again after winter"
)
GERMAN = re.split(
    " ", "der alte Bauer verkauft heute ein braunes Pferd weil der kleine Markt nahe unserem Dorf nach dem Winter wieder öffnet"
)
ENTRIES = [
    ("autoregressive", "beam5", 0.1),
    ("autoregressive", "greedy", 0.15),
    ("interleaved", "greedy", 0.3),
    ("graph", "beam5", 0.2),
]


@dataclass
class Maker:
    """Makes plausible inputs for a report."""

    root: Path
    task: Task = TRANSLATION
    metrics: tuple[MetricName, ...] = ("bleu", "chrf", "ter", "tokenized_bleu")

    def text(self, name: str, rows: int, ledger: dict[str, Any] | None = None) -> Text:
        path, draw = self.root / name, random.Random(name)
        sources = [" ".join(draw.sample(ENGLISH, 12)) + "." for _ in range(rows)]
        targets = [" ".join(draw.sample(GERMAN, 12)) + "." for _ in range(rows)]
        write_shard(
            shard_path(path, 0), pa.table({"id": list(range(rows)), "source": sources, "target": targets}), context_in(path)
        )
        (path / "text.json").write_text(json.dumps({"rows": rows, "shards": 1, "shard_rows": 4096}))
        if ledger:
            (path / "ledger.json").write_text(json.dumps(ledger))
        return Text(path, f"{name}-fingerprint")

    def evaluated(self, system: str, search: str, test: str, text: Text, noise: float) -> Evaluated:
        path, draw = self.root / f"{system}.{search}.{test}", random.Random(search + system)
        rows = pa.ipc.open_file(pa.memory_map(str(shard_path(text.path, 0)))).read_all().to_pydict()
        texts = [" ".join(w if draw.random() > noise else draw.choice(GERMAN) for w in line.split()) for line in rows["target"]]
        data = {"id": rows["id"], "rank": [0] * len(texts), "text": texts}
        write_shard(shard_path(path / "decode", 0), pa.table(data), context_in(path / "decode"))
        hypotheses = Hypotheses(path / "decode", f"decode-{system}-{search}")
        scoring = ScoreConfig(target_language="de", metrics=self.metrics)
        score(ScoreInputs(hypotheses, text), scoring, context_in(path / "score"))
        return Evaluated(system, search, test, hypotheses, Scores(path / "score", f"score-{system}-{search}"))

    def timings(self, slow: dict[str, float]) -> Timings:
        path, draw = self.root / "benchmark", random.Random(1)
        timings = [
            RoundTimings(
                n, entry, [ms * draw.lognormvariate(0, 0.25) for _ in range(100)], tokenisation_ms=[0.1] * 100,
                detokenisation_ms=[0.1] * 100, batch_seconds={32: ms / 60}, tokens=1300, steps=1400,
            )
            for n in range(3)
            for entry, ms in slow.items()
        ]  # fmt: skip
        baseline = next(iter(slow))
        protocol = {"sentences": 100, "rounds": 3, "batch_size": 32, "batch_sizes": [32], "baseline": baseline}
        protocol["matched_baselines"] = dict.fromkeys(slow)
        where = {
            "device": "cpu", "cpu": "Example CPU <1>", "cpus": 2, "threads": 2, "precision": "float32", "torch": "2",
            "other_processors": 0.1,
        }  # fmt: skip
        figures = summarise(timings, baseline)
        context = context_in(path)
        record = {"protocol": protocol, "environment": where, "entries": figures, "by_sentence": by_sentence(timings, baseline)}
        context.write_json(context.records("benchmark.json"), record)
        context.write_json(context.records("tables", "benchmark.json"), table(500, protocol, figures, self.task))
        return Timings(path, "benchmark-fingerprint")

    def trained(self, name: str, best: float) -> Trained:
        path, draw = self.root / f"train.{name}", random.Random(name)
        context = context_in(path)
        for attempt, first, last in (("a1", 50, 800), ("a2", 600, 1500)):
            replace(context, attempt=attempt).metrics(first - 50, {"cpus": 4})
            for update in range(first, last + 1, 50):
                line = {"nll": 1 + 5 * 0.997**update + draw.gauss(0, 0.05), "target_tokens_per_second": 9000.0}
                replace(context, attempt=attempt).metrics(update, line)
                if update % 100 == 0:
                    valid = {"valid_loss": 1.1 + 5 * 0.997**update, "valid_bleu": best * (1 - 0.997**update)}
                    replace(context, attempt=attempt).metrics(update, valid)
        validations = [{"update": u, "loss": 1.1 + 5 * 0.997**u, "bleu": best * (1 - 0.997**u)} for u in range(100, 1501, 100)]
        report = {"updates": 1500, "epochs": 7, "averaged": [1300, 1400, 1500], "stopped_early": False, "validations": validations}
        context.write_json(path / "training.json", report)
        return Trained(path, f"train-{name}")

    def inputs(self, timed: bool = True, rows: int = 60) -> ReportInputs:
        samples = {"length": [{"pair": 17, "source": "too <i>long</i>", "target": "zu & lang"}]}
        dropped = {"empty": 0, "length": 14, "ratio": 3, "duplicate": 120, "overlap": 9}
        ledger = {"pairs_in": 20146, "pairs_out": 20000, "dropped": dropped, "samples": samples, "files": []}
        demo = self.text("demo", rows)
        evaluated = tuple(self.evaluated(system, search, "demo", demo, noise) for system, search, noise in ENTRIES)
        slow = {"autoregressive/beam5": 31.0, "autoregressive/greedy": 19.0, "interleaved/greedy": 11.0, "graph/beam5": 6.5}
        return ReportInputs(
            corpus=self.text("train", 20, ledger),
            tests={"demo": demo},
            trainings={"teacher": self.trained("teacher", 42.0), "interleaved": self.trained("interleaved", 40.0)},
            evaluated=evaluated,
            timings={"demo": self.timings(slow)} if timed else {},
        )


CONFIG = ReportConfig(title="demo <1> & more", baseline="autoregressive/beam5")


class Outline(HTMLParser):
    """Checks that every element is closed in order, and records the parts of a page; `images` are the ids of titles of figures."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.images: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag == "svg" and ("role", "img") in attrs:
            self.images.append(dict(attrs)["aria-labelledby"] or "")
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "action", "data"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")
        if tag not in ("meta", "br", "hr", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def heads(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def page_of(context: StepContext) -> str:
    return context.records("report.html").read_text(encoding="utf-8")


def outline(context: StepContext) -> Outline:
    parser = Outline()
    parser.feed(page_of(context).replace("<wbr>", ""))
    parser.close()
    return parser


def make_analysed_report(root: Path, inputs: ReportInputs) -> StepContext:
    """Return the report of `inputs` with all optional analyses, made below `root`."""

    def likelihood(system: str, log_probability: float) -> Likelihood:
        context = context_in(root / f"likelihood.{system}")
        found = {"rows": 60, "left_out": {"over_long": 2}, "tokens": 1000, "log_probability": log_probability, "vocabulary": "ab12"}
        context.write_json(context.directory / "likelihood.json", {**found, "perplexity": math.exp(-log_probability / 1000)})
        return Likelihood(context.directory, f"likelihood-{system}")

    def contrasted(system: str, correct: list[int]) -> Contrasted:
        context = context_in(root / f"contrastive.{system}")
        bands = [{"distance": name, "pairs": 20, "correct": n} for name, n in zip(["1", "2", "3-4"], correct, strict=True)]
        counts = {"pairs": 60, "correct": sum(correct), "correct_by_mean": 30}
        types = [{"type": "subj_verb_agreement", **counts}, {"type": "compound", "pairs": 4, "correct": 3, "correct_by_mean": 3}]
        frequencies = [{"frequency": "3-5", "pairs": 8, "correct": 2, "correct_by_mean": 2}]
        found = {"pairs": 64, "left_out": 0, "correct": sum(correct) + 3, "correct_by_mean": 33, "bands": bands, "types": types}
        found |= {"distances": bands, "frequencies": frequencies}
        context.write_json(context.directory / "contrastive.json", found)
        return Contrasted(context.directory, f"contrastive-{system}")

    def dag_analysis(text: str, drawn: int) -> DagAnalysis:
        context = context_in(root / f"dag.{text}")
        one = {
            "sentences": 60, "impossible": 2, "aligned": 58, "tokens": 1000, "correct": 250, "correct_ends": 100,
            "spread": 3.456,
        }  # fmt: skip
        vertices = {"vertices": 400, "likely": 80, "confident": 100, "vague": 40, "joint": [[4] * 10] * 10}
        found = {**one, **vertices, "out_degrees": {"1": 30, "2": 90}}
        context.write_json(
            context.directory / "dag_analysis.json", {**found, "left_out": {}, "early": {**found, "correct": 50, "update": 1500}}
        )
        for number in range(drawn):
            drawing = Drawing([Vertex(0, 1.0, [("<s>", 1.0)]), Vertex(3, 1.0, [("</s>", 1.0)])], [(0, 3, 1.0)])
            context.write_text(context.records("figures", f"0{number}-dag.svg"), draw(drawing))
            context.write_json(context.records("figures", f"0{number}-dag.json"), {"caption": f"drawing {number} & more"})
        return DagAnalysis(context.directory, f"dag-{text}")

    def parallel_analysis() -> ParallelAnalysis:
        context = context_in(root / "slots")
        found = {"sentences": 60, "impossible": 2, "tokens": 800, "correct": 250.0, "choices": 3.456, "candidates": [1, 2]}
        recall = {"recall": [0.25, 0.5], "recall_predicted_length": [0.125, 0.375]}
        context.write_json(context.directory / "parallel_analysis.json", {**found, **recall, "left_out": {}})
        return ParallelAnalysis(context.directory, "slots")

    evaluated = []
    for item in inputs.evaluated:
        context = context_in(root / f"{item.system}.{item.search}")
        config = ScoreConfig(
            target_language="de", metrics=("bleu", "otem", "utem"), head_and_tail=True, long_sentences=5, length_bins=(12, 13),
        )  # fmt: skip
        score(ScoreInputs(item.hypotheses, inputs.tests["demo"]), config, context)
        if item.search == "greedy":
            found = {
                "samples": 3, "sentences": 60, "left_out": 0, "bleu_by_rank": [50, 40, 30], "bleu": 40.0, "pairwise_bleu": 71.5,
                "oracle_bleu": 61.25, "matched": {"references": 2.5, "bleu": 44.75, "covered": 1.5},
            }  # fmt: skip
            context.write_json(context.directory / "diversity.json", found)
            parts = {"tokens": (3, 400), "words": (2, 300), "reference_tokens": (5, 1250), "reference_words": (1, 1000)}
            repetition = {unit: {"repeated": part, "total": whole} for unit, (part, whole) in parts.items()}
            context.write_json(context.directory / "repetition.json", repetition)
            kinds = {"code": {"total": 40, "kept": 39}, "url": {"total": 8, "kept": 1}}
            kept = {"sentences": 30, "kept": 24, "searched": 21, "reference_kept": 27, "kinds": kinds}
            context.write_json(context.directory / "placeholders.json", kept)
            terms = {"terms": 16, "sentences": 12, "honoured": 14, "reference_honoured": 10}
            context.write_json(context.directory / "terms.json", terms)
        evaluated.append(replace(item, scores=Scores(context.directory, "again")))
    systems = {"autoregressive": -1200.0, "interleaved": -1300.0, "graph": -1250.0}
    asked = replace(
        inputs,
        evaluated=tuple(evaluated),
        analyses={
            "likelihood": {"demo": {system: likelihood(system, value) for system, value in systems.items()}},
            "contrastive": {
                "": {"autoregressive": contrasted("autoregressive", [20, 19, 11]), "graph": contrasted("graph", [18, 13, 9])}
            },
            "dag_analysis": {"train": {"graph": dag_analysis("train", 0)}, "demo": {"graph": dag_analysis("demo", 2)}},
            "parallel_analysis": {"demo": {"graph": parallel_analysis()}},
        },
    )
    pairs = {"l2r": SystemPair(parallel="interleaved", sequential="autoregressive", step_size=2)}
    STAGE.run(asked, replace(CONFIG, system_pairs=pairs), context := context_in(root / "out"))
    return context
