"""Each page "add a ..." names all files that an example commit touched.

The lists are those of commits that added one thing each, with the paths of today and the names of the page's example.
"""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

STAGE = """
CHANGELOG.md docs/methods/parallel.md docs/reference/config.md models/parallel/analysis.py models/parallel/system.py
pipeline/config/checks/evaluation.py pipeline/config/schema.py pipeline/plan/analyses.py stages/lengths/__init__.py
stages/lengths/report.py stages/lengths/run.py stages/table.py tests/golden/config_keys.txt
tests/golden/fingerprinted_defaults.json tests/models/parallel/test_analysis.py tests/pipeline/plan/test_wiring.py
tests/stages/test_lengths.py tests/stages/report/made_report.py tests/stages/report/test_report.py
"""
"""The analysis of the slots of parallel systems."""
KERNEL = """
fewstep/native.py kernels/__init__.pyi kernels/bindings/bindings.h kernels/bindings/fewstep_native/__init__.pyi
kernels/bindings/module.cc kernels/bindings/ops/lcs.cc kernels/bindings/ops/lcs.h kernels/csrc/ops/align/lcs.cc
kernels/csrc/ops/align/lcs.h kernels/lcs.py kernels/reference/lcs.py models/common/losses/cross_entropy.py tests/kernels/test_lcs.py
"""
"""The scores of tokens and their gradients."""
SEARCH = """
fewstep/families/dag/config.py fewstep/families/dag/search.py fewstep/native.py fewstep/search/widest.py
kernels/bindings/bindings.h kernels/bindings/fewstep_native/__init__.pyi kernels/bindings/inference/widest.cc
kernels/bindings/module.cc kernels/csrc/inference/dag/widest.cc kernels/csrc/inference/dag/widest.h kernels/reference/widest.py
tests/fewstep/search/test_widest.py tests/models/dag/test_decode.py
"""
"""The search of CTC's prefixes in native code."""
FAMILY = """
CHANGELOG.md docs/methods/copying.md docs/methods/index.md docs/reference/config.md fewstep/families/copying/config.py
fewstep/families/copying/decoder.py fewstep/families/copying/search.py fewstep/families/table.py
fewstep/networks/copying_network.py mkdocs.yml models/copying/__init__.py models/copying/decode.py models/copying/family.py
models/copying/loss.py models/copying/model.py models/copying/system.py tests/models/copying/test_decode.py
"""
"""The family `parallel`, without the files of its own that a smaller family has no need of."""
FORMAT = """
CHANGELOG.md docs/guide/data.md docs/reference/config.md pipeline/config/texts.py stages/corpus/__init__.py
stages/corpus/readers/__init__.py stages/corpus/readers/tsv.py tests/stages/corpus/test_reader.py
"""
"""Tab-separated text, as if it were new."""
COMMITS = {
    "add-a-stage": STAGE,
    "add-a-kernel": KERNEL,
    "add-a-search": SEARCH,
    "add-a-model-family": FAMILY,
    "add-a-text-format": FORMAT,
}


def files_named(page: str) -> set[str]:
    """Return the files and folders (with a final slash) in the first column of the page's tables.

    A name without a folder lies beside the one before it, unless it is that of a file of the root.
    """
    found: set[str] = set()
    for line in (ROOT / "docs" / "contributing" / f"{page}.md").read_text(encoding="utf-8").splitlines():
        folder = ""
        for name in re.findall(r"`([^`]+)`", line.split("|")[1]) if line.startswith("| `") else ():
            path = name if "/" in name or (ROOT / name).is_file() else f"{folder}{name}"
            folder = f"{path.rpartition('/')[0]}/"
            found.add(path)
    return found


@pytest.mark.parametrize("page", COMMITS)
def test_a_page_names_every_file_of_its_example_commit(page: str) -> None:
    named = files_named(page)
    folders = tuple(name for name in named if name.endswith("/"))
    missing = [path for path in COMMITS[page].split() if path not in named and not path.startswith(folders)]
    assert not missing, f"docs/contributing/{page}.md: expected {missing} in its tables"


@pytest.mark.parametrize("page", COMMITS)
def test_the_files_that_a_page_changes_exist(page: str) -> None:
    examples = re.compile("lengths|lcs|widest|copying")
    missing = [path for path in files_named(page) if not examples.search(path) and not (ROOT / path).exists()]
    assert not missing, f"docs/contributing/{page}.md names {missing}, which no longer exist"
