"""Configs, commands, code, tables and messages on the pages are the program's."""

import ast
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.commands import reference
from pipeline.commands.app import COMMANDS, load_command
from pipeline.commands.app import COMMANDS as NAMES
from pipeline.config.load import load_config
from pipeline.errors import ConfigError
from tests.architecture import modules
from tests.docs.examples import places, with_blocks
from tests.docs.pages import PAGES, ROOT, Block, blocks, name, text
from tests.recipes.settings import HEADING, METHODS, read_pages, replaced

LOADED: dict[str, Any] = {name: load_command(name) for name in NAMES}

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
    assert words[0] in LOADED, where
    options = {option for parameter in LOADED[words[0]].params for option in parameter.opts}
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


WITH_CODE = [page for page in PAGES if places(text(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_blocks_of_code_equal_their_files(page: Path) -> None:
    assert text(page) == with_blocks(text(page)), f"{name(page)}: expected current code; run `make docs`"


@pytest.mark.parametrize("page", sorted((ROOT / "docs/contributing").glob("*.md")), ids=name)
def test_all_code_on_pages_about_contributing_is_copied_from_files(page: Path) -> None:
    fences = re.findall(r"^```(?:python|cpp)$", text(page), re.MULTILINE)
    assert len(fences) == len(places(text(page))) > 0


def test_a_block_is_written_from_a_file_or_a_definition(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("X = 1\n\n\n@decorated\ndef f():\n    return X\n\n\nY = 2\n")
    page = "Text.\n\n<!-- file: a.py#f -->\n```python\nold\n```\n\n<!-- file: a.py#Y -->\n\nText.\n"
    written = "Text.\n\n<!-- file: a.py#f -->\n```python\n@decorated\ndef f():\n    return X\n```\n\n"
    assert with_blocks(page, tmp_path) == written + "<!-- file: a.py#Y -->\n```python\nY = 2\n```\n\nText.\n"
    assert with_blocks("<!-- file: a.py -->\n", tmp_path) == (
        "<!-- file: a.py -->\n```python\nX = 1\n\n\n@decorated\ndef f():\n    return X\n\n\nY = 2\n```\n"
    )


def test_a_block_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("Y = 2\n")
    page = "<!-- file: a.py -->\n\nText.\n\n```python\nother\n```\n"
    assert "other" in with_blocks(page, tmp_path)


def test_a_missing_definition_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("Y = 2\n")
    with pytest.raises(LookupError, match=r"a\.py: expected a definition of Z"):
        with_blocks("<!-- file: a.py#Z -->\n", tmp_path)


GUIDE = text(ROOT / "docs" / "guide" / "troubleshooting.md")
QUOTED = re.findall(r"^\| `([^`]+)`", GUIDE, re.MULTILINE)
"""Symptoms that begin with code: messages of the program, and one of the operating system."""
OF_THE_SYSTEM = {"Illegal instruction"}
VALUE = "\0"
PLACEHOLDER = re.compile(r"\.\.\.?|\b[NM]\b")
"""Marks of values in a quotation."""


@cache
def messages() -> frozenset[str]:
    """Return all texts of the program, with a mark in place of each formatted value."""
    nodes = (node for module in modules().values() for node in ast.walk(module.tree))
    return frozenset(filter(None, map(as_text, nodes)))


def as_text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
    return re.sub(r"%[sd]", VALUE, node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_message(quoted: str) -> bool:
    """Whether a text of the program holds a quotation, or begins with the expectation of a config's error."""
    pattern = ".*".join(map(re.escape, PLACEHOLDER.split(quoted)))
    expectation = pattern.removeprefix(re.escape("expected "))
    return any(re.search(pattern, text) for text in messages()) or (
        expectation != pattern and any(re.match(expectation, text) for text in messages())
    )


@pytest.mark.parametrize("quoted", sorted(set(QUOTED) - OF_THE_SYSTEM))
def test_a_quoted_message_is_one_of_the_program(quoted: str) -> None:
    assert is_message(quoted)


def test_a_quotation_that_no_text_holds_is_found() -> None:
    assert len(QUOTED) > 25
    assert is_message("N workers died on it")
    assert not is_message("N workers died over it")
    assert not is_message("expected an unknown key")


def test_the_example_of_two_errors_is_what_the_program_prints(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(
        "name: mine\nlanguages: {source: en, target: de}\ncorpus:\n  train: {embedded: 100}\nvocabulary:\n  sise: 600\n"
        "systems:\n  fast: {data: distilled}\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    printed = [f"mine.yaml{line.removeprefix(str(config))}" for line in str(caught.value).splitlines()]
    assert "\n".join(printed) in GUIDE


SECTIONS = dict(re.findall(r"^## fewstep (\w+)\n(.*?)(?=^## |\Z)", reference.page(), re.MULTILINE | re.DOTALL))


def test_the_page_of_the_command_line_is_current() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), (
        f"{reference.PAGE.name}: expected the page that `make docs` writes"
    )


def test_sections_stand_in_the_order_of_the_commands() -> None:
    assert tuple(SECTIONS) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_shows_the_help_of_its_command_and_of_each_parameter(name: str) -> None:
    command = load_command(name)
    section = SECTIONS[name].replace("\\|", "|")
    assert command.help in section
    for parameter in command.params:
        shown = parameter.opts[0] if parameter.opts[0].startswith("--") else parameter.metavar
        (row,) = (line for line in section.splitlines() if line.startswith(f"| `{shown}") and parameter.help in line)
        assert ("required" in row) == parameter.required


def test_defaults_bounds_and_repetition_are_shown() -> None:
    assert "| `--batch LINES` | `64` | Maximum number of lines translated together. At least 1. |" in SECTIONS["translate"]
    assert "| `--set KEY=VALUE` |  | Replace one value, as in defaults.training.updates=100. May be repeated. |" in SECTIONS["run"]
    assert "| `--no-wait` |  | Return once the job is accepted. |" in SECTIONS["submit"]


def test_every_placeholder_has_a_name() -> None:
    assert not [name for name, section in SECTIONS.items() if "None" in section]


def test_bars_do_not_end_a_cell() -> None:
    assert "| `RUN\\|DIRECTORY` | required |" in SECTIONS["translate"]


SETTINGS = read_pages()
DECIDED = {"initial_weights", "label_smoothing", "num_averaged", "dropout", "attention_dropout", "feed_forward_dropout"}
"""Settings that every recipe states a reason or a source for."""


def test_every_table_of_settings_is_generated() -> None:
    """`python -m tests.recipes.settings` writes them."""
    with_table = {path.stem for path in METHODS.glob("*.md") if HEADING in path.read_text(encoding="utf-8")}
    assert with_table == set(SETTINGS) == {"aggressive", "dag", "double-token", "interleaved", "lattice"}
    for method, page in SETTINGS.items():
        written = (METHODS / f"{method}.md").read_text(encoding="utf-8")
        assert written == replaced(written, page)


@pytest.mark.parametrize("name", SETTINGS)
def test_each_value_of_a_paper_stands_in_a_phrase_of_its_text(name: str) -> None:
    """A cell of the first column has a value only if the list of quotations has a short phrase with that value."""
    for one in SETTINGS[name].settings:
        if one.paper is not None:
            assert one.paper.value in one.paper.phrase
            assert len(one.paper.phrase) <= 120
            assert re.match(r"(section|appendix|table|figure) \w", one.paper.place)


@pytest.mark.parametrize("name", SETTINGS)
def test_cells_of_the_first_column_are_the_quoted_values(name: str) -> None:
    """Read from the page, not from the list."""
    quoted = {one.key: one.paper for one in SETTINGS[name].settings}
    part = (METHODS / f"{name}.md").read_text(encoding="utf-8").split(HEADING)[1]
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) \| ", part[: part.index("\n#")], re.MULTILINE)
    assert [key for key, _ in rows] == list(quoted)
    assert len(rows) >= 10
    for key, cell in rows:
        found = quoted[key]
        assert cell == ("not stated" if found is None else f"{found.value} ({found.place})")


@pytest.mark.parametrize("name", SETTINGS)
def test_tables_name_initial_weights_smoothing_averaging_and_dropouts(name: str) -> None:
    stated = {one.key.rpartition(".")[2] for one in SETTINGS[name].settings}
    assert stated >= DECIDED - ({"num_averaged"} if name == "aggressive" else set())


@pytest.mark.parametrize("name", SETTINGS)
def test_values_without_a_source_have_a_reason(name: str) -> None:
    for one in SETTINGS[name].settings:
        assert one.paper or one.code or one.reason or one.key.endswith("initial_weights"), one.key


def test_statements_of_papers_on_the_page_of_conventions_are_quoted() -> None:
    """Each cell of the columns of papers has a phrase of its paper with the same numbers, or says that it states nothing."""
    quoted = yaml.safe_load((ROOT / "tests/recipes/conventions.yaml").read_text(encoding="utf-8"))
    lines = text(ROOT / "docs/guide/conventions.md").splitlines()
    cells = [re.split(r"(?<!\\)\|", line) for line in lines if line.startswith("| ")]
    papers = {row[1].strip(): row[2].strip() for row in cells if row[2].strip() not in ("paper", "papers")}
    assert len(papers) >= 40
    assert {what for what, cell in papers.items() if not cell.startswith("not stated")} == set(quoted)
    for what, (place, phrase) in quoted.items():
        assert len(phrase) <= 120
        assert re.match(r"(section|appendix|figure|algorithm|Eq\.) \w", place)
        assert set(re.findall(r"\d[\d.]*", papers[what])) <= set(re.findall(r"\d[\d.]*", f"{place} {phrase}")), what
