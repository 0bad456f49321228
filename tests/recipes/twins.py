"""Tiny twins of the recipes: the same flow, systems, searches and analyses with small networks and synthetic text.

    python -m tests.recipes.twins STORE [RECIPE ...]

runs the twins one after the other in one store, and writes their steps and seconds of CPU time to `results.json`, which
`python -m tests.recipes.page` shows.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import yaml

from pipeline.config.files.yaml import read_config
from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.run.execute import RunReport
from pipeline.store.artifacts import Store
from stages.shared.embedded import documents, pairs
from stages.shared.embedded.contrast import contrasts
from tests.models.imports.test_bart import write_bart
from tests.synthetic_text import LETTERS, translated

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ROOT / "configs/papers"
LOCALISATION = ROOT / "configs/localisation"
LOCALISATIONS = sorted(path.stem for path in LOCALISATION.glob("*.yaml"))
GLOSSARY = "Python\tSerpent\n"
MESSAGES = ("the %s of `x`", ":mod:`os` by Python", "%d in `y` or :term:`words here`", "<b>Python</b>")
"""Ends of messages with placeholders and terms."""
RECIPES = sorted(path.stem for path in PAPERS.glob("*.yaml"))
VARIANTS = sorted(f"verifiers/{path.stem}" for path in PAPERS.glob("verifiers/*.yaml"))
"""Recipes with an imported network in place of one that they train."""
KINDS = (
    "aspec-ja-en-double-token-beams", "iwslt14-de-en-lattice-normalizers", "wat17-en-ja-interleaved", "wmt14-de-en-parallel",
    "wmt14-en-de-aggressive", "wmt14-en-de-dag-diversity", "wmt14-en-de-interleaved", "wmt14-en-de-shallow", "xsum-dag",
)  # fmt: skip
"""A recipe of each method; together they have every analysis, a target in another script, and pre-training."""
OVERLAY: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("tiny.yaml").read_text(encoding="utf-8"))
NAMES = {"sacrebleu", "mtdata", "opus"}
"""Keys of texts that name data sets."""
CONTRASTS = "contrastive.json"
"""File of contrastive pairs, in the folder of a twin."""
REFERENCES = {"wmt17/ms": 2}
"""Number of further references of test sets by name."""
RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Twin:
    """A finished run of a twin."""

    config: RunConfig
    report: RunReport
    steps: int
    seconds: float
    """CPU time of this process."""


def run_twin(name: str, folder: Path, store: Path, *, is_split: bool = False) -> Twin:
    """Run the twin of a recipe, with its text in `folder`, which becomes the current directory; with `is_split` on text that is
    split already."""
    began = time.process_time()
    os.chdir(folder)
    values = split(twin(name)) if is_split else twin(name)
    write_text(values)
    if is_split:
        split_text(values)
    return run_values(values, folder / f"{PurePath(name).name}.yaml", store, began)


def run_localisation(name: str, folder: Path, store: Path) -> Twin:
    """Run the twin of a config for localisation, with its messages in `folder`, which becomes the current directory."""
    began = time.process_time()
    os.chdir(folder)
    values = twin(name, LOCALISATION)
    values["evaluation"]["glossary"] = "terms.tsv"
    values["teacher"]["training"]["updates"] = 200  # before, it writes little but masks
    Path("terms.tsv").write_text(GLOSSARY, encoding="utf-8")
    write_messages(values)
    return run_values(values, folder / f"{name}.yaml", store, began)


def run_values(values: dict[str, Any], path: Path, store: Path, began: float) -> Twin:
    """Run a config, which is written to a path, since the CPU time `began`."""
    path.write_text(yaml.safe_dump({**values, "store": {"path": str(store)}}, sort_keys=False), encoding="utf-8")
    config = load_config(path)
    place = Store(config.store.path)
    plan = build_plan(config, place)
    report = execute.run(config, plan, place, config_file=str(path), in_process=True)
    return Twin(config, report, len(plan.steps), time.process_time() - began)


def twin(name: str, folder: Path = PAPERS) -> dict[str, Any]:
    """Return the values of a recipe in a folder with those of the overlay on top."""
    root, problems = read_config(folder / f"{name}.yaml", ())
    assert not problems, problems
    values = in_full_precision(merged(root.plain(), OVERLAY["config"]))
    values["cluster"] = {"cpus": 1, "resources": {"train": {"cpus": 1}}}  # several twins run at a time
    _replace_named_texts(values)
    if "contrastive_pairs" in values["evaluation"]:
        values["evaluation"]["contrastive_pairs"] = CONTRASTS
    for key in OVERLAY["analyses"]:
        if values["evaluation"].get(key):
            values["evaluation"][key] = OVERLAY["analyses"][key]
    if values["evaluation"].get("tokenizer") == "kytea":  # a program that machines of tests lack
        del values["evaluation"]["tokenizer"]
    if values.get("seeds"):
        values["seeds"] = OVERLAY["seeds"]
    if values.get("pretraining"):
        values["pretraining"] = merged(values["pretraining"], OVERLAY["pretraining"])
    values["defaults"] = shrunk(values["defaults"])
    if imports_bart(values):
        del values["vocabulary"]["size"]  # the vocabulary is the network's
    elif values.get("teacher"):
        values["teacher"] = merged(shrunk(values["teacher"]), OVERLAY["teacher"])
    trained = {name: system for name, system in values["systems"].items() if "use" not in system}
    values["systems"].update({name: shrunk(system) for name, system in trained.items()})
    if imports_bart(values):  # a system that starts from the network's weights has its sizes
        begun = [system for system in trained if values["systems"][system].get("initial_weights") == "teacher"]
        values["systems"].update({name: values["systems"][name] | BART_SIZES for name in begun})
    return values


def in_full_precision(values: Any) -> Any:
    """Return values without the half precision of searches, which only GPUs have."""
    if isinstance(values, list):
        return [in_full_precision(one) for one in values]
    if not isinstance(values, dict):
        return values
    half = ("engine", "precision") if values.get("precision") == "float16" else ()
    return {key: in_full_precision(value) for key, value in values.items() if key not in half}


def _replace_named_texts(values: dict[str, Any]) -> None:
    """Replace texts that are named, or stand at URLs, by files of this machine: equal texts by the same files."""
    corpus, languages = values["corpus"], [values["languages"][side] for side in ("source", "target")]
    names: dict[str, str] = {}
    for texts, part in ((corpus, "train"), (corpus, "validation"), *((corpus["test"], test) for test in corpus["test"])):
        if is_remote(texts[part]):
            name = names.setdefault(json.dumps(texts[part], sort_keys=True), part)
            first, second = (f"data/{'-'.join(sorted(languages))}/{name}.{language}" for language in languages)
            replaced = {"source": first, "target": second}
            if count := REFERENCES.get(str(texts[part].get("sacrebleu"))):
                replaced["references"] = [[f"{second}.{number}"] for number in range(count)]
            texts[part] = replaced


def is_remote(text: dict[str, Any]) -> bool:
    """Return whether a text names data sets or URLs."""
    files = [file for side in ("source", "target") for file in listed(text.get(side, []))]
    return not NAMES.isdisjoint(text) or any(isinstance(file, dict) for file in files)


BART_SIZES = {"encoder_layers": 2, "decoder_layers": 2, "width": 16, "feed_forward": 24, "heads": 2}
"""Sizes of the small random BART."""


def imports_bart(values: dict[str, Any]) -> bool:
    """Return whether the teacher of a config is an imported BART, in place of which a twin has a small random one."""
    return "bart" in (values.get("teacher") or {})


def shrunk(system: dict[str, Any]) -> dict[str, Any]:
    """Return a system, the teacher or `defaults` with a small network and a short training."""
    small = merged(system, OVERLAY["system"])
    if size := small.pop("size", None):
        small = {**{key: value for key, value in small.items() if key not in ("feed_forward", "heads")}, "size": "tiny"}
        small = {**OVERLAY["sizes"][size], **small}
    return small


def merged(under: Any, over: Any) -> Any:
    """Merge maps key by key; any other value is replaced."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    return {**under, **{key: merged(under.get(key), value) for key, value in over.items()}}


def write_text(values: dict[str, Any]) -> None:
    """Write synthetic text to all files that a config names."""
    corpus, languages = values["corpus"], (values["languages"]["source"], values["languages"]["target"])
    parts = [
        ("train", corpus["train"]),
        ("validation", corpus["validation"]),
        *((test, text) for test, text in corpus["test"].items()),
    ]
    if "contrastive_pairs" in values["evaluation"]:
        Path(CONTRASTS).write_text(json.dumps(list(contrastive_pairs())), encoding="utf-8")
    if imports_bart(values):
        write_bart(Path(values["teacher"]["bart"]), end_bias=6.0, max_position_embeddings=values["defaults"]["max_positions"] + 1)
    written: set[str] = set()
    for part, text in parts:
        for number, (source, target) in enumerate(zip(listed(text["source"]), listed(text["target"]), strict=True)):
            kind, start = (part, 0) if part in ("train", "validation") else ("test", number)
            if source in written:  # a validation text that is a test set as well
                continue
            written.add(source)
            rows = synthetic(values.get("task", "translation"), languages, kind, start)
            for file, side in ((source, 0), (target, 1)):
                Path(file).parent.mkdir(parents=True, exist_ok=True)
                Path(file).write_text("".join(f"{row[side]}\n" for row in rows), encoding="utf-8")
            for ending, (file,) in enumerate(text.get("references", [])):
                Path(file).write_text("".join(f"{row[1]} {ending}\n" for row in rows), encoding="utf-8")


def write_messages(values: dict[str, Any]) -> None:
    """Write messages with placeholders and terms to the PO files of a config, those of training to one file."""
    corpus, languages = values["corpus"], (values["languages"]["source"], values["languages"]["target"])
    parts = [("train", [corpus["train"]["po"].replace("**/*", "train/one")]), ("validation", corpus["validation"]["po"])]
    parts += [("test", text["po"]) for text in corpus["test"].values()]
    for part, files in parts:
        rows = synthetic("translation", languages, part, 0)
        for number, file in enumerate(files):
            ends = ((row, MESSAGES[(number + at) % len(MESSAGES)]) for at, row in enumerate(rows[number :: len(files)]))
            messages = (f'msgid "{source} {end}"\nmsgstr "{target} {end}"\n' for (source, target), end in ends)
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            head = f'msgid ""\nmsgstr "Language: {languages[1]}\\nContent-Type: text/plain; charset=UTF-8\\n"\n'
            Path(file).write_text("\n".join([head, *messages]), encoding="utf-8")


def contrastive_pairs() -> Iterator[dict[str, Any]]:
    """Yield sentences with errors of two types, in the form of LingEval97."""
    for number, pair in enumerate(contrasts("de", OVERLAY["analyses"]["contrastive"])):
        verb = {"type": "subj_verb_agreement", "contrastive": pair.wrong, "distance": pair.distance, "frequency": number}
        swapped = {"type": "compound", "contrastive": " ".join(reversed(pair.right.split()))}
        yield {"source": pair.source, "reference": pair.right, "origin": f"test.{number}", "errors": [verb, swapped]}


def split(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a twin whose text is split already, with tokens that are counted."""
    vocabulary = {key: value for key, value in values["vocabulary"].items() if key not in ("byte_fallback", "model")}
    evaluation = {**values["evaluation"], "tokenizer": "auto"}
    return {**values, "vocabulary": {**vocabulary, "model": "word"}, "evaluation": evaluation}


def split_text(values: dict[str, Any]) -> None:
    """Split the text of a twin, which is written, as subword-nmt does: long words into halves."""
    corpus = values["corpus"]
    texts = [corpus["train"], corpus["validation"], *corpus["test"].values()]
    for file in {file for text in texts for side in ("source", "target") for file in listed(text[side])}:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        Path(file).write_text("".join(f"{' '.join(map(halved, line.split()))}\n" for line in lines), encoding="utf-8")


def halved(word: str) -> str:
    """Return a word, or the two subwords of a long one."""
    return word if len(word) < 6 else f"{word[: len(word) // 2]}@@ {word[len(word) // 2 :]}"


@cache
def synthetic(task: str, languages: tuple[str, str], part: str, file: int) -> list[tuple[str, str]]:
    """Return the pairs of one file: English and German sentences, or invented words of another language in its script."""
    count = OVERLAY["pairs"][part]
    if task == "summarization":
        return list(documents(part, file * count, count))
    rows = [_translated(row, languages) for row in pairs(part, file * count, count)]
    return rows if languages[0] == "en" else [(target, source) for source, target in rows]


def _translated(row: tuple[str, str], languages: tuple[str, str]) -> tuple[str, str]:
    (other,) = set(languages) - {"en"}
    return (row[0], translated(row[0], other)) if other in LETTERS else row


def listed(files: Any) -> list[Any]:
    """Return one file or several as a list."""
    return files if isinstance(files, list) else [files]


def measured(names: list[str], store: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run twins in one store, and yield the name, steps and seconds of each."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found = run_twin(name, Path(folder), store)
            os.chdir(ROOT)
        assert not found.report.failed, found.report.failed
        yield name, {"steps": found.steps, "seconds": round(found.seconds, 1)}


def main() -> None:
    """Write the steps and seconds of the named twins, or of all."""
    for name, result in measured(sys.argv[2:] or RECIPES, Path(sys.argv[1]).absolute()):
        print(name, result, flush=True)
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        results = {one: (result if one == name else results[one]) for one in RECIPES if one == name or one in results}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
