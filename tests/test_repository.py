"""Metadata of the project agree with each other, and no source executes data as code."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture import Module, modules

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
GROUPS = [*PROJECT["optional-dependencies"].values(), *PYPROJECT["dependency-groups"].values()]
OPTIONAL = [text for group in GROUPS for text in group if isinstance(text, str)]
DEPENDENCIES = [Requirement(text) for text in sorted({*PROJECT["dependencies"], *OPTIONAL})]
PINNED = {
    canonicalize_name(name): version
    for name, _, version in (line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
}


def test_the_version_is_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = re.search(r"^## (\d\S*)", changelog, re.MULTILINE)
    assert latest
    assert latest[1] == CITATION["version"] == PROJECT["version"]


@pytest.mark.parametrize("needed", DEPENDENCIES, ids=str)
def test_dependencies_have_a_lower_bound_that_the_pinned_version_meets(needed: Requirement) -> None:
    assert any(bound.operator in (">=", "==") for bound in needed.specifier), f"{needed}: expected a lower bound in pyproject.toml"
    version = PINNED.get(canonicalize_name(needed.name))
    assert version, f"{needed.name}: expected a version in constraints.txt"
    assert needed.specifier.contains(version), f"constraints.txt pins {needed.name} {version}, pyproject.toml asks for {needed}"


@pytest.mark.parametrize("needed", DEPENDENCIES, ids=lambda needed: needed.name)
def test_the_licence_of_each_dependency_is_listed(needed: Requirement) -> None:
    listed = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8").lower()
    assert re.sub(r"-bin(ary)?$", "", needed.name.lower()) in listed, f"{needed.name}: add it to THIRD_PARTY.md"


def test_the_licence_is_named_and_included() -> None:
    assert PROJECT["license"] == CITATION["license"] == "Apache-2.0"
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])
    assert "Apache License\n                           Version 2.0, January 2004" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_papers_are_cited_with_authors_and_year() -> None:
    papers = {paper["title"]: [author["family-names"] for author in paper["authors"]] for paper in CITATION["references"]}
    assert len(papers) == 5
    assert all(papers.values())
    assert all(isinstance(paper["year"], int) for paper in CITATION["references"])


def test_the_citation_keeps_to_its_schema() -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.citation-file-format"]
    done = subprocess.run([*checker, str(ROOT / "CITATION.cff")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_make_alone_compiles_the_package() -> None:
    done = subprocess.run(["make", "--dry-run", "--always-make"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--editable ." in done.stdout


def test_hooks_run_the_commands_of_lint() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lint = makefile.partition("\nlint:")[2].partition("\n\n")[0]
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        assert hook["entry"].replace(".venv/bin/", "$(BIN)/") in lint, f"{hook['id']}: expected a command of `make lint`"


# ---- no data is executed

UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
UNSAFE_CALLS = re.compile(r"^(eval|exec|compile|os\.system|os\.popen|torch\.load|yaml\.(load|unsafe_load|full_load))$")


def unsafe(module: Module) -> list[str]:
    """Return the places of a module that could execute what it reads."""
    found = [
        f"{module.name}:{entry.line} imports {entry.name}" for entry in module.imports if entry.name.split(".")[0] in UNSAFE_MODULES
    ]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            name = called(node.func)
            flags = {word.arg for word in node.keywords if isinstance(word.value, ast.Constant) and word.value.value is True}
            if name == "torch.load" and "weights_only" in flags:  # reads tensors alone
                continue
            if UNSAFE_CALLS.match(name) or flags & {"shell", "allow_pickle"}:
                found.append(f"{module.name}:{node.lineno} calls {ast.unparse(node.func)}")
    return found


def called(function: ast.expr) -> str:
    """Return the name of a function, or of one of a module; empty for others."""
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{module}.{name}"
    return ""


def test_no_source_executes_data() -> None:
    found = [place for module in modules().values() for place in unsafe(module)]
    assert not found, (
        f"{found}: read data with safetensors, JSON, Arrow or yaml.safe_load, and start programs from a list of arguments"
    )


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from torch import load\nimport torch\ntorch.load('a')",
        "run('a', shell=True)",
        "np.load(x, allow_pickle=True)",
    ],
)
def test_code_that_executes_data_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(text)
    assert len(unsafe(Module("a", tmp_path / "a.py"))) == 1


def test_reading_tensors_alone_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.load('a', weights_only=True)\ntorch.load('a', weights_only=False)")
    assert unsafe(Module("a", tmp_path / "a.py")) == ["a:3 calls torch.load"]
