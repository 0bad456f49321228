"""Data sets of OPUS, mtdata and the Hugging Face Hub: from their names to files of one commit and one digest, and licences."""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.texts import PairFiles, TextConfig
from pipeline.data import mtdata_index, mtdata_sets, opus
from pipeline.data.access import DataAccess
from pipeline.data.mtdata_index import describe
from pipeline.data.names import hub_name, is_mtdata_id, licence_of_test_set, opus_name, stated
from pipeline.data.resolve import resolved_text
from pipeline.plan.text_files import text_files
from pipeline.store.downloads import RemoteFile
from stages.corpus.indexed_text import open_text
from stages.errors import DataError, StageError
from stages.shared.phases import Phases
from tests.pipeline.data.web import Site, tarred, zipped
from tests.stages.steps import context_in


def rows(text: PairFiles, access: DataAccess) -> list[tuple[str, ...]]:
    with TemporaryDirectory() as folder:
        phases = Phases(context_in(Path(folder) / "step"))
        opened = open_text(text_files(text, access), access.languages, Path(folder) / "unpacked", phases)
        found = [row for table in opened.read(0, opened.rows) for row in table.to_pylist()]
    return [tuple(str(cell).strip() for cell in row.values()) for row in found]


def remote(file: Any) -> RemoteFile:
    assert isinstance(file, RemoteFile)
    return file


@contextmanager
def offline(access: DataAccess, site: Site) -> Iterator[DataAccess]:
    """Check that nothing is asked of the server."""
    before = len(site.requests)
    yield replace(access, offline=True)
    assert len(site.requests) == before


# OPUS

NEWS = {"README": "read\n", "News.de-en.de": "Haus\nBaum\n", "News.de-en.en": "house\ntree\n", "News.de-en.xml": "<x/>"}


@pytest.fixture
def opus_site(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(opus, "ARCHIVE", site.url + "/OPUS-{corpus}/{version}/moses/{first}-{second}.txt.zip")
    return site


def test_a_corpus_of_opus_is_read_by_member(opus_site: Site, access: DataAccess) -> None:
    opus_site.put("/OPUS-News/v16/moses/de-en.txt.zip", zipped(NEWS))
    text = TextConfig(opus=("News/v16",))
    assert rows(text, access) == [("house", "Haus"), ("tree", "Baum")]
    assert rows(text, replace(access, languages=("de", "en"))) == [("Haus", "house"), ("Baum", "tree")]
    assert len(opus_site.requests) == 1
    with offline(access, opus_site) as without:
        assert rows(text, without) == [("house", "Haus"), ("tree", "Baum")]
    assert {path.name for path in access.store.root.rglob("News*")} == set()


def test_languages_as_opus_writes_them(opus_site: Site, access: DataAccess) -> None:
    opus_site.put("/OPUS-News/v1/moses/en-zh_CN.txt.zip", zipped({"N.en-zh_CN.en": "house\n", "N.en-zh_CN.zh_CN": "房子\n"}))
    chinese = replace(access, languages=("zh", "en"))
    assert rows(TextConfig(opus=("News/v1/en-zh_CN",)), chinese) == [("房子", "house")]
    with pytest.raises(DataError, match="News/v1/en-zh_CN: expected the languages en and de of the config, got en-zh_CN"):
        rows(TextConfig(opus=("News/v1/en-zh_CN",)), access)


def test_opus_without_such_a_corpus_or_member(opus_site: Site, access: DataAccess) -> None:
    with pytest.raises(DataError, match=r"^News/v2: http.*de-en\.txt\.zip: expected a file, got the answer 404"):
        rows(TextConfig(opus=("News/v2",)), access)
    opus_site.put("/OPUS-News/v2/moses/de-en.txt.zip", zipped({"News.de-en.de": "x\n", "README": ""}))
    with pytest.raises(
        DataError, match=r"News/v2: .*expected one member that matches \*\.en, got 0 of 2 files: News\.de-en\.de, README"
    ):
        rows(TextConfig(opus=("News/v2",)), access)


def test_offline_names_the_data_set_that_the_store_lacks(opus_site: Site, access: DataAccess) -> None:
    with (
        offline(access, opus_site) as without,
        pytest.raises(DataError, match=r"News/v16.*: not in the store and store\.offline: true"),
    ):
        rows(TextConfig(opus=("News/v16",)), without)


def test_a_named_data_set_that_changed_is_refused(opus_site: Site, access: DataAccess) -> None:
    path = "/OPUS-News/v16/moses/de-en.txt.zip"
    opus_site.put(path, zipped(NEWS))
    text = TextConfig(opus=("News/v16",))
    digest = remote(resolved_text(text, access).source[0]).sha256
    for archive in (access.store.root / "downloads").glob("*/de-en.txt.zip"):
        archive.unlink()
    opus_site.put(path, zipped({**NEWS, "News.de-en.de": "Häuser\nBaum\n"}))
    with pytest.raises(DataError, match=f"expected sha256 {digest}, which is pinned, got .*remove its record in .*names"):
        rows(text, access)


def test_files_and_named_data_sets_are_joined(opus_site: Site, access: DataAccess) -> None:
    opus_site.put("/OPUS-News/v16/moses/de-en.txt.zip", zipped(NEWS))
    sides = {side: (RemoteFile(url=opus_site.put(f"/{side}.txt", f"{side}\n".encode())),) for side in ("source", "target")}
    assert rows(TextConfig(opus=("News/v16",), **sides), access)[0] == ("source", "target")
    assert len(rows(TextConfig(opus=("News/v16",), **sides), access)) == 3


# mtdata


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that adds an entry to an index, which is asked in this process."""
    from mtdata.entry import DatasetId, Entry

    entries: dict[DatasetId, Entry] = {}

    class Index(dict[DatasetId, Entry]):
        @property
        def entries(self) -> dict[DatasetId, Entry]:
            return self

    def add(name: str, url: Any, **fields: Any) -> None:
        entries[DatasetId.parse(name)] = Entry(did=name, url=url, **fields)

    def look_up(names: Any, languages: Any) -> list[dict[str, Any]]:
        return json.loads(json.dumps([describe(Index(entries), name, list(languages)) for name in names]))  # type: ignore[no-any-return]

    monkeypatch.setattr(mtdata_sets, "look_up", look_up)
    return add


def test_mtdata_formats(site: Site, planted: Callable[..., None], access: DataAccess) -> None:
    planted("A-table-1-deu-eng", site.put("/a.tsv", b"Haus\thouse\tmore\n"))
    planted("A-columns-1-eng-deu", site.put("/c.tsv", b"0.5\thouse\tHaus\n"), cols=(1, 2))
    members = {"x/c.de-en.de": "Baum\n", "x/c.de-en.en": "tree\n", "x/c.fr": "arbre\n"}
    planted("A-tar-1-deu-eng", site.put("/t.tgz", tarred(members)), in_paths=["x/c.de-en.de", "*.en"], in_ext="txt")
    planted("A-zip-1-deu-eng", site.put("/z.zip", zipped(members)), in_paths=["*.de", "*.en"], in_ext="txt")
    lines = (site.put("/l.de", b"Licht\n"), site.put("/l.en", b"light\n"))
    planted("A-lines-1-deu-eng", lines, ext="txt")
    names = ("A-table-1-deu-eng", "A-columns-1-eng-deu", "A-tar-1-deu-eng", "A-zip-1-deu-eng", "A-lines-1-deu-eng")
    expected = [("tree", "Baum"), ("tree", "Baum"), ("light", "Licht"), ("house", "Haus"), ("house", "Haus")]
    assert rows(TextConfig(mtdata=names), access) == expected
    reverse = [(target, source) for source, target in expected]
    assert rows(TextConfig(mtdata=names), replace(access, languages=("de", "en"))) == reverse
    with offline(access, site) as without:
        assert rows(TextConfig(mtdata=names), without) == expected


def test_mtdata_refuses_formats_with_the_command_that_converts_them(
    site: Site, planted: Callable[..., None], access: DataAccess
) -> None:
    planted("A-set-1-deu-eng", site.put("/a.xml", b"<a/>"))
    with pytest.raises(DataError, match=r"A-set-1-deu-eng: expected .* got 1 of format xml ; run mtdata get -l en-de -tr A-set-1-"):
        rows(TextConfig(mtdata=("A-set-1-deu-eng",)), access)


def test_mtdata_of_translation_memories_in_either_direction(site: Site, planted: Callable[..., None], access: DataAccess) -> None:
    memory = b'<tmx><tu><tuv xml:lang="de"><seg>Baum</seg></tuv><tuv xml:lang="en"><seg>tree</seg></tuv></tu></tmx>'
    planted("A-memory-1-deu-eng", site.put("/a.tmx", memory))
    text = TextConfig(mtdata=("A-memory-1-deu-eng",))
    assert rows(text, access) == [("tree", "Baum", "")]
    assert rows(text, replace(access, languages=("de", "en"))) == [("Baum", "tree", "")]


@pytest.mark.slow  # the import of its index takes long
def test_licences_of_elrc_share_come_from_its_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from mtdata.index import elrc_share

    (tmp_path / "list.tsv").write_text(
        "de\ten\t1\tS\tN\tinfo\thttp://x/1\tCC0-1.0\ta.tmx\nde\ten\t2\tS\tN\tinfo\thttp://x/2\tPSI\tb\n"
    )
    monkeypatch.setattr(elrc_share, "REFS_FILE", tmp_path / "list.tsv")

    def entry(group: str, url: str) -> SimpleNamespace:
        return SimpleNamespace(did=SimpleNamespace(group=group), url=url)

    found = [mtdata_index.licence(entry(*of)) for of in (("ELRC", "http://x/2"), ("ELRC", "http://x/3"), ("Statmt", "http://x/1"))]
    assert found == ["PSI", "", ""]


def test_mtdata_with_unknown_ids_and_languages(site: Site, planted: Callable[..., None], access: DataAccess) -> None:
    planted("A-table-2-deu-eng", site.put("/a.tsv", b"x\ty\n"))
    planted("A-table-1-fra-eng", site.put("/a.tsv", b"x\ty\n"))
    with pytest.raises(
        DataError, match=r"A-table-1-deu-eng: expected an id of `mtdata list -id`, got .*similar ones: A-table-2-deu-eng"
    ):
        rows(TextConfig(mtdata=("A-table-1-deu-eng",)), access)
    with pytest.raises(DataError, match=r"A-table-1-fra-eng: expected the languages en-de of the config, got fra-eng"):
        rows(TextConfig(mtdata=("A-table-1-fra-eng",)), access)


@pytest.mark.slow
def test_the_index_of_mtdata_is_asked_in_a_process_of_its_own() -> None:
    europarl, unknown = mtdata_sets.look_up(["Statmt-europarl-10-deu-eng", "Statmt-europarl-99-deu-eng"], ("en", "de"))
    assert europarl["url"] == ["http://www.statmt.org/europarl/v10/training/europarl-v10.de-en.tsv.gz"]
    assert (europarl["format"], europarl["swapped"]) == ("tsv.gz", True)
    assert "Statmt-europarl-9-deu-eng" in unknown["known"]


# The Hugging Face Hub

COMMIT = "c" * 40


def parquet(*pairs: tuple[str, str]) -> bytes:
    column = pa.array([{"de": target, "en": source} for source, target in pairs])
    data = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(len(pairs))), "translation": column}), data)
    return data.getvalue()


class Hub:
    """A repository `org/set` on the site."""

    def __init__(self, site: Site) -> None:
        self.site = site
        for revision, card in (("main", {"license": "cc-by-4.0"}), (COMMIT, {"license": ["mit", "unknown"]})):
            site.put(f"/api/datasets/org/set/revision/{revision}", json.dumps({"sha": COMMIT, "cardData": card}).encode())
        site.put("/api/datasets/org/set/revision/refs%2Fconvert%2Fparquet", json.dumps({"sha": COMMIT}).encode())

    def put(self, files: dict[str, bytes]) -> None:
        listed: list[dict[str, Any]] = [{"type": "directory", "path": "de-en"}]
        for path, data in files.items():
            large = {"lfs": {"oid": hashlib.sha256(data).hexdigest()}} if path.endswith(".parquet") else {}
            listed.append({"type": "file", "path": path, "size": len(data), "oid": "git", **large})
            self.site.put(f"/datasets/org/set/resolve/{COMMIT}/{path}", data)
        self.site.put(f"/api/datasets/org/set/tree/{COMMIT}?recursive=true", json.dumps(listed).encode())


FILES = {
    "README.md": b"about",
    "de-en/train-00001.parquet": parquet(("b", "B")),
    "de-en/train-00000.parquet": parquet(("a", "A")),
    "de-en/test-00000.parquet": parquet(("t", "T")),
}


@pytest.fixture
def hub(site: Site, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setenv("HF_ENDPOINT", site.url + "/")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    hub = Hub(site)
    hub.put(FILES)
    return hub


def from_hub(name: str, **fields: Any) -> TextConfig:
    return TextConfig(parquet=(RemoteFile(url=name, **fields),))


@pytest.mark.parametrize("revision", ["", "@main", f"@{COMMIT}", "@refs/convert/parquet"])
def test_files_of_the_hub_are_those_of_a_commit(hub: Hub, access: DataAccess, revision: str) -> None:
    name = f"hf:org/set{revision}/de-en/train-*.parquet"
    assert rows(from_hub(name), access) == [("a", "A"), ("b", "B")]
    files = [remote(file) for file in resolved_text(from_hub(name), access).parquet]
    assert [file.url.rpartition("/")[2] for file in files] == ["train-00000.parquet", "train-00001.parquet"]
    assert all(COMMIT in file.url and len(file.sha256) == 64 for file in files)
    with offline(access, hub.site) as without:
        assert rows(from_hub(name, columns=("translation.de", "translation.en")), without) == [("A", "a"), ("B", "b")]


@pytest.mark.parametrize(
    ("revision", "stated", "licence"),
    [("", "", "cc-by-4.0"), (f"@{COMMIT}", "", "mit"), ("@refs/convert/parquet", "", ""), ("", "other", "other")],
)
def test_the_card_of_the_revision_states_the_licence(
    hub: Hub, access: DataAccess, revision: str, stated: str, licence: str
) -> None:
    text = from_hub(f"hf:org/set{revision}/de-en/test-00000.parquet", licence=stated)
    assert [file.licence for file in text_files(text, access).parquet] == [licence]
    assert [file.licence for file in text_files(text, replace(access, offline=True)).parquet] == [licence]


def test_folders_and_single_files_of_the_hub(hub: Hub, access: DataAccess) -> None:
    assert rows(from_hub("hf:org/set/de-en"), access) == [("t", "T"), ("a", "A"), ("b", "B")]
    assert rows(from_hub("hf:org/set/de-en/test-00000.parquet"), access) == [("t", "T")]
    with pytest.raises(
        DataError, match=r"hf:org/set/de-fr: expected files that match de-fr, got 4 others: de-en/test-00000\.parquet"
    ):
        rows(from_hub("hf:org/set/de-fr"), access)
    with pytest.raises(DataError, match=r"hf:org/set/de-en: expected one file for its sha256, got 3"):
        rows(from_hub("hf:org/set/de-en", sha256="0" * 64), access)
    with pytest.raises(
        DataError, match=r"hf:org/none/x: http.*/api/datasets/org/none/revision/main: expected JSON, got the answer 404"
    ):
        rows(from_hub("hf:org/none/x"), access)


def test_a_file_that_differs_from_the_hubs_digest_is_refused(hub: Hub, access: DataAccess) -> None:
    hub.site.put(f"/datasets/org/set/resolve/{COMMIT}/de-en/test-00000.parquet", parquet(("other", "text")))
    with pytest.raises(DataError, match="which is pinned, got"):
        rows(from_hub("hf:org/set/de-en/test-00000.parquet"), access)


def test_partial_conversions_are_refused(hub: Hub, access: DataAccess) -> None:
    hub.put({"default/partial-train/0000.parquet": parquet(("a", "A"))})
    with pytest.raises(
        DataError, match=r"expected a whole data set, got the beginning of one: default/partial-train/0000\.parquet"
    ):
        rows(from_hub("hf:org/set@refs/convert/parquet/default/partial-train"), access)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            {"path": "de-en/../../x.parquet"},
            "expected the relative name of a file below the directory, got 'de-en/../../x.parquet'",
        ),
        ({"path": "de-en/\x1b]0;x\x07.parquet"}, "expected the name of a file, got"),
        ({"path": "de-en/a\u2028.parquet"}, "expected the name of a file, got"),
        ({"path": "de-en/" + "a" * 300 + ".parquet"}, "expected the relative name of a file"),
        ({"path": 5}, "expected the commit and the files of a data set from http"),
        ({"lfs": {"oid": ["x"]}}, "expected the commit and the files of a data set from http"),
        ({"lfs": {"oid": "../../x"}}, "expected the commit and the files of a data set from http"),
        ({"lfs": [1]}, "expected the commit and the files of a data set from http"),
    ],
)
def test_a_listing_of_the_hub_with_other_values_is_refused(
    hub: Hub, access: DataAccess, entry: dict[str, Any], problem: str
) -> None:
    listed = [{"type": "file", "path": "de-en/x.parquet", **entry}]
    hub.site.put(f"/api/datasets/org/set/tree/{COMMIT}?recursive=true", json.dumps(listed).encode())
    with pytest.raises(DataError) as raised:
        rows(from_hub("hf:org/set/de-en"), access)
    assert problem in str(raised.value)


def test_the_hub_when_it_fails_or_is_forbidden(hub: Hub, access: DataAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.site.faults = ["503"] * 3
    with pytest.raises(StageError, match=r"hf:org/set/de-en: .*could not be read: the server answered 503"):
        rows(from_hub("hf:org/set/de-en"), access)
    hub.site.put("/api/datasets/org/set/revision/main", b"<html>")
    with pytest.raises(DataError, match="expected JSON, got something else"):
        rows(from_hub("hf:org/set/de-en"), access)
    for answer in ({"error": "gone"}, [], {"sha": "../x"}, {"sha": ["x"]}, {"sha": COMMIT, "cardData": "none"}):
        hub.site.put("/api/datasets/org/set/revision/main", json.dumps(answer).encode())
        with pytest.raises(DataError, match="hf:org/set/de-en: expected the commit and the files of a data set from http"):
            rows(from_hub("hf:org/set/de-en"), access)
    asked = len(hub.site.requests)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="not in the store"):
        rows(from_hub("hf:org/set/de-en"), access)
    assert len(hub.site.requests) == asked


# Forms of names


def test_forms_of_names() -> None:
    name = hub_name("hf:wmt/wmt14@refs/convert/parquet/de-en/train/0000.parquet")
    assert name is not None
    assert (name.repository, name.revision, name.path) == ("wmt/wmt14", "refs/convert/parquet", "de-en/train/0000.parquet")
    assert [hub_name(text) for text in ("hf:wmt14", "hf:a/b@c", "hf:a/b/../c", "hf://a/b/c", "a/b/c")] == [None] * 5
    assert [opus_name(text) for text in ("News/latest", "News", "../v1", "a/b/c/d", "a/v1/en", "a b/v1")] == [None] * 6
    assert is_mtdata_id("Statmt-news_commentary-18.1-deu-eng")
    assert not any(map(is_mtdata_id, ("europarl", "Statmt-mono-1-deu", "a-b-c-d-e-f", "a/../b-1-2-3-4")))


def test_wmt_states_the_licence_of_its_news_test_sets() -> None:
    assert licence_of_test_set("wmt17/dev") == "research use, see statmt.org/wmt17/translation-task.html"
    assert "wmt20" in licence_of_test_set("wmt20")


@pytest.mark.parametrize("name", ["wmt17/ms", "wmt16", "wmt24", "wmt08", "mtnt1.1/test", "wmt170", "iwslt17", "wmt19/google/ar"])
def test_other_sets_have_no_known_licence(name: str) -> None:
    assert licence_of_test_set(name) == ""


@pytest.mark.parametrize(
    ("value", "licence"),
    [("cc-by-4.0", "cc-by-4.0"), (["mit", "unknown", "cc0-1.0"], "mit, cc0-1.0"), ("unknown", ""), (None, ""), ([], ""), ({}, "")],
)
def test_metadata_that_states_no_licence_gives_none(value: object, licence: str) -> None:
    assert stated(value) == licence
