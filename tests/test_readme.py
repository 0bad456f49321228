"""What the README tells people to write and to type."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from pipeline.commands.cli import app
from pipeline.config.load import load_config

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def block_with(text: str) -> str:
    (block,) = [block for block in BLOCKS if text in block]
    return str(block)


def test_the_config_of_ones_own_text_loads(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(block_with("name: mine"), encoding="utf-8")
    config = load_config(path)
    assert (config.name, list(config.systems)) == ("mine", ["autoregressive", "small"])


def test_the_configs_of_the_page_on_summarization_load(tmp_path: Path) -> None:
    page = (ROOT / "docs/summarization.md").read_text(encoding="utf-8")
    whole, changes = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "headlines.yaml").write_text(whole, encoding="utf-8")
    (tmp_path / "articles.yaml").write_text(f"base: headlines.yaml\n{changes}", encoding="utf-8")
    headlines, articles = (load_config(tmp_path / f"{name}.yaml") for name in ("headlines", "articles"))
    assert (headlines.task, headlines.corpus.max_source_tokens, articles.corpus.max_source_tokens) == ("summarization", 100, 400)
    assert "rougeLsum" in articles.evaluation.metrics


@pytest.mark.parametrize("name", sorted(set(re.findall(r"(?:\.venv/bin/|`)fewstep (\w+)", README))))
def test_every_command_is_one(name: str) -> None:
    assert name in {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}


@pytest.mark.parametrize("override", re.findall(r"--set (\S+=[^\s`]+)", README))
def test_every_override_is_valid(override: str) -> None:
    load_config(ROOT / "configs/demo.yaml", [override])


IN_README = block_with("github.com/multi30k").partition(".venv/bin/fewstep")[0]
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
    for name, text in (("train", corpus.train), ("val", corpus.validation), ("test_2016_flickr", corpus.test["test_2016"])):
        for file, language in ((text.source, "en"), (text.target, "de")):
            assert (tmp_path / file[0]).read_text() == f"{name}.{language}\n"
