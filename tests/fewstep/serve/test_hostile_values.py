"""Requests drawn from the server's own OpenAPI document, valid ones and others, are answered as it describes."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "50"))
"""Requests of each operation and mode. The server of the tests answers some 200 a second."""
HOSTILE = st.one_of(
    st.sampled_from([2**31, 2**62, 2**63, -(2**63), 10**400, 1e308, -0.0, True, None, "", [], {}, [[[[]]]], {"": None}]),
    st.text(st.sampled_from("a. \x00\x1b\u0301\u0316\u202e\u2028\ufeff\ud800😀漢"), max_size=300),
    st.text("“a. \n", min_size=300, max_size=399),
)
"""Values of another type or size than any that a client has in mind."""
VALID = {
    "/translate": {"sentences": ["ein hund"]},
    "/explain": {"sentence": "ein hund"},
    "/detect": {"q": "ein hund"},
    "/v2/translate": {"text": ["ein hund"], "target_lang": "DE"},
}
KEYS = (
    *("sentences", "systems", "search", "n_best", "one_sentence_per_line", "refuse_long", "sentence", "system", "unknown\x1b[2J"),
    *("source_language", "target_language", "q", "source", "target", "format", "alternatives", "api_key"),
    *("text", "target_lang", "source_lang", "split_sentences", "tag_handling", "context"),
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("path", [*VALID, "/systems", "/metrics"])  # nothing of a request for /languages can be wrong
def test_requests_of_the_document_are_answered(server, path, mode):
    import schemathesis  # takes seconds, also of the tests that are not slow
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    conformance = (checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance)
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operation = schema[path]["POST" if path in VALID else "GET"]

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def ask(case):
        case.call_and_validate(checks=(not_a_server_error, *conformance))

    ask()
    assert server.request("GET", "/healthz")[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize("path", VALID)
def test_hostile_values_are_answered(server, path):
    @settings(max_examples=4 * EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(changes=st.dictionaries(st.sampled_from(KEYS), st.one_of(HOSTILE, st.lists(HOSTILE, max_size=4)), max_size=4))
    def ask(changes):
        status, answer = server.post(VALID[path] | changes, path)
        assert status in (200, 400, 413, 422), answer
        assert status == 200 or all(0 < len(text) < 2000 for text in answer.values())

    ask()
    assert server.request("GET", "/healthz")[0] == 200
