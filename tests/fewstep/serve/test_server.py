"""A server in a process of its own answers as its systems do, and describes itself."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from openapi_spec_validator import validate

from fewstep.system.load import load
from fewstep.translation import SourceTooLongError
from fewstep.vocabulary import clean
from tests.fewstep.serve.conftest import LINES


def outcome(answer):
    return [
        (entry["text"], entry["score"], entry["steps"], entry["statistics"])
        for ranked in answer["translations"]
        for entry in ranked
    ]


def test_the_server_answers_as_its_systems_do(server, directories):
    searches = {"small": "wide", "graph": "greedy"}
    status, answer = server.post({"sentences": LINES, "systems": ["graph", "small"], "search": {"small": "wide"}, "n_best": 1})
    assert status == 200
    assert [(entry["system"], entry["search"]) for entry in answer["systems"]] == [("graph", "greedy"), ("small", "wide")]
    for entry in answer["systems"]:
        system = load(directories[entry["system"]])
        expected = [ranked[0] for ranked in system.hypotheses(LINES, 1, searches[entry["system"]])]
        found = outcome(entry)
        assert [text for text, *_ in found] == [translation.text for translation in expected]
        assert [steps for *_, steps, _ in found] == [translation.steps for translation in expected]
        assert [score for _, score, *_ in found] == pytest.approx([translation.score for translation in expected], abs=1e-5)
        assert entry["milliseconds"] > 0
    assert len({text for text, *_ in outcome(answer["systems"][1])}) > 3, "the systems are not trivial"


def test_n_best_comes_best_first(server):
    status, answer = server.post({"sentences": LINES[:2], "search": "wide", "n_best": 3})
    assert status == 200
    for ranked in answer["systems"][0]["translations"]:
        scores = [entry["score"] for entry in ranked]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)


def test_answers_do_not_depend_on_company(server):
    """Thirty requests at once, of different sizes and searches, give what each gives alone."""
    requests = [
        {
            "sentences": LINES[start % 5 :][: 1 + start % 3],
            "systems": ["small", "graph"],
            "search": {"small": ("greedy", "wide")[start % 2]},
        }
        for start in range(30)
    ]
    alone = [server.post(request) for request in requests]
    with ThreadPoolExecutor(15) as pool:
        together = list(pool.map(server.post, requests))
    assert all(status == 200 for status, _ in alone + together)
    for (_, one), (_, other) in zip(alone, together, strict=True):
        for first, second in zip(one["systems"], other["systems"], strict=True):
            assert outcome(first) == outcome(second)
    assert max(entry["largest_batch"] for _, answer in together for entry in answer["systems"]) > 3, "they had company"


def test_control_characters_and_invalid_unicode_are_cleaned(server):
    dirty = "ein\x00 hund\t\x07 läuft\ufeff \u2581"
    (_, answer), (_, plain) = (server.post({"sentences": [line]}) for line in (dirty, clean(dirty, 1)))
    assert outcome(answer["systems"][0]) == outcome(plain["systems"][0])
    status, _ = server.post(b'{"sentences": ["ein \\ud800 hund"]}')
    assert status == 200


def test_all_sentences_of_a_text_are_translated_and_joined(server, directories):
    text = "ein hund läuft. Zwei katze!\n\n  drei ☃ hund"
    single = ["ein hund läuft.", "Zwei katze!", "drei ☃ hund"]
    chosen = {"systems": ["small", "graph"]}
    (status, answer), (_, parts) = (server.post({"sentences": given} | chosen) for given in ([text, " "], single))
    assert status == 200
    for entry, apart in zip(answer["systems"], parts["systems"], strict=True):
        (found,), (blank,) = entry["translations"]
        alone = [ranked[0] for ranked in apart["translations"]]
        assert found["text"] == "{} {}\n\n  {}".format(*(one["text"] for one in alone))
        assert found["steps"] == sum(one["steps"] for one in alone)
        assert (found["sentences"], found["cut"], found["replaced"]) == (3, 0, 0)
        assert "☃" in found["unknown"]
        assert (blank["text"], blank["sentences"]) == ("", 0)
    _, whole = server.post({"sentences": [text], "one_sentence_per_line": True})
    (((found,),),) = [entry["translations"] for entry in whole["systems"]]
    assert found["sentences"] == 1
    assert outcome(whole["systems"][0])[0][0] == load(directories["small"]).translate([text], one_sentence_per_line=True)[0]


def test_a_cut_sentence_is_reported_or_refused(server):
    long = {"sentences": ["drei", f"ein hund. {'ein ' * 40}"]}
    before = server.metric('fewstep_cut_sentences_total{system="small"}')
    status, answer = server.post(long)
    assert status == 200
    assert [ranked[0]["cut"] > 0 for ranked in answer["systems"][0]["translations"]] == [False, True]
    assert server.metric('fewstep_cut_sentences_total{system="small"}') == before + 1
    status, answer = server.post(long | {"refuse_long": True})
    assert status == 413
    assert answer["detail"].startswith("sentences: expected sentences of at most 23 tokens, got 40 ('ein ein")
    status, answer = server.post({"sentences": ["ein. " * 51]})
    assert status == 413
    assert answer["detail"].startswith("sentences: expected texts of at most 50 sentences, got 51")


def test_blank_sentences_have_empty_translations(server):
    status, answer = server.post({"sentences": ["", " \t ", "ein"], "systems": ["small", "graph"]})
    assert status == 200
    for entry in answer["systems"]:
        assert [found[0::2] for found in outcome(entry)[:2]] == [("", 0)] * 2


def test_the_document_is_valid_and_complete(server):
    document = json.loads(server.request("GET", "/openapi.json")[2])
    validate(document)
    others = {"/detect", "/languages", "/health", "/v2/translate"}
    assert set(document["paths"]) == {"/translate", "/explain", "/systems", "/healthz", "/metrics"} | others
    for path in ("/translate", "/detect", "/v2/translate"):
        assert set(document["paths"][path]["post"]["requestBody"]["content"]) == {
            "application/json",
            "application/x-www-form-urlencoded",
        }
    assert {"200", "400", "401", "413", "422", "429"} <= set(document["paths"]["/translate"]["post"]["responses"])
    assert document["components"]["securitySchemes"]


def test_systems_are_listed_with_their_searches(server):
    systems = json.loads(server.request("GET", "/systems")[2])["systems"]
    assert [(one["name"], one["family"], list(one["searches"])) for one in systems] == [
        ("small", "stepwise", ["greedy", "wide"]),
        ("graph", "dag", ["greedy", "lookahead"]),
    ]
    assert systems[0]["searches"]["wide"]["beam_size"] == 3


def test_metrics_count_requests_and_sentences(server):
    def counts():
        labels = 'search="wide",system="small"'
        samples = (
            'fewstep_requests_total{path="/translate",status="200"}',
            'fewstep_requests_total{path="/translate",status="422"}',
            'fewstep_requests_total{path="other",status="404"}',
            f"fewstep_sentences_total{{{labels}}}",
            f"fewstep_steps_total{{{labels}}}",
            f"fewstep_batch_sentences_count{{{labels}}}",
        )
        return [server.metric(sample) for sample in samples]

    before = counts()
    _, answer = server.post({"sentences": LINES[:3], "search": "wide"})
    server.post({"sentences": LINES[:1], "search": "none"})
    server.request("GET", "/nowhere")
    steps = sum(steps for _, _, steps, _ in outcome(answer["systems"][0]))
    assert [after - earlier for earlier, after in zip(before, counts(), strict=True)] == [1, 1, 1, 3, steps, 1]
    assert server.metric("fewstep_waiting_sentences") == 0


def test_the_page_is_one_file_that_may_load_nothing(server):
    status, headers, body = server.request("GET", "/")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert b"src=" not in body
    assert b"http" not in body.replace(b"http://www.w3.org/2000/svg", b"")


def test_a_graph_is_explained(server):
    status, answer = server.post({"sentence": LINES[0], "system": "graph", "search": "greedy"}, "/explain")
    assert (status, answer["kind"]) == (200, "dag")
    assert next(vertex["layer"] for vertex in answer["vertices"] if vertex["on_path"]) == 0
    assert all(
        answer["vertices"][edge["source"]]["layer"] < answer["vertices"][edge["target"]]["layer"] for edge in answer["edges"]
    )
    assert server.post({"sentence": LINES[0], "system": "small"}, "/explain") == (200, {"kind": None, "vertices": [], "edges": []})
    assert server.post({"sentence": " ", "system": "graph"}, "/explain")[1]["kind"] is None
    assert server.post({"sentence": "ein", "system": "graph", "search": "beam"}, "/explain")[0] == 422
    assert server.post({"sentence": "ein " * 200}, "/explain")[0] == 413
    two = server.post({"sentence": f"{LINES[0]}.\nBlau.", "system": "graph"}, "/explain")
    assert two == server.post({"sentence": f"{LINES[0]}.", "system": "graph"}, "/explain")


def test_long_sentences_are_not_explained(directories, monkeypatch):
    """Neither those that the network could read."""
    system = replace(load(directories["graph"]), max_source_tokens=23)
    monkeypatch.setattr("fewstep.system.system.MAX_EXPLAINED_TOKENS", 10)
    assert system.explain("ein " * 10, "greedy") is not None
    for length in (11, 23, 5000):
        with pytest.raises(SourceTooLongError, match=f"at most 10 tokens, got {length}"):
            system.explain("ein " * length, "greedy")
