"""Configs load, commands exist and Python compiles, in every fenced block of the documentation."""

import ast
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.commands.app import COMMANDS as NAMES
from pipeline.commands.app import load_command
from pipeline.config.load import load_config
from tests.docs.pages import PAGES, ROOT, Block, blocks, name, text

COMMANDS: dict[str, Any] = {name: load_command(name) for name in NAMES}
TEXTS = {"train": {"embedded": 100}, "validation": {"embedded": 10}, "test": {"test": {"embedded": 10}}}
AROUND = {"teacher": {}, "ngram": {}, "systems": {"autoregressive": {"use": "teacher"}}}
README = text(ROOT / "README.md")


def whole(block: str) -> dict[str, Any]:
    """Return a block's keys in a config that has a text, a teacher and an n-gram model."""
    given = yaml.safe_load(block)
    corpus = {**TEXTS, **given.pop("corpus", {})}
    languages = {} if "languages" in given or given.get("task") else {"languages": {"source": "en", "target": "de"}}
    return {**AROUND, **languages, "corpus": corpus, **given}


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_every_config_loads(tmp_path: Path, block: Block) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(whole(block.text)), encoding="utf-8")
    load_config(path, counted(block))


def counted(block: Block) -> list[str]:
    """The number of pairs of a text that is not there, where values follow from it."""
    return ["corpus.pairs=29000"] if ": auto" in block.text else []


@pytest.mark.parametrize("block", [block for block in blocks("yaml") if "name:" in block.text], ids=str)
def test_every_whole_config_loads_as_it_is(tmp_path: Path, block: Block) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(block.text, encoding="utf-8")
    config = load_config(path, counted(block))
    assert config.name in ("mine", "headlines")
    assert config.task == ("summarization" if config.name == "headlines" else "translation")


def test_the_first_config_is_the_shipped_one_without_its_comments() -> None:
    (block,) = (block for block in blocks("yaml") if block.page == "docs/guide/quickstart.md")
    shipped = yaml.safe_load(text(ROOT / "configs/quickstart.yaml"))
    assert yaml.safe_load(block.text) == {**shipped, "name": "mine"}


def commands() -> Iterator[tuple[str, list[str]]]:
    """The words after each `fewstep` in blocks and in code within lines."""
    for page in PAGES:
        inline = re.findall(r"`((?:\S+/)?fewstep [^`\n]+)`", text(page))
        for line in [*(line for block in blocks("") if block.page == name(page) for line in block.text.splitlines()), *inline]:
            if found := re.search(r"(?:^|[ /])fewstep ([a-z]+\b[^|#]*)", line.partition(" #")[0]):
                yield f"{name(page)}: {line.strip()}", shlex.split(found[1])


@pytest.mark.parametrize(("where", "words"), [pytest.param(*found, id=found[0]) for found in commands()])
def test_every_command_and_option_exists(where: str, words: list[str]) -> None:
    assert words[0] in COMMANDS, where
    options = {option for parameter in COMMANDS[words[0]].params for option in parameter.opts}
    assert [word for word in words if word.startswith("--") and word.partition("=")[0] not in options] == [], where


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_configs_and_programs_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":  # names what was there at the time
        return
    named = set(re.findall(r"(?<![\w/])((?:configs|benchmarks|docker)/[\w./-]+\.(?:yaml|py))\b", text(page)))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    modules = {ROOT / module.replace(".", "/") for module in re.findall(r"python -m ((?:benchmarks|kernels)[.\w]*)", text(page))}
    assert [path for path in modules if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists()] == []


@pytest.mark.parametrize("override", re.findall(r"--set (\S+=[^\s`]+)", README))
def test_every_override_of_the_readme_is_valid(override: str) -> None:
    load_config(ROOT / "configs/demo.yaml", [override])


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_imports_of_the_project_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in ("fewstep", "kernels", "models"):
            module = import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == [], node.module


(IN_README,) = [block.text.partition(".venv/bin/fewstep")[0] for block in blocks("") if "github.com/multi30k" in block.text]
(IN_CONFIG,) = re.findall(r"^#\s+(git clone.*)$", (ROOT / "configs/multi30k/base.yaml").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("fetch", [IN_README, IN_CONFIG], ids=["readme", "config"])
def test_multi30k_is_fetched_to_where_its_config_looks(tmp_path: Path, fetch: str) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    git = tools / "git"
    git.write_text(
        "#!/bin/sh\nfor last; do :; done\nmkdir -p $last/data/task1/raw\n"
        "for s in train val test_2016_flickr; do for l in en de; do echo $s.$l | gzip > $last/data/task1/raw/$s.$l.gz; done; done\n"
    )
    git.chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-ec", fetch.replace("/tmp/multi30k", str(tmp_path / "clone"))],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        check=True,
    )
    corpus = load_config(ROOT / "configs/multi30k/base.yaml").corpus
    for part, pair, file_name in (
        ("train", corpus.train, "train"), ("val", corpus.validation, "val"), ("test_2016_flickr", corpus.test["test_2016"], "test")
    ):  # fmt: skip
        for file, language in ((pair.source, "en"), (pair.target, "de")):
            assert (tmp_path / file[0]).read_text() == f"{part}.{language}\n", file_name
