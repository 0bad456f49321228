"""Tests of the digest of a stage's code, which covers its imports and the sources of the extension."""

from pathlib import Path

import pytest

from pipeline.plan import code_digest as codebase


def test_changed_extension_sources_change_the_digests_of_modules_that_import_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("stages", "kernels/csrc/base", "kernels/bindings", "fewstep"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "stages/one.py").write_text("def run():\n    from fewstep.native import fewstep_native\n")
    (tmp_path / "stages/two.py").write_text("import stages.shared.shards\n")
    (tmp_path / "fewstep/native.py").write_text("import fewstep_native\n")
    (tmp_path / "kernels/csrc/base/a.cc").write_text("int a;")
    monkeypatch.setattr(codebase, "ROOT", tmp_path)

    def digests() -> list[str]:
        codebase.code_digest.cache_clear()
        return [codebase.code_digest(module) for module in ("stages.one", "stages.two")]

    before = digests()
    assert digests() == before
    for name in ("csrc/base/a.cc", "bindings/b.cc"):
        (tmp_path / "kernels" / name).write_text("int b;")
        after = digests()
        assert after[0] != before[0]
        assert after[1] == before[1]
        before = after
    codebase.code_digest.cache_clear()


def test_the_digest_of_the_report_covers_the_parts_of_other_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("stages/shared", "stages/lengths"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "stages/one.py").write_text("from stages.shared.report_parts import part_of\n")
    (tmp_path / "stages/two.py").write_text("from stages.shared.report_parts import number\n")
    monkeypatch.setattr(codebase, "ROOT", tmp_path)

    def digests() -> list[str]:
        codebase.code_digest.cache_clear()
        return [codebase.code_digest(module) for module in ("stages.one", "stages.two")]

    before = digests()
    (tmp_path / "stages/lengths/report.py").write_text("def show(): ...\n")
    after = digests()
    codebase.code_digest.cache_clear()
    assert after[0] != before[0]
    assert after[1] == before[1]
