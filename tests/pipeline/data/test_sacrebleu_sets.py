"""Test sets of sacrebleu: our download, its MD5 and our sha256, its extraction."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sacrebleu import dataset as sacrebleu_datasets
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset
from sacrebleu.dataset.plain_text import PlainTextDataset
from sacrebleu.dataset.wmt_xml import WMTXMLDataset

from pipeline.config.texts import SacrebleuText, TextConfig
from pipeline.data import sacrebleu_sets
from pipeline.data.access import DataAccess
from pipeline.data.resolve import resolved_text
from pipeline.plan import text_files
from stages.errors import DataError, StageError
from tests.pipeline.data.web import Site, tarred

SGM = '<srcset setid="t" srclang="any">\n<doc docid="d" genre="news" origlang="en">\n<p>\n{}</p>\n</doc>\n</srcset>\n'


def sgm(*lines: str) -> str:
    return SGM.format("".join(f'<seg id="{number}">  {line} </seg>\n' for number, line in enumerate(lines, 1)))


MEMBERS = {
    "test/t-ende-src.en.sgm": sgm("One  house.", "A &amp; B"),
    "test/t-ende-ref.de.sgm": sgm("Ein Haus.", "A und B"),
    "test/t-ende-ref2.de.sgm": sgm("Ein Häuschen.", "A plus B"),
}
Plant = Callable[..., bytes]


@pytest.fixture
def plant(site: Site, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Return a function that serves a set with two references and makes sacrebleu know it as `t/full`."""

    def put(
        data: bytes, kind: Any = FakeSGMLDataset, files: tuple[str, ...] = tuple(MEMBERS), md5: str = "", **options: Any
    ) -> bytes:
        url = site.put("/test.tgz", data)
        planted = kind("t/full", [url], md5=[md5 or hashlib.md5(data).hexdigest()], langpairs={"en-de": list(files)}, **options)
        monkeypatch.setitem(sacrebleu_datasets.DATASETS, "t/full", planted)
        return data

    return put


def texts(text: TextConfig) -> list[list[str]]:
    sides = [text.source, text.target, *text.references]
    return [Path(side[0]).read_text().splitlines() for side in sides]  # type: ignore[arg-type]


def named(*sha256: str) -> TextConfig:
    return TextConfig(sacrebleu=SacrebleuText(name="t/full", sha256=sha256))


EXPECTED = [["One house.", "A &amp; B"], ["Ein Haus.", "A und B"], ["Ein Häuschen.", "A plus B"]]


def test_a_test_set_comes_with_all_references(plant: Plant, site: Site, access: DataAccess) -> None:
    plant(tarred(MEMBERS))
    assert texts(resolved_text(named(), access)) == EXPECTED
    assert len(site.requests) == 1
    offline = replace(access, offline=True)
    assert texts(resolved_text(named(), offline)) == EXPECTED
    assert len(site.requests) == 1
    assert not (Path.home() / ".sacrebleu" / "t").exists()


def test_a_test_set_has_its_origin_and_licence(plant: Plant, access: DataAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tarred(MEMBERS))
    monkeypatch.setattr(text_files, "licence_of_test_set", lambda name: f"that of {name}")
    found = text_files.text_files(named(), access)
    assert {(file.origin, file.licence) for file in (*found.source, *found.target)} == {("sacrebleu:t/full", "that of t/full")}


def test_plain_text_sets(plant: Plant, access: DataAccess) -> None:
    plant(tarred({"a.en": "One\n", "a.de": "Eins\n"}), PlainTextDataset, ("a.en", "a.de"))
    assert texts(resolved_text(named(), access)) == [["One"], ["Eins"]]


XML = """<?xml version='1.0' encoding='utf-8'?>
<dataset id="t"><collection id="c"><doc id="d" origlang="en">
<src lang="en"><p><seg id="1">One</seg><seg id="2">Two</seg></p></src>
<ref lang="de" translator="A"><p><seg id="1">Eins</seg><seg id="2">Zwei</seg></p></ref>
<ref lang="de" translator="B"><p><seg id="1">1</seg><seg id="2">2</seg></p></ref>
<hyp system="s" language="de"><p><seg id="1">x</seg><seg id="2">y</seg></p></hyp>
</doc></collection></dataset>"""


@pytest.mark.parametrize(("refs", "expected"), [(["B"], [["1", "2"]]), (["A", "B"], [["Eins", "Zwei"], ["1", "2"]])])
def test_sets_in_xml_have_the_translators_that_sacrebleu_chooses(
    plant: Plant, access: DataAccess, refs: list[str], expected: list[list[str]]
) -> None:
    plant(tarred({"xml/t.xml": XML}), WMTXMLDataset, ("xml/t.xml",), refs=refs)
    assert texts(resolved_text(named(), access)) == [["One", "Two"], *expected]


def test_a_file_with_another_md5_is_not_kept(plant: Plant, site: Site, access: DataAccess) -> None:
    data = plant(tarred(MEMBERS), md5="0" * 32)
    with pytest.raises(
        DataError, match=rf"t/full: expected md5 0{{32}}, got {hashlib.md5(data).hexdigest()} from .*nothing was kept"
    ):
        resolved_text(named(), access)
    plant(data)
    assert texts(resolved_text(named(), access)) == EXPECTED
    assert len(site.requests) == 2


def test_pinned_digests_are_compared(plant: Plant, access: DataAccess) -> None:
    data = plant(tarred(MEMBERS))
    digest = hashlib.sha256(data).hexdigest()
    with pytest.raises(DataError, match=r"t/full: .*expected sha256 1{64}, which is pinned"):
        resolved_text(named("1" * 64), access)
    assert texts(resolved_text(named(f"sha256:{digest}"), access)) == EXPECTED
    with pytest.raises(DataError, match=f"t/full: expected sha256 2{{64}}, got {digest}"):
        resolved_text(named("2" * 64), access)
    with pytest.raises(DataError, match=r"t/full: expected 1 values of sha256, got 2"):
        resolved_text(named(digest, digest), access)


def test_a_server_that_stops_half_way_is_continued(plant: Plant, site: Site, access: DataAccess) -> None:
    data = plant(tarred({**MEMBERS, "more": os.urandom(1 << 16).hex()}))
    site.faults = ["cut", "503", "503"]
    with pytest.raises(StageError, match=r"t/full: .*bytes so far were kept"):
        resolved_text(named(), access)
    assert texts(resolved_text(named(), access)) == EXPECTED
    assert site.requests[-1][1:] == (f"bytes={len(data) // 2}-", len(data) - len(data) // 2)


def test_an_altered_extraction_is_made_again(plant: Plant, access: DataAccess) -> None:
    plant(tarred(MEMBERS))
    path = resolved_text(named(), access).source[0]
    assert isinstance(path, Path)
    path.write_text("altered\n")
    with pytest.raises(DataError, match=r"not in the store and store.offline: true"):
        resolved_text(named(), replace(access, offline=True))
    assert texts(resolved_text(named(), access)) == EXPECTED


def test_a_changed_set_is_refused_when_it_has_to_be_extracted_again(plant: Plant, access: DataAccess) -> None:
    plant(tarred(MEMBERS))
    path = resolved_text(named(), access).source[0]
    assert isinstance(path, Path)
    path.unlink()
    for archive in (access.store.root / "downloads").glob("*/test.tgz"):
        archive.unlink()
    plant(tarred({**MEMBERS, "test/t-ende-src.en.sgm": sgm("Another.", "Text")}))
    with pytest.raises(DataError, match=r"t/full: .*which is pinned, got"):
        resolved_text(named(), access)


def test_a_missing_member_is_named(plant: Plant, access: DataAccess) -> None:
    plant(tarred({"test/t-ende-src.en.sgm": "x"}))
    with pytest.raises(
        DataError, match=r"t/full: expected a test set that sacrebleu can extract, got FileNotFoundError.*t-ende-ref\.de\.sgm"
    ):
        resolved_text(named(), access)


def test_members_do_not_leave_the_directory(plant: Plant, access: DataAccess, tmp_path: Path) -> None:
    plant(tarred({**MEMBERS, "../../../../../../../../../../../" + str(tmp_path / "escaped"): "x"}))
    with pytest.raises(DataError, match=r"t/full: .*OutsideDestinationError"):
        resolved_text(named(), access)
    assert not (tmp_path / "escaped").exists()


def test_unknown_names_and_languages(plant: Plant, access: DataAccess) -> None:
    with pytest.raises(DataError, match=r"wmt14/ful: expected a name of `sacrebleu --list`.*did you mean 'wmt14/full'"):
        resolved_text(TextConfig(sacrebleu=SacrebleuText(name="wmt14/ful")), access)
    with pytest.raises(DataError, match=r"wmt14/full: expected languages cs-en, de-en, .*, got en-ja"):
        resolved_text(TextConfig(sacrebleu=SacrebleuText(name="wmt14/full")), replace(access, languages=("en", "ja")))


def test_every_test_set_of_sacrebleu_has_a_form_that_configs_accept() -> None:
    from pipeline.data.names import is_sacrebleu_name

    assert all(map(is_sacrebleu_name, sacrebleu_datasets.DATASETS))
    assert all(len(found.data) == len(found.md5) for found in sacrebleu_datasets.DATASETS.values() if found.md5)
    assert sacrebleu_sets._dataset("wmt14/full", ("de", "en")).data
