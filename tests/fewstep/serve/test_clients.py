"""Clients of LibreTranslate and of DeepL, as their users run them."""

import json
import re
from contextlib import closing
from urllib.error import HTTPError
from urllib.parse import urlencode

import deepl
import pytest
from libretranslatepy import LibreTranslateAPI
from pydantic import TypeAdapter, ValidationError

from fewstep.serve.forms import _parts
from fewstep.serve.schemas import AnyTranslateRequest, DeeplRequest, DetectRequest
from fewstep.system.load import load
from tests.fewstep.serve.conftest import LINES, running

REQUESTS = {
    path: TypeAdapter(kind)
    for path, kind in (("/translate", AnyTranslateRequest), ("/detect", DetectRequest), ("/v2/translate", DeeplRequest))
}
FORM = {"content-type": "application/x-www-form-urlencoded"}
TEXT = "ein hund läuft. Zwei katze!\n\n  drei hund"


@pytest.fixture(scope="module")
def system(directories):
    return load(directories["small"])


@pytest.fixture(scope="module")
def guarded(directories, tmp_path_factory):
    """A server with a token."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text("secret")
    with running(directories["small"], "--token-file", file) as started:
        yield started


@pytest.fixture
def no_retries(monkeypatch):
    """Let DeepL's client wait for nothing."""
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)


def form(server, path, fields, **headers):
    status, _, answer = server.request("POST", path, urlencode(fields, doseq=True), {**FORM, **headers})
    return status, json.loads(answer)


def test_the_client_of_libretranslate_translates(server, system):
    client = LibreTranslateAPI(server.url)
    assert client.translate(TEXT, "en", "de") == system.translate([TEXT])[0]
    assert client.translate(LINES[0], "en-US", "DE") == system.translate(LINES[:1])[0]
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    (found,) = client.detect("A man reads a long and interesting book about the history of the world.")
    assert found["language"] == "en"
    assert found["confidence"] > 90
    (other,) = client.detect("Человек читает длинную и интересную книгу об истории мира.")
    assert other["language"] == "en", "the server knows no other source language"
    assert other["confidence"] < 1
    with pytest.raises(HTTPError) as error:
        client.translate("ein", "en", "fr")
    assert error.value.code == 400
    assert json.load(error.value)["error"] == ("source, target: expected languages of a system (en into de), got 'from en into fr'")


def test_the_client_of_libretranslate_has_its_token_in_the_body(guarded, system):
    client = LibreTranslateAPI(f"{guarded.url}/", api_key="secret")
    assert client.translate(TEXT, "en", "de") == system.translate([TEXT])[0]
    assert client.detect("A man")[0]["language"] == "en"
    assert [one["code"] for one in client.languages()] == ["en", "de"]
    for key, status in ((None, 401), ("", 403), ("secrets", 403), ("ß", 403)):
        client = LibreTranslateAPI(guarded.url, key)
        for ask, values in ((client.detect, ["ein"]), (client.translate, ["ein", "en", "de"])):
            with pytest.raises(HTTPError) as error:
                ask(*values)
            assert error.value.code == status
            assert "token" in json.load(error.value)["error"]


def test_the_client_of_deepl_lists_languages(guarded, no_retries):
    client = deepl.DeepLClient("secret", server_url=guarded.url)
    assert [(one.code, one.name) for one in client.get_source_languages()] == [("EN", "English")]
    assert [(one.code, one.name, one.supports_formality) for one in client.get_target_languages()] == [("DE", "German", False)]
    with pytest.raises(deepl.AuthorizationException):
        deepl.DeepLClient("wrong", server_url=guarded.url).get_source_languages()
    head = {"authorization": "DeepL-Auth-Key secret"}
    assert json.loads(guarded.request("GET", "/v2/languages?type=target", None, head)[2])[0]["language"] == "DE"
    for path, body in (("/v2/languages?type=both", None), ("/v2/languages", "type=both")):
        status, _, answer = guarded.request("GET", path, body, head)
        assert (status, list(json.loads(answer))) == (400, ["message"])


def multipart(*fields, boundary="cut", end="--", file=""):
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{value}\r\n' for name, value in fields]
    return f"{''.join(parts)}--{boundary}{end}\r\n".encode()


def test_forms_in_parts(server, guarded, system):
    kind = {"content-type": "multipart/form-data; boundary=cut"}
    fields = [("q", f"{TEXT}\r\n--other"), ("source", "en"), ("target", "de")]
    status, _, answer = server.request("POST", "/translate", multipart(*fields), kind)
    assert (status, json.loads(answer)["translatedText"]) == (200, system.translate([fields[0][1]])[0])
    quoted = {"content-type": 'multipart/form-data; boundary="a cut"'}
    many = [("text", "ein hund"), ("text", "drei"), ("target_lang", "DE")]
    status, _, answer = server.request("POST", "/v2/translate", multipart(*many, boundary="a cut"), quoted)
    assert [one["text"] for one in json.loads(answer)["translations"]] == system.translate(["ein hund", "drei"])
    assert guarded.request("POST", "/translate", multipart(*fields, ("api_key", "secret")), kind)[0] == 200
    assert guarded.request("POST", "/translate", multipart(*fields, ("api_key", "wrong")), kind)[0] == 403
    for body, reason in (
        (multipart(*fields, end=""), "no end of the last part"),
        (multipart(*fields, file='; filename="a.txt"'), "the file"),
        (multipart(*fields).replace(b"name=", b"nom="), "a part without a name"),
        ("", "no end of the last part"),
    ):
        status, _, answer = server.request("POST", "/translate", body, kind)
        assert (status, reason in json.loads(answer)["error"]) == (400, True), reason
    assert server.request("POST", "/translate", multipart(*fields), {"content-type": "multipart/form-data"})[0] == 400
    assert server.request("POST", "/translate", multipart(*fields), {**kind, "origin": "https://evil.example"})[0] == 403


def test_forms_have_a_number_of_fields():
    assert len(list(_parts(multipart(*[("q", "x")] * 1999), "multipart/form-data; boundary=cut"))) == 1999
    with pytest.raises(ValueError, match="more fields"):
        list(_parts(multipart(*[("q", "x")] * 2500), "multipart/form-data; boundary=cut"))


def test_tokens_in_the_body_of_json(guarded):
    own, libre = {"sentences": ["ein"]}, {"q": "ein", "source": "en", "target": "de"}
    assert guarded.post(own)[0] == guarded.post(libre)[0] == 401
    assert guarded.post({**libre, "api_key": "secret"})[0] == 200
    assert guarded.post({**libre, "api_key": "wrong"})[0] == guarded.post({**libre, "api_key": ["secret"]})[0] == 403
    assert guarded.post({**own, "api_key": "secret"})[0] == 422, "the server's own requests have it in the head"
    assert guarded.post(b"[" * 50_000)[0] == guarded.post(b"ein")[0] == guarded.post(b'["api_key"]')[0] == 401
    assert guarded.post({**libre, "q": "ein " * 20_000, "api_key": "secret"})[0] == 401, "more than 64 KiB"
    assert guarded.post({**libre, "api_key": "secret"}, authorization="Bearer wrong")[0] == 401
    assert guarded.post({**libre, "api_key": "wrong"}, authorization="Bearer secret")[0] == 200


def test_several_texts_with_alternatives_and_a_language_to_find(server, system):
    """The requests of Mastodon, and those of pages that offer a choice."""
    asked = {"q": LINES[:3], "source": "auto", "target": "de", "format": "html", "alternatives": 2, "secret": ""}
    status, answer = server.post(asked)
    assert status == 200
    assert answer["translatedText"] == system.translate(LINES[:3])
    assert [one["language"] for one in answer["detectedLanguage"]] == ["en"] * 3
    assert answer["alternatives"] == [[], [], []]
    _, answer = server.post({"q": LINES[0], "source": "en", "target": "de", "alternatives": 2})
    assert answer == {"translatedText": system.translate(LINES[:1])[0], "alternatives": []}, "greedy search has one translation"
    assert server.post({"q": "ein", "source": "en", "target": "de", "alternatives": 40}) == (
        400,
        dict.fromkeys(("detail", "error"), "alternatives: expected at most 31, got 40"),
    )


def test_alternatives_are_those_of_the_search(several):
    """As many as it finds, without the best one."""
    server, systems = several
    expected = [one.text for one in systems["one"].hypotheses([LINES[1]], 3)[0]]
    assert len(set(expected)) > 1
    for wanted in (1, 2, 9):
        _, answer = server.post({"q": LINES[1], "source": "en", "target": "de", "alternatives": wanted})
        assert answer["translatedText"] == expected[0]
        assert answer["alternatives"] == [text for text in dict.fromkeys(expected[: wanted + 1]) if text != expected[0]]


def test_one_server_has_several_pairs_of_languages(several):
    server, systems = several
    client = LibreTranslateAPI(server.url)
    assert [(one["code"], one["targets"]) for one in client.languages()] == [
        ("en", ["de"]),
        ("fr", ["zh-Hant"]),
        ("de", []),
        ("zh-Hant", []),
    ]
    english, french = "The man who reads the book is my friend.", "L'homme qui lit le livre est mon ami."
    assert client.translate(french, "fr", "zh") == systems["two"].translate([french])[0]
    assert client.translate(english, "auto", "de") == systems["one"].translate([english])[0]
    assert [one["language"] for one in client.detect(english)] == ["en", "fr"]
    assert [one["language"] for one in client.detect(french)] == ["fr", "en"]
    assert [one["confidence"] for one in client.detect("123 ...")] == [0, 0]
    with pytest.raises(HTTPError):
        client.translate(french, "fr", "de")
    _, answer = server.post({"sentences": [french], "source_language": "fr"})
    assert answer["systems"][0]["system"] == "two"
    assert server.post({"sentences": ["a"], "target_language": "DE"})[1]["systems"][0]["system"] == "one"
    assert server.post({"sentences": ["a"]})[1]["systems"][0]["system"] == "one"
    status, answer = server.post({"sentences": ["a"], "source_language": "de"})
    assert status == 422
    assert answer["detail"].startswith(
        "source_language, target_language: expected languages of a system (en into de, fr into zh-Hant)"
    )
    assert server.post({"sentences": ["a"], "source_language": "fr", "systems": ["two"]})[0] == 422


HTML = """<p class="x>y">ein <b>hund läuft</b>.
  Zwei   katze &amp; <code>drei <i>hund</i></code><!-- grün --><br/>&nbsp;drei</p>
<script>if (a < b) { c("<b>ein</b>"); }</script><span translate=no>ein <span>hund</span></span> <p>1 < 2</p>"""


def test_mark_up_stays(server, system):
    """All that is not text between tags is given back byte by byte."""
    _, answer = server.post({"q": HTML, "source": "en", "target": "de", "format": "html"})
    texts = ["ein", "hund läuft", ". Zwei katze &", "drei", "1 < 2"]
    done = iter(system.translate(texts))

    def escaped():
        return next(done).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    first, second, third, fourth, fifth = (escaped() for _ in texts)
    expected = HTML.replace(">1 < 2<", f">{fifth}<").replace("&nbsp;drei</p>", f"&nbsp;{fourth}</p>")
    expected = expected.replace(".\n  Zwei   katze &amp; <code>", f"{third} <code>").replace(
        "<b>hund läuft</b>", f"<b>{second}</b>", 1
    )
    assert answer["translatedText"] == expected.replace('">ein <b>', f'">{first} <b>', 1)
    only = "<br><!-- ein --> &nbsp; <code>ein</code>"
    assert server.post({"q": [only], "source": "en", "target": "de", "format": "html"})[1] == {"translatedText": [only]}


def test_the_client_of_deepl_translates(server, system, no_retries):
    with closing(deepl.DeepLClient("any", server_url=server.url)) as client:
        result = client.translate_text(TEXT, source_lang="EN", target_lang="DE")
        assert (result.text, result.detected_source_lang, result.billed_characters) == (
            system.translate([TEXT])[0],
            "EN",
            len(TEXT),
        )
        several = client.translate_text(LINES[:3], target_lang="DE", preserve_formatting=True, formality="prefer_less")
        assert [one.text for one in several] == system.translate(LINES[:3])
        assert {one.detected_source_lang for one in several} == {"EN"}
        for handling, text in (("off", TEXT), ("nonewlines", "ein hund läuft. Zwei katze! drei hund")):
            found = client.translate_text(TEXT, target_lang="DE", split_sentences=handling if handling != "off" else "0").text
            assert found == system.translate([text], one_sentence_per_line=handling == "off")[0]
        marked = client.translate_text("<p>ein <b>hund</b></p>", target_lang="DE", tag_handling="xml").text
        assert re.sub("[^<>/pb]", "", re.sub(">[^<]*<", "><", marked)) == "<p><b></b></p>"
        refused = {"target_lang": "FR"}, {"target_lang": "DE", "source_lang": "FR"}, {"target_lang": "DE", "formality": "more"}
        for more in refused:
            with pytest.raises(deepl.DeepLException, match="Bad request, message: ") as error:
                client.translate_text("ein", **more)
            assert error.value.http_status_code == 400
        with pytest.raises(deepl.DeepLException, match="glossary_id: Extra inputs are not permitted"):
            client.translate_text("ein", source_lang="EN", target_lang="DE", glossary="terms")


def test_the_key_of_deepls_client_is_the_token(guarded, system, no_retries):
    with closing(deepl.DeepLClient("secret", server_url=guarded.url)) as client:
        assert client.translate_text(LINES[0], target_lang="DE").text == system.translate(LINES[:1])[0]
    with (
        closing(deepl.DeepLClient("wrong", server_url=guarded.url)) as client,
        pytest.raises(deepl.AuthorizationException, match="token"),
    ):
        client.translate_text(LINES[0], target_lang="DE")


def test_forms_are_read_as_json(server):
    single = {"text": "ein hund", "target_lang": "DE", "source_lang": "", "preserve_formatting": "1"}
    _, expected = server.post({"text": ["ein hund"], "target_lang": "DE"}, "/v2/translate")
    assert form(server, "/v2/translate", single) == (200, expected)
    status, two = form(server, "/v2/translate", {**single, "text": ["ein hund", "drei"]})
    assert (status, two["translations"][0], len(two["translations"])) == (200, expected["translations"][0], 2)
    libre = {"q": ["ein", "drei"], "source": "en", "target": "de", "format": "", "alternatives": "1"}
    assert form(server, "/translate", libre) == server.post({**libre, "format": None, "alternatives": 1})
    for empty in ("", None):
        status, answer = server.post({"q": "ein", "source": "en", "target": "de", "format": empty, "alternatives": empty})
        assert (status, list(answer)) == (200, ["translatedText"])
    assert form(server, "/translate", {})[0] == form(server, "/translate", {"q": "ein", "source": "en"})[0] == 400
    assert form(server, "/detect", {})[0] == 400
    for body in (b"%ff=1&q=%fe", b"ein", b'{"sentences": ["A man reads."]}', b"&".join([b"q=a"] * 2_001)):
        status, _, answer = server.request("POST", "/detect", body, FORM)
        assert status == 400
        assert json.loads(answer)["error"].startswith("body: expected a form of at most 2000 fields, as the content-type says")
    assert form(server, "/explain", {"sentence": "ein"})[0] == 415


def in_url(server, path, **fields):
    status, _, answer = server.request("POST", f"{path}?{urlencode(fields)}")
    return status, json.loads(answer)


def test_fields_behind_the_path(server, guarded):
    """The requests of deep-translator, which have no body and no content type."""
    fields = {"q": "ein hund & drei", "source": "en", "target": "de", "format": "text", "api_key": "any"}
    assert in_url(server, "/translate", **fields) == server.post(fields)
    assert in_url(server, "/detect", q="ein") == server.post({"q": "ein"}, "/detect")
    assert in_url(guarded, "/translate", **{**fields, "api_key": "secret"}) == server.post(fields)
    assert in_url(guarded, "/translate", **fields)[0] == 403
    del fields["api_key"]
    assert in_url(guarded, "/translate", **fields)[0] == 401
    assert in_url(server, "/translate", source="en", target="de")[0] == 400
    assert in_url(server, "/v2/translate", text="ein", target_lang="DE")[0] == 415, "DeepL's clients send a body"
    query = f"/translate?{urlencode(fields)}"
    assert server.request("POST", query, headers={"origin": "http://localhost:1"})[0] == 403
    assert server.request("POST", query, b"ein")[0] == 415, "a body needs a content type"
    assert server.post({**fields, "q": "drei"}, query)[1] == server.post({**fields, "q": "drei"})[1], "JSON goes first"


def test_fields_that_no_server_knows_are_not_used(server):
    """The requests of the npm package `libretranslate`."""
    fields = {"q": "ein", "source": "en", "target": "de"}
    assert server.post({**fields, "apiKey": ""}) == server.post(fields)
    assert server.post({"q": "ein", "apiKey": ""}, "/detect") == server.post({"q": "ein"}, "/detect")


def test_pages_of_libretranslate_ask_for_settings(server, guarded):
    """Without an answer its page shows an error alone."""
    found = {one: json.loads(one.request("GET", "/frontend/settings")[2]) for one in (server, guarded)}
    assert found[server] == {
        "charLimit": 400,
        "frontendTimeout": 500,
        "apiKeys": False,
        "keyRequired": False,
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "language": {"source": {"code": "en", "name": "English"}, "target": {"code": "de", "name": "German"}},
    }
    assert found[guarded]["apiKeys"] is found[guarded]["keyRequired"] is True


def test_requests_of_weblate_to_deepl(server, system):
    """Placeholders are elements `x`, whose content stays; before any text it asks for the languages of glossaries."""
    head = {"authorization": "DeepL-Auth-Key any"}
    status, _, answer = server.request("GET", "/v2/glossary-language-pairs", headers=head)
    assert (status, json.loads(answer)) == (200, {"supported_languages": []})
    asked = {
        "text": ['ein <x id="4"></x> hund', "drei<X>ein hund</X>"],
        "source_lang": "EN",
        "target_lang": "DE",
        "formality": "default",
        "tag_handling": "xml",
        "ignore_tags": ["x"],
    }
    status, answer = server.post(asked, "/v2/translate", **head)
    ein, hund, drei = system.translate(["ein", "hund", "drei"])
    assert status == 200
    assert [one["text"] for one in answer["translations"]] == [f'{ein} <x id="4"></x> {hund}', f"{drei}<X>ein hund</X>"]
    joined = {**asked, "ignore_tags": "b, x"}
    assert form(server, "/v2/translate", joined)[1] == answer
    status, answer = server.post({**asked, "ignore_tags": [3]}, "/v2/translate")
    assert (status, answer["message"].split(":")[0]) == (400, "ignore_tags.0")


def test_forms_of_other_sites_are_refused(server):
    """A page can send a form to any server without asking it."""
    fields = {"q": "ein"}
    assert form(server, "/detect", fields, origin=server.url)[0] == 200
    assert form(server, "/detect", fields, origin="http://localhost:1")[0] == 403
    assert form(server, "/detect", fields, origin="null")[0] == 403


def test_limits_hold_for_other_clients(server):
    libre, other = {"source": "en", "target": "de"}, {"target_lang": "DE"}
    for body, path, name in (
        ({"q": "ein " * 101, **libre}, "/translate", "error"),
        ({"text": ["ein " * 101], **other}, "/v2/translate", "message"),
    ):
        status, answer = server.post(body, path)
        assert status == 413
        assert answer[name] == "sentences[0]: expected at most 400 characters, got 404; split it"
    assert server.post({"q": ["ein"] * 51, **libre})[0] == server.post({"q": ["ein"] * 51}, "/detect")[0] == 413
    assert server.post({"q": "<b>a</b>" * 49 + "a" * 8, **libre, "format": "html"})[0] == 200
    assert server.post({"q": "a<b>" * 51, **libre, "format": "html"})[0] == 413
    assert server.post(b'{"q": "' + b"x" * 100_000 + b'"}')[0] == 413


INVALID = [
    ({"q": "ein", "source": "en"}, "target: Field required"),
    ({"q": [], "source": "en", "target": "de"}, "q: Value should have at least 1 item"),
    ({"q": "", "source": "en", "target": "de"}, "q: Value should have at least 1 item"),
    ({"q": 3, "source": "en", "target": "de"}, "q."),
    ({"q": "ein", "source": "en", "target": "de", "format": "xml"}, "format: Input should be 'text' or 'html'"),
    ({"q": "ein", "source": "en", "target": "de", "alternatives": -1}, "alternatives: "),
    (
        {"q": "ein", "source": "en", "target": "de", "sentences": ["ein"], "glossary": []},
        "body: Value error, expected fields of LibreTranslate beside q, got glossary, sentences; send the texts as sentences",
    ),
    ({"q": "ein", "source": "xx", "target": "de"}, "source, target: expected languages of a system (en into de), got 'from xx"),
]


@pytest.mark.parametrize(("body", "problem"), INVALID)
def test_values_that_are_not_valid_have_status_400(server, body, problem):
    status, answer = server.post(body)
    assert status == 400
    assert answer["error"].startswith(problem)


def test_both_probes_answer(server):
    assert json.loads(server.request("GET", "/health")[2]) == {"status": "ok"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/translate", '{"sentences": [%s1]}'),
        ("/translate", '{"q": [%s1], "source": "en", "target": "de"}'),
        ("/translate", '{"sentences": ["a"], "glossary": [%s1]}'),
        ("/detect", '{"q": [%s1]}'),
        ("/v2/translate", '{"target_lang": "DE", "text": [%s1]}'),
        ("/translate", '{"sentences": ["a"], "search": {%s"x": 1}}'),
        ("/v2/translate", '{"target_lang": "DE", %s"x": 1}'),
    ],
)
def test_the_first_of_many_values_that_are_not_valid_is_named(server, path, body):
    """All of 500,000 took 6 s, in which the server answered nobody."""
    entries = "".join(f'"k{number}": 1, ' for number in range(400)) if "x" in body else "1, " * 400
    with pytest.raises(ValidationError) as caught:
        REQUESTS[path].validate_json(body % entries)
    assert caught.value.error_count() <= 3
    assert server.request("POST", path, body % entries, {"content-type": "application/json"})[0] in (400, 422)


def test_a_form_of_many_fields_is_no_list_of_languages(server):
    status, _, answer = server.request("GET", "/v2/languages", "&".join(f"a{number}=b" for number in range(30)), FORM)
    assert status == 400
    assert "expected a form with the field type" in json.loads(answer)["message"]
