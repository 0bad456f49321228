"""Requests and answers of the server, valid and not."""

import json
import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fewstep.__main__ import main
from fewstep.serve.settings import ServeError
from fewstep.serve.systems import SystemLocation, find, load_all
from fewstep.system.load import load
from fewstep.translation import SourceTooLongError
from fewstep.vocabulary import clean
from tests.fewstep.serve.conftest import LINES
from tests.processes import FAST_SECONDS

# ---- a server in a process of its own answers as its systems do, and describes itself


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
    from openapi_spec_validator import validate  # takes a second, also of other tests

    validate(document)
    others = {"/detect", "/languages", "/health", "/frontend/settings"}
    others |= {f"/v2/{name}" for name in ("translate", "languages", "glossary-language-pairs")}
    assert set(document["paths"]) == {"/translate", "/explain", "/systems", "/healthz", "/metrics"} | others
    for path in ("/translate", "/detect", "/v2/translate"):
        assert set(document["paths"][path]["post"]["requestBody"]["content"]) == {
            "application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
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


# ---- locations of systems: directories, with or without names


def test_systems_are_loaded_under_their_names(directories):
    small, graph = directories["small"], directories["graph"]
    assert find([str(small), f"fast={graph}"]) == [SystemLocation(small), SystemLocation(graph, "fast")]
    assert list(load_all(find([f"fast={small}", str(small)]), load)) == ["fast", "small"]
    with pytest.raises(ServeError, match="expected different names, got small twice; name them with NAME=DIRECTORY"):
        load_all(find([str(small), str(small)]), load)


def test_other_locations_are_refused(tmp_path):
    for location in (str(tmp_path), "nowhere", "demo-1:small", f"a={tmp_path}", "=", ""):
        with pytest.raises(ServeError, match="expected the directory of a system"):
            find([location])


def test_the_runtime_has_the_command(capfd):
    assert main(["serve", "nowhere"]) == 2
    assert "fewstep serve: nowhere: expected the directory of a system" in capfd.readouterr().err


def test_a_damaged_system_is_named(directories, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(directories["small"], damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ServeError, match=r"model\.safetensors"):
        load_all([SystemLocation(damaged)], load)


@pytest.mark.parametrize(("name", "mode", "named"), [("model.safetensors", 0o600, "0600"), ("system.json", 0o640, "0640")])
def test_a_file_of_another_user_is_named_with_its_mode(directories, tmp_path, monkeypatch, name, mode, named):
    """It is not called damaged, which would send its reader for another copy."""
    system = tmp_path / "system"
    shutil.copytree(directories["small"], system)
    for file in system.iterdir():
        file.chmod(0o644)
    (system / name).chmod(mode)

    def access(path, wanted, **_):  # that of a user who is neither the owner nor of the group; root may read everything
        return path in (tmp_path, *tmp_path.parents) or bool(Path(path).stat().st_mode & wanted)

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(ServeError, match=rf"{system / name} has mode {named} and belongs to the user \d+; .*chmod a\+r"):
        load_all(find([str(system)]), load)


def test_names_that_no_file_can_have_are_refused():
    for location in ("x" * 300, f"a={'x/' * 3000}"):
        with pytest.raises(ServeError, match="expected the directory of a system"):
            find([location])


# ---- requests that are too large, invalid or malformed are answered and explained


TOO_LARGE = {
    "a megabyte line": (json.dumps({"sentences": ["ein " * 250_000]}), "body: expected at most 100000 bytes"),
    "a long sentence": (json.dumps({"sentences": ["ein", "ein " * 200]}), "sentences[1]: expected at most 400 characters, got 800"),
    "10,000 sentences": (json.dumps({"sentences": ["ein"] * 10_000}), "sentences: expected at most 50, got 10000"),
    "forty megabytes": (b"x" * 40_000_000, "body: expected at most 100000 bytes"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_requests_that_are_too_large_are_answered(server, name):
    body, detail = TOO_LARGE[name]
    status, answer = server.post(body if isinstance(body, bytes) else body.encode())
    assert status == 413
    assert answer["detail"].startswith(detail)


INVALID = {
    "invalid UTF-8": (b'{"sentences": ["\xff\xfe"]}', 400, "body: expected UTF-8, got the byte 0xff at position 16"),
    "no JSON": (b"ein hund", 422, "JSON decode error"),
    "deep JSON": (b"[" * 50_000, 400, "body: expected JSON of a few levels"),
    "no sentences": (b'{"sentences": []}', 422, "sentences: "),
    "a number": (b'{"sentences": [1]}', 422, "sentences.0: "),
    "one string": (b'{"sentences": "ein"}', 422, "sentences: "),
    "an unknown key": (b'{"sentences": ["ein"], "beam": 3}', 422, "beam: "),
    "an unknown label": (
        b'{"sentences": ["ein"], "search": "beam"}',
        422,
        "search: expected one of greedy, wide for small, got 'beam'",
    ),
    "a derived label": (b'{"sentences": ["ein"], "search": "beam-beam_size4000"}', 422, "search: expected one of greedy, wide"),
    "an unknown system": (
        b'{"sentences": ["ein"], "systems": ["large"]}',
        422,
        "systems: expected names of small, graph, got 'large'",
    ),
    "a search of no requested system": (
        b'{"sentences": ["ein"], "search": {"graph": "greedy"}}',
        422,
        "search: expected requested systems",
    ),
    "too many translations": (
        b'{"sentences": ["ein"], "search": "wide", "n_best": 4}',
        422,
        "search wide of small: n_best: expected at most 3",
    ),
    "n_best beyond the limit": (b'{"sentences": ["ein"], "n_best": 1000000}', 422, "n_best: expected at most 32"),
    "half a surrogate": (b'{"sentences": ["ein"], "systems": ["\\ud800"]}', 422, "systems: "),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_requests_are_explained(server, name):
    body, expected, detail = INVALID[name]
    status, answer = server.post(body)
    assert status == expected
    assert detail in answer["detail"]


HEAD = b"POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
BODY = b'{"sentences": ["ein"]}'
MALFORMED = {
    "headers without an end": (b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 100_000, 400),
    "TLS": (bytes.fromhex("160301020001000001fc0303") + b"a" * 200, 400),
    "a length that is no number": (HEAD + b"content-length: abc\r\n\r\n", 400),
    "two lengths": (HEAD + b"content-length: 22\r\ncontent-length: 5\r\n\r\n" + BODY, 400),
    "a broken chunk": (HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    "a chunk": (HEAD + b"transfer-encoding: chunked\r\n\r\n16\r\n" + BODY + b"\r\n0\r\n\r\n", 200),
    "a length that is announced": (HEAD + b"expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n", 413),
    "an old version": (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
    "text": (HEAD.replace(b"application/json", b"text/plain") + b"content-length: 22\r\n\r\n" + BODY, 415),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_http_is_answered(server, name):
    request, expected = MALFORMED[name]
    with socket.create_connection((server.host, server.port), timeout=FAST_SECONDS) as client:
        client.sendall(request)
        assert client.recv(100).startswith(b"HTTP/1.1 %d " % expected)
    assert server.request("GET", "/healthz")[0] == 200
