"""Glossaries: which terms a text has, files that are refused, and systems that translate terms as stated."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

import fewstep
from fewstep.__main__ import main
from fewstep.config.search import SearchConfig
from fewstep.families.dag.config import DagSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.serve.app import create_app
from fewstep.serve.settings import Settings
from fewstep.system import system as of_systems
from fewstep.text import glossary as of_glossaries
from fewstep.text.glossary import Glossary, GlossaryError, read_glossary
from fewstep.text.masks import complete, counts, kinds_of, mask, mask_pair, restored, settle
from fewstep.text.placeholders import placeholders
from fewstep.text.terms import shared_words
from pipeline.__main__ import main as pipeline_main
from pipeline.config.load import load_config
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from stages.artifacts import ExternalFile, Hypotheses, System
from stages.decode import STAGE as DECODE
from stages.decode import DecodeConfig, DecodeInputs
from stages.errors import DataError
from stages.score import STAGE as SCORE
from stages.score import ScoreConfig, ScoreInputs
from stages.vocabulary import VocabularyConfig
from stages.vocabulary.run import train_pieces
from tests.fewstep.systems import write_masked
from tests.stages.steps import context_in, read_json, rows_of, write_text

GLOSSARY = Glossary.of(
    [
        ("list", "liste"),
        ("linked list", "liste chaînée"),
        ("built-in", "natif"),
        ("Python", "Python"),
        ("US", "États-Unis"),
        ("python", "serpent"),
        ("日本", "Japon"),
        ("日本語", "japonais"),
        ("ไทย", "thaï"),
    ]
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a list of lists", ["list"]),
        ("LIST, List: list.", ["LIST", "List", "list"]),
        ("a linked list and a linked  list", ["linked list", "linked  list"]),
        ("linked lists", []),
        ("list_item alist list2", []),
        ("a built-in list", ["built-in", "list"]),
        ("built - in", []),
        ("tell us of the US", ["US"]),
        ("Python python PYTHON", ["Python", "python", "PYTHON"]),
        ("日本語の日本", ["日本語", "日本"]),
        ("ภาษาไทยและ", ["ไทย"]),
        ("`list` :term:`list` ``a list`` {list} <list> https://a.org/list list", ["list"]),
        ("``a``, a :term:`linked list` of a list", ["list"]),
        ("", []),
    ],
)
def test_terms_are_whole_words_the_longest_first(text: str, found: list[str]) -> None:
    assert [text[one.start : one.end] for one in GLOSSARY.find(text)] == found


def test_a_term_as_written_comes_before_one_in_lower_case() -> None:
    assert [one.target for one in GLOSSARY.find("Python and python")] == ["Python", "serpent"]


WORDS = st.sampled_from(["list", "linked", "List", "built-in", "a", "Python", "日本", "語", "`list`", "%s", "x"])


@given(st.lists(WORDS, max_size=10).map(" ".join))
def test_terms_do_not_overlap_and_no_longer_one_is_there(text: str) -> None:
    """The longest term at each free place, found by trying all terms at all places."""
    found = [(one.start, one.end) for one in GLOSSARY.find(text)]
    assert all(end <= start for (_, end), (start, _) in pairwise(found))
    for start, end in found:
        longer = [source for source, _ in GLOSSARY.terms if len(source) > end - start and text[start:].startswith(source)]
        assert not [source for source in longer if not text[start + len(source) : start + len(source) + 1].strip()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("list\tliste\nmap\t\n", "line 2: expected a term and its translation, got an empty one"),
        ("\tliste\n", "line 1: expected a term and its translation, got an empty one"),
        (
            "list\tliste\n\nlist\tcatalogue\n",
            "line 3: expected one translation of 'list', got 'catalogue', and 'liste' in .*1;",
        ),
        ("list\n", "line 1: expected a term, a tab and its translation, got 1 columns"),
        ("list\tliste\tnoun\n", "line 1: expected a term, a tab and its translation, got 3 columns"),
        ("\n \n", "expected terms, got none"),
    ],
)
def test_a_glossary_that_cannot_be_used_is_an_error_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(text)
    with pytest.raises(GlossaryError, match=message):
        read_glossary(path)


def test_files_that_are_missing_or_not_utf_8_are_errors(tmp_path: Path) -> None:
    with pytest.raises(GlossaryError, match=r"none\.tsv: expected a glossary, got No such file"):
        read_glossary(tmp_path / "none.tsv")
    (tmp_path / "latin.tsv").write_bytes("é\té".encode("latin-1"))
    with pytest.raises(GlossaryError, match="expected UTF-8, got the byte 0xe9"):
        read_glossary(tmp_path / "latin.tsv")


def test_double_terms_are_one(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_bytes("\ufefflist\tliste\r\nlist \tliste\r\nList\tListe\r\n".encode())
    assert read_glossary(tmp_path / "terms.tsv").terms == (("list", "liste"), ("List", "Liste"))


@pytest.mark.parametrize(
    ("source", "output", "found"),
    [
        ("a list and a list", "une liste", (2, 1)),
        ("a list", "Liste et liste", (1, 1)),
        ("a list", "des listes", (1, 0)),
        ("a linked list", "une liste", (1, 0)),
        ("a list", "une liste chaînée", (1, 0)),
        ("no term", "liste", (0, 0)),
    ],
)
def test_terms_honoured_are_those_that_the_output_has_as_stated(source: str, output: str, found: tuple[int, int]) -> None:
    assert GLOSSARY.honoured(source, output) == found


def test_masks_of_terms_are_restored_as_the_glossary_states() -> None:
    text = "The list of `list` and %s, List."
    found = mask(text, ["directive", "term"], terms=GLOSSARY.find(text))
    assert found.text == "The ⟦term1⟧ of `list` and ⟦directive1⟧, ⟦term1⟧."
    assert restored("⟦term1⟧ et ⟦directive1⟧ ⟦term1⟧", found.values, capital=True) == "Liste et %s liste"
    assert restored("⟦term1⟧ ⟦term2⟧", found.values) == "liste "


def test_training_masks_a_share_of_the_words_that_both_sides_have() -> None:
    words = [f"word{number}x" for number in range(400)]
    source, target = " ".join(words), " ".join([*reversed(words), "other"])
    chosen = shared_words(source, target)
    assert 60 < len(chosen) < 140
    assert chosen <= set(words)
    assert shared_words("one %s `two` three", "three %s `two` one") <= {"one", "three"}
    assert shared_words("once here", "once once here") <= {"here"}
    masked, other = mask_pair(source, target, ["term"], terms=True)
    assert masked.text.count("⟦term") == other.count("⟦term") == 8, "as many as there are masks"
    assert restored(other, masked.values) == target
    assert mask_pair(source, target, ["term"])[0].text == source, "only in training"


@pytest.fixture(scope="module")
def masking(systems: dict[str, Path]) -> fewstep.System:
    """A system whose vocabulary has masks."""
    config = VocabularyConfig(size=70, placeholders=("code", "role", "term"))
    pieces = SentencePieceProcessor(model_proto=train_pieces((f"some words here {n}" for n in range(200)), config))
    system = fewstep.load(systems["autoregressive"])
    return replace(system, source_pieces=pieces, target_pieces=pieces, masks=kinds_of(pieces), max_source_tokens=99)


def as_written(monkeypatch: pytest.MonkeyPatch, system: fewstep.System, *outputs: str) -> list[SearchConfig]:
    """Let each sentence have these outputs, the first alone unless several are asked for; return the searches."""
    searches = list[SearchConfig]()

    def decode(
        _: object, sources: Sequence[object], search: SearchConfig, *__: object, **___: object
    ) -> list[list[fewstep.Hypothesis]]:
        searches.append(search)
        found = outputs if search.n_best > 1 else outputs[:1]
        return [[fewstep.Hypothesis(system.source_pieces.encode(text), 0.0, 1) for text in found] for _ in sources]

    monkeypatch.setattr(of_systems, "decode_sentences", decode)
    return searches


def test_a_system_with_a_glossary_reads_masks_and_writes_terms(masking: fewstep.System, monkeypatch: pytest.MonkeyPatch) -> None:
    system = masking.with_glossary(Glossary.of([("words", "Wörter"), ("here", "hier")]))
    read = [system.source_pieces.decode(ids) for ids in system.encode(["some words here words"])]
    assert read == ["some ⟦term1⟧ ⟦term2⟧ ⟦term1⟧"]
    as_written(monkeypatch, system, "⟦term2⟧ some ⟦term1⟧ ⟦term1⟧")
    assert system.translate(["some words here words"]) == ["hier some Wörter Wörter"]
    assert system.translate(["Some words here words"]) == ["Hier some Wörter Wörter"]
    assert masking.glossary is None
    assert masking.with_glossary(None) is masking


def test_a_system_without_masks_of_terms_takes_no_glossary(systems: dict[str, Path]) -> None:
    with pytest.raises(GlossaryError, match=r"expected masks of terms in its vocabulary, got none; train a system with"):
        fewstep.load(systems["autoregressive"]).with_glossary(GLOSSARY)


def test_an_output_that_loses_a_mask_gives_way_to_one_that_does_not(
    masking: fewstep.System, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = as_written(monkeypatch, masking, "some words", "some ⟦code1⟧", "words ⟦code1⟧")
    found = masking.hypotheses(["some `x`", "some words"])
    assert [[(one.text, one.put_back) for one in ranked] for ranked in found] == [[("some `x`", 0)], [("some words", 0)]]
    assert [search.n_best for search in searches] == [1, 8]


@pytest.mark.parametrize(
    ("source", "output", "text", "put_back"),
    [
        ("some ⟦code1⟧ words", "some here words", "some ⟦code1⟧ here words", 1),
        ("some words ⟦code1⟧.", "some words.", "some words ⟦code1⟧.", 1),
        ("⟦code1⟧ some ⟦code2⟧", "some ⟦code2⟧ ⟦code2⟧", "⟦code1⟧ some ⟦code2⟧", 1),
        ("some ⟦code1⟧", "some ⟦code2⟧ ⟦code1⟧ ⟦role1⟧", "some ⟦code1⟧", 0),
        ("some ⟦role1⟧`words here`", "some `words here`", "some ⟦role1⟧`words here`", 1),
        ("some ⟦role1⟧`words here`", "some", "some ⟦role1⟧`words here`", 1),
        ("⟦code1⟧ ⟦code2⟧ ⟦code1⟧", "", "⟦code1⟧ ⟦code2⟧ ⟦code1⟧", 3),
        ("⟦code1⟧ x ⟦code1⟧", "x ⟦code1⟧", "x ⟦code1⟧ ⟦code1⟧", 1),
        ("⟦code1⟧ ⟦code2⟧", "⟦code2⟧ ⟦code1⟧", "⟦code2⟧ ⟦code1⟧", 0),
    ],
)
def test_what_no_hypothesis_has_is_put_back_once(source: str, output: str, text: str, put_back: int) -> None:
    assert complete(source, output, spaced=True) == (text, put_back)


MASKED = st.lists(st.sampled_from(["⟦code1⟧", "⟦code2⟧", "⟦term1⟧", "語", "。", " word", " "]), max_size=9).map("".join)


@given(MASKED, MASKED, st.booleans())
def test_completed_texts_have_the_masks_of_their_source(source: str, output: str, spaced: bool) -> None:
    text, put_back = complete(source, output, spaced)
    assert counts(text) == counts(source)
    assert put_back == (counts(source) - counts(output)).total()
    plain = [re.sub(r"⟦.*?⟧|\s", "", one) for one in (text, output)]
    assert plain[0] == plain[1], "nothing else changes"


def test_a_system_puts_back_what_its_search_loses(masking: fewstep.System, monkeypatch: pytest.MonkeyPatch) -> None:
    as_written(monkeypatch, masking, "some here words")
    found = masking.hypotheses(["some `x` words"])[0][0]
    assert (found.text, found.put_back) == ("some `x` here words", 1)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Systems of several families on disk, with random networks and masks of terms."""
    return write_masked(tmp_path_factory.mktemp("masked"), "autoregressive", "interleaved", "dag", "ctc", "glat")


def test_systems_of_all_families_honour_a_glossary(masked: dict[str, Path]) -> None:
    glossary = Glossary.of([("hund", "Dackel"), ("katze läuft", "Kater rennt")])
    lines = ["ein hund läuft", "hund katze läuft schnell hund", "blau"]
    for name, directory in masked.items():
        system = fewstep.load(directory)
        found = system.with_glossary(glossary).translate(lines)
        assert [(text.count("Dackel"), text.count("Kater rennt")) for text in found] == [(1, 0), (2, 1), (0, 0)], name
        assert found[2] == system.translate(lines)[2]


def test_the_command_takes_a_glossary(masked: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output, terms = (tmp_path / name for name in ("in", "out", "terms.tsv"))
    source.write_text("ein hund läuft\n")
    terms.write_text("hund\tDackel\n")
    directory = str(masked["interleaved"])
    files = ["--input", str(source), "--output", str(output), "--glossary", str(terms)]
    for command in (main, pipeline_main):
        assert command(["translate", directory, *files]) == 0
        assert output.read_text().count("Dackel") == 1
    terms.write_text("hund\n")
    for command in (main, pipeline_main):
        assert command(["translate", directory, *files]) == 2
        assert f"--glossary: {terms}, line 1: expected a term, a tab and its translation, got 1 columns" in capsys.readouterr().err


@pytest.fixture
def levels() -> Iterator[None]:
    """Restore the levels of logs, which a server raises."""
    logs = [logging.getLogger(name) for name in ("fewstep", "fewstep.serve")]
    before = [log.level for log in logs]
    yield
    for log, level in zip(logs, before, strict=True):
        log.setLevel(level)


def test_requests_have_a_glossary_of_their_own(masked: dict[str, Path], levels: None) -> None:
    systems = {name: fewstep.load(masked[name]) for name in ("interleaved", "dag")}
    asked = {"sentences": ["ein hund läuft"], "systems": ["dag", "interleaved"]}
    with TestClient(create_app(systems, Settings()), base_url="http://127.0.0.1:8080") as client:
        answer = client.post("/translate", json={**asked, "glossary": [["hund", "Dackel"]]})
        assert [one["translations"][0][0]["text"].count("Dackel") for one in answer.json()["systems"]] == [1, 1]
        assert all(
            "Dackel" not in one["translations"][0][0]["text"] for one in client.post("/translate", json=asked).json()["systems"]
        )
        for pairs, message in (
            ([["hund", ""]], "glossary[0]: expected a term and its translation, got an empty one; remove it or complete it"),
            ([["a", "b"], ["a", "c"]], "glossary[1]: expected one translation of 'a', got 'c', and 'b' in glossary[0]; remove one"),
        ):
            answer = client.post("/translate", json={**asked, "glossary": pairs})
            assert answer.status_code == 422
            assert message in answer.json()["detail"]


def test_a_test_set_is_decoded_with_a_glossary_and_its_terms_are_counted(masked: dict[str, Path], tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("hund\tDackel\nblau\tgrau\n")
    rows = [("ein hund läuft", "ein Dackel rennt"), ("blau", "blau"), ("drei", "drei")]
    text, glossary = write_text(tmp_path / "text", rows), ExternalFile(terms, "digest")
    found = {}
    for name, chosen in (("with", glossary), ("without", None)):
        context = context_in(tmp_path / name)
        config = DecodeConfig(search=StepwiseSearch())
        DECODE.run(DecodeInputs(System(masked["interleaved"], "s"), text, glossary=chosen), config, context)
        assert {row["put_back"] for row in rows_of(tmp_path / name)} <= {0, 1}
        scores = context_in(tmp_path / f"scores-{name}")
        scored = ScoreInputs(Hypotheses(tmp_path / name, name), text, glossary=glossary)
        SCORE.run(scored, ScoreConfig(target_language="de", placeholders=True), scores)
        found[name] = read_json(scores.directory / "terms.json")
    assert found["with"] == {"terms": 2, "sentences": 2, "honoured": 2, "reference_honoured": 1}
    assert found["without"]["honoured"] == 0
    unmasked = write_masked(tmp_path / "more", "dag", kinds=["code"])["dag"]
    inputs, config = DecodeInputs(System(unmasked, "t"), text, glossary=glossary), DecodeConfig(search=DagSearch())
    with pytest.raises(DataError, match=r"evaluation\.glossary: system dag: expected masks of terms in its vocabulary, got code"):
        DECODE.run(inputs, config, context_in(tmp_path / "no"))
    terms.write_text("hund\t\n")
    with pytest.raises(DataError, match="line 1: expected a term and its translation, got an empty one"):
        DECODE.run(
            replace(inputs, glossary=ExternalFile(terms, "other")), DecodeConfig(search=DagSearch()), context_in(tmp_path / "no")
        )


def test_a_plan_decodes_default_searches_with_the_glossary_as_well(tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("hund\tDackel\n")
    config = tmp_path / "config.yaml"
    config.write_text(
        "corpus: {train: {embedded: 100}, validation: {embedded: 9}, test: {t: {embedded: 9}}, placeholders: [term]}\n"
        f"evaluation: {{glossary: {terms}}}\nsystems: {{a: {{search: [greedy, beam]}}, d: {{family: dag}}}}\n"
    )
    plan = build_plan(load_config(config), Store(tmp_path / "store"))
    decoded = [step.name for step in plan.steps if step.stage.name == "decode"]
    assert decoded == [
        "decode:a/greedy:t",
        "decode:a/greedy:t:glossary",
        "decode:a/beam:t",
        "decode:d/lookahead:t",
        "decode:d/lookahead:t:glossary",
    ]
    masked = {step.name: step.config.mask_terms for step in plan.steps if step.stage.name == "encode"}
    assert masked == {"encode:raw": True, "encode:validation": False}


MARKED = [
    ":ref:`a <l>`",
    "<l>",
    "``x``",
    "`y`",
    ":mod:`os`",
    ":term:`a b`",
    "<b>",
    "%s",
    "https://a.org/b?c",
    "(",
    "`",
    "``",
    " ",
    " ",
    "word",
    "語",
    ":",
    ".",
]


@given(st.lists(st.sampled_from(MARKED), max_size=7), st.lists(st.sampled_from(MARKED), max_size=9), st.booleans())
@example(["https://a.org/b?c"], ["("], False)
@example(["https://a.org/b?c", "%s"], ["``"], False)
def test_settled_texts_have_the_placeholders_of_their_source(source: list[str], output: list[str], spaced: bool) -> None:
    kinds = ["code", "url", "reference", "role", "tag", "directive"]
    text, _ = settle(" ".join(source), "".join(output), kinds, spaced)
    assert occurring(text) == occurring(" ".join(source))


def occurring(text: str) -> Counter[str]:
    return Counter(one[0] for one in placeholders(text))


@pytest.mark.parametrize(
    ("source", "output", "text", "changed"),
    [
        ("a ``x``", "un ``x``", "un ``x``", 0),
        ("See :mod:`os`.", "Voir:mod:`os`.", "Voir :mod:`os`.", 1),
        ("a ``x``", "un ``y`` ``x``", "un y ``x``", 1),
        ("a :mod:`os`", "un :mod:`sys` :mod:`os`", "un sys :mod:`os`", 1),
        ("no %s", "pas", "pas %s", 1),
        ("no <b>", "<b> pas <i>", "<b> pas", 1),
        ("a :ref:`b <l>`, :mod:`os`", "un :ref:`c <l>`, ``y`` ou :mod:`os`", "un :ref:`c <l>` , y ou :mod:`os`", 1),
        ("a :term:`b` :ref:`c <l>`", "un :term:`b <l>` un", "un :term:`b` b :ref:`c <l>` un", 1),
        ("a :ref:`b <l>`", "un <l>", "un :ref:`b <l>`", 1),
    ],
)
def test_placeholders_beside_masks_are_settled(source: str, output: str, text: str, changed: int) -> None:
    found = settle(source, output, ["code", "reference", "role", "tag", "directive"], spaced=True)
    assert (found[0].rstrip(), found[1]) == (text, changed)


def test_terms_that_begin_alike_are_found_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand terms at each of 5,000 words: each word is looked at once for each word of a term, and not for each term."""
    looked = 0

    class Counting(dict):
        def get(self, key, default=None):
            nonlocal looked
            looked += 1
            return super().get(key, default)

    monkeypatch.setattr(of_glossaries._Branch, "__init__", lambda self: self.__dict__.update(branches=Counting(), target=""))
    glossary = Glossary.of([*((f"a b{number}", "x") for number in range(1000)), ("a b7 c", "y")])
    assert [one.target for one in glossary.find("a " * 5000 + "b7 c")] == ["y"]
    assert looked < 30_000


@pytest.mark.parametrize("term", [("a " * 129, "x"), ("a" * 1001, "x"), ("a", "x" * 1001)])
def test_long_terms_are_refused(term: tuple[str, str]) -> None:
    with pytest.raises(GlossaryError, match=r"glossary\[0\]: expected a term of at most 128 words and 1,000 characters"):
        Glossary.of([term])


def test_separators_end_no_line_of_a_glossary(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("a\u2028b\tc\x85d\r\ne\tf\n", encoding="utf-8", newline="")
    assert len(read_glossary(path).terms) == 2


def test_a_glossary_without_end_is_refused() -> None:
    with pytest.raises(GlossaryError, match="/dev/zero: expected a glossary of at most 16,777,216 bytes"):
        read_glossary("/dev/zero")
