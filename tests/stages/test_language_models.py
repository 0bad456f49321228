"""Language models behind a server as teachers, against a server that speaks the protocol and has every fault."""

import json
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline.plan.fingerprint import canonical
from stages.errors import DataError, TransientError
from stages.external import ExternalConfig, ExternalInputs, OpenAIOptions
from stages.external import openai_server as protocol
from stages.external.answers import Budget, Journal, ask_all
from stages.external.openai_server import Server
from stages.external.prompts import Answer
from stages.external.run import run
from stages.shared.target_filters import TargetFilter, TargetFilters
from tests.stages.steps import ShuffledWorkers, context_in, rows_of, write_text

LINES = ("one dog runs", "two dogs run", "", "three cats", "four birds", "five")
USAGE = {"prompt_tokens": 30, "completion_tokens": 5}


def whole(text, number=1, usage=USAGE):
    """Return the content of an answer in the protocol of chats."""
    choices = [{"message": {"role": "assistant", "content": text}} for _ in range(number)]
    return json.dumps({"choices": choices, "usage": usage}).encode()


class Model(ThreadingHTTPServer):
    """A server of a language model that writes sources in capitals. `faults` are answers for the next requests of a source: a
    number is a status, bytes are the content of an answer, a function is called with the handler."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.asked, self.bodies, self.headers, self.faults = Counter(), [], [], {}
        self.answer = lambda source, body: whole(source.upper(), body["n"])
        self.running = self.most = 0
        self.lock = threading.Lock()

    def handle_error(self, request, client_address):
        """Say nothing about clients that hang up."""


class Handler(BaseHTTPRequestHandler):
    """A request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        source, server = prompt.split("\n\n", 1)[1], self.server
        with server.lock:
            server.asked[source] += 1
            server.bodies.append(body)
            server.headers.append(dict(self.headers))
            server.running += 1
            server.most = max(server.most, server.running)
            fault = server.faults[source].pop(0) if server.faults.get(source) else None
        try:
            if callable(fault):
                fault(self)
            elif isinstance(fault, int):
                self.reply(fault, b'{"error": {"message": "no, secret-key"}}')
            else:
                self.reply(200, fault or server.answer(source, body))
        finally:
            with server.lock:
                server.running -= 1

    def reply(self, status, content, **headers):
        """Send an answer."""
        self.send_response(status)
        for name, value in {"content-length": str(len(content)), "content-type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def model():
    with serving() as started:
        yield started


@contextmanager
def serving():
    started = Model()
    thread = threading.Thread(target=started.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield started
    finally:
        started.shutdown()
        started.server_close()
        thread.join()


def config(server, **options):
    own = {name: options.pop(name) for name in ("n_best", "choose", "filters") if name in options}
    options = {"url": server.url, "model": "m", "concurrency": 2, "retries": 3, **options}
    return ExternalConfig(openai=OpenAIOptions(**options), source_language="en", target_language="de", shards_per_process=1, **own)


def asker(model, waits=None, **options):
    found = config(model, **options)
    sleep = (lambda seconds: None) if waits is None else waits.append
    return Server(found, sleep)


def text_of(directory, lines=LINES, target="x"):
    return write_text(directory, [(line, target) for line in lines], 2)


def distilled(directory):
    return {row["id"]: row["target"] for row in rows_of(directory)}


def counts(context):
    return {name: number for name, number in json.loads((context.directory / "distill.json").read_text()).items() if number}


@pytest.fixture
def no_waits(monkeypatch):
    """Let requests be repeated at once."""
    monkeypatch.setattr(protocol.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(protocol, "FIRST_WAIT_SECONDS", 0.0)


def test_a_text_is_translated_by_requests_at_the_same_time(model, tmp_path, monkeypatch):
    monkeypatch.setenv("KEY_OF_TEST", "secret-key")
    inputs, context = ExternalInputs(text_of(tmp_path / "text"), ()), context_in(tmp_path / "external.partial")
    run(inputs, config(model, key_variable="KEY_OF_TEST"), context)
    assert distilled(context.directory) == {number: line.upper() for number, line in enumerate(LINES) if line}
    assert counts(context) == {"rows": 6, "kept": 5, "empty": 1}
    assert model.asked == Counter(line for line in LINES if line)
    assert model.most <= 2
    assert {headers["Authorization"] for headers in model.headers} == {"Bearer secret-key"}
    (first, *_) = model.bodies
    assert {name: first[name] for name in ("model", "n", "temperature", "top_p", "max_tokens")} == {
        "model": "m",
        "n": 1,
        "temperature": 0.0,
        "top_p": 1.0,
        "max_tokens": 512,
    }
    assert first["messages"][0]["content"].startswith("Translate the following text from English into German.")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"secret-key" in path.read_bytes() for path in files), "the key is recorded nowhere"


def test_workers_in_other_processes_ask_for_their_shards(model, tmp_path):
    """The parts of a budget go to workers with their shards, whatever their order."""
    inputs = ExternalInputs(text_of(tmp_path / "text"), ())
    context = context_in(tmp_path / "external.partial", workers=ShuffledWorkers(lives=[2]))
    with pytest.raises(KeyboardInterrupt):
        run(inputs, config(model, max_total_tokens=1000), context)
    assert 2 <= sum(model.asked.values()) < 5
    again = context_in(tmp_path / "external.partial", workers=ShuffledWorkers())
    run(inputs, config(model, max_total_tokens=1000), again)
    assert distilled(context.directory) == {number: line.upper() for number, line in enumerate(LINES) if line}
    assert model.asked == Counter(line for line in LINES if line)


def test_the_protocol_of_completions_and_answers_in_json(model):
    model.answer = lambda source, body: json.dumps({"choices": [{"text": source[::-1]}]}).encode()
    answer = asker(model, protocol="completions").ask("{text} a")
    assert answer.outputs == ["a }txet{"], "the text is not filled in again"
    assert answer.prompt_tokens > 0, "estimated, since the server states no usage"
    assert "messages" not in model.bodies[0]
    written = iter(['{"translation": "eins"}', "eins", '{"translation": 1}', "[" * 9999])
    model.answer = lambda source, body: whole(next(written))
    found = [asker(model, output="json").ask("one").outputs for _ in range(4)]
    assert found == [["eins"], [None], [None], [None]]
    assert model.bodies[-1]["response_format"] == {"type": "json_object"}


def drip(handler):
    handler.send_response(200)
    handler.send_header("content-length", "10000")
    handler.end_headers()
    for _ in range(20):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        threading.Event().wait(0.1)


def drip_head(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(20):
        handler.wfile.write(b"x")
        handler.wfile.flush()
        threading.Event().wait(0.1)
    handler.close_connection = True


def cut_off(handler):
    handler.send_response(200)
    handler.send_header("content-length", "10000")
    handler.end_headers()
    handler.wfile.write(whole("half"))
    handler.close_connection = True


def hang_up(handler):
    handler.close_connection = True


FAULTS = {
    "status 429": 429,
    "status 500": 500,
    "status 503": 503,
    "an answer that is not complete after 0.5 s": drip,
    "not complete after 0.5 s": drip_head,
    "IncompleteRead": cut_off,
    "ConnectionError": hang_up,
    "no JSON of the protocol": whole("half")[:-20],
    "no JSON of the protocol (KeyError)": b'{"error": {}}',
    "no JSON of the protocol (TypeError)": b'{"choices": [{"text": 3}]}',
    "no choices": b'{"choices": []}',
    "an answer of more than": b" " * (1 << 20),
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_fault_is_tried_again(model, reason):
    timeout = 0.5 if FAULTS[reason] in (drip, drip_head) else 60
    model.faults["one"] = [FAULTS[reason]]
    assert asker(model, timeout_seconds=timeout).ask("one").outputs == ["ONE"]
    assert model.asked["one"] == 2
    model.faults["one"] = [FAULTS[reason]] * 2
    with pytest.raises(TransientError, match=r"expected an answer, got after 2 tries: .*; the answers so far are kept") as error:
        asker(model, retries=1, timeout_seconds=timeout).ask("one")
    assert reason in str(error.value)
    assert model.asked["one"] == 4


def test_a_server_says_how_long_to_wait(model):
    waits = []
    stated = ("7", "Wed, 21 Oct 2015 07:28:00 GMT", "soon", "1e9", "-3")
    model.faults["one"] = [lambda handler, value=value: handler.reply(429, b"", retry_after=value) for value in stated]
    asker(model, waits, retries=5).ask("one")
    assert waits[0] == 7
    assert waits[3] == protocol.MAX_RETRY_AFTER_SECONDS
    others = [waits[1], waits[2], waits[4]]
    assert all(0.25 * 2**number <= seconds <= 0.5 * 2**number for number, seconds in zip((1, 2, 4), others, strict=True))


@pytest.mark.parametrize(("status", "remedy"), [(401, "check the key"), (404, "check url"), (302, "check url")])
def test_what_no_try_mends_is_an_error_of_the_user(model, monkeypatch, status, remedy):
    monkeypatch.setenv("KEY_OF_TEST", "secret-key")
    model.faults["one"] = [status]
    with pytest.raises(DataError, match=rf"got status {status}: .*{remedy}") as error:
        asker(model, key_variable="KEY_OF_TEST").ask("one")
    assert model.asked["one"] == 1
    assert "secret-key" not in str(error.value)
    monkeypatch.delenv("KEY_OF_TEST")
    with pytest.raises(DataError, match="expected the key in the environment variable KEY_OF_TEST, got none"):
        asker(model, key_variable="KEY_OF_TEST")


def test_nothing_is_asked_twice_after_a_kill(model, tmp_path, no_waits):
    inputs, context = ExternalInputs(text_of(tmp_path / "text"), ()), context_in(tmp_path / "external.partial")
    model.faults["five"] = [500] * 4
    with pytest.raises(TransientError, match="status 500"):
        run(inputs, config(model), context)
    (torn,) = [path for path in context.shard_cache.glob("*.answers") if b"FOUR BIRDS" in path.read_bytes()]
    with torn.open("a") as file:
        file.write('[1, ["FIV')  # a kill in the middle of a line
    run(inputs, config(model, url=model.url + "/"), context)
    assert distilled(context.directory)[5] == "FIVE"
    assert model.asked == Counter({line: 1 for line in LINES if line} | {"five": 5})
    # Another choice of targets, in another step, asks for nothing either.
    other = context_in(tmp_path / "other.partial", shard_cache=context.shard_cache)
    run(inputs, config(model, filters=TargetFilters()), other)
    assert sum(model.asked.values()) == 9
    changed = context_in(tmp_path / "changed.partial", shard_cache=context.shard_cache)
    run(inputs, config(model, temperature=0.5), changed)
    assert sum(model.asked.values()) == 14, "other samples are other answers"


def test_answers_under_way_are_kept_when_another_request_fails(model):
    server, budget = asker(model, retries=0), Budget(config(model).openai)
    model.faults["bad"] = [500]
    found = {}
    answers = ask_all(server, config(model, concurrency=3), dict(enumerate(["a", "bad", "b", "c", "d", "e", "f"])), budget)
    with pytest.raises(TransientError):
        found.update(answers)
    assert {0, 2} <= set(found), "they ran at the same time"
    assert sum(model.asked.values()) == len(found) + 1


def test_a_budget_is_asked_before_it_is_spent(model, tmp_path):
    inputs, context = ExternalInputs(text_of(tmp_path / "text"), ()), context_in(tmp_path / "external.partial")
    for limits, message in (
        ({"max_total_tokens": 100}, "max_total_tokens: expected requests of at most 100 further tokens, got about"),
        (
            {"max_cost": 0.001, "input_price": 20.0, "output_price": 100.0},
            "max_cost: expected requests of at most 0.0010 further",
        ),
    ):
        with pytest.raises(DataError, match=message):
            run(inputs, config(model, **limits), context)
    assert not model.asked
    run(inputs, config(model, max_total_tokens=1000), context)
    assert sum(model.asked.values()) == 5


def test_a_budget_ends_requests_that_take_more_than_estimated(model):
    model.answer = lambda source, body: whole(source, usage={"prompt_tokens": 300, "completion_tokens": 300})
    budget = Budget(OpenAIOptions(url=model.url, model="m", max_total_tokens=1000))
    found = []
    with pytest.raises(DataError, match="max_total_tokens"):
        found += ask_all(asker(model), config(model, concurrency=1), dict(enumerate("abcdef")), budget)
    assert sum(model.asked.values()) == 2
    assert budget.part(0.5)._tokens == -100


def test_parts_of_a_budget_are_its_sum(model):
    options = OpenAIOptions(url=model.url, model="m", max_total_tokens=1000, max_cost=1.0, input_price=1000.0, output_price=2000.0)
    budget = Budget(options, spent=(100, 100))
    assert (budget._tokens, round(budget._money, 9)) == (800, 0.7)
    budget.spend(Answer(["a"], 100, 50))
    assert (budget._tokens, round(budget._money, 9)) == (650, 0.5)
    parts = [budget.part(share) for share in (0.25, 0.75)]
    assert sum(part._tokens for part in parts) == 650
    assert round(sum(part._money for part in parts), 9) == 0.5


def test_outputs_are_chosen_among_those_that_pass(model, tmp_path):
    lines = (
        "the small dog runs",
        "the cat sleeps here",
        "a bird sings now",
        "he refuses to talk",
        "nothing comes",
        "too many words",
    )
    outputs = {
        lines[0]: ["der kleine Hund läuft", "der kleine Hund rennt", "ein Auto", "der kleine Hund läuft"],
        lines[1]: ["Here is the translation: die Katze schläft", "the cat sleeps here", "die Katze schläft hier", ""],
        lines[2]: ["a bird sings now"] * 2,  # fewer than asked for, so that they are asked for again
        lines[3]: ["I'm sorry, but I can't help with that."] * 9,  # more
        lines[4]: [None, "", " ", ""],
        lines[5]: [],
    }

    def answer(source, body):
        found = outputs[source]
        return json.dumps({"choices": [{"message": {"content": text}} for text in found], "usage": USAGE}).encode()

    model.answer = answer
    model.faults[lines[5]] = [400]
    inputs = ExternalInputs(text_of(tmp_path / "text", lines, "der kleine Hund rennt weg"), ())
    chosen = {}
    for choose in ("score", "mbr", "reference"):
        context = context_in(tmp_path / f"{choose}.partial", shard_cache=tmp_path / "cache")
        run(inputs, config(model, n_best=4, temperature=1.0, choose=choose, filters=TargetFilters()), context)
        chosen[choose] = distilled(context.directory)
        assert counts(context) == {"rows": 6, "kept": 2, "copy": 1, "refusal": 1, "empty": 1, "rejected": 1}
    table = json.loads((context.directory / "records/tables/distillation.json").read_text())
    assert ["refused by the teacher", "1", "16.67%"] in table["rows"]
    assert [found[0] for found in chosen.values()] == [outputs[lines[0]][index] for index in (0, 0, 1)]
    assert [found[1] for found in chosen.values()] == ["die Katze schläft hier"] * 3
    assert model.asked == Counter([*lines, lines[2]]), "all three choices are among the same answers"


def test_a_server_that_writes_one_output_is_asked_for_each(model):
    """`transformers serve` and Ollama know no `n`."""
    model.answer = lambda source, body: whole(f"{source} {body['n']}")
    answer = asker(model, n_best=3, temperature=1.0).ask("one")
    assert answer == Answer(["one 3", "one 2", "one 1"], 90, 15)
    model.answer = lambda source, body: whole(source, usage=None)
    whole_estimate = asker(model, temperature=1.0).ask("one").answer_tokens
    assert asker(model, n_best=3, temperature=1.0).ask("one").answer_tokens == 3 * whole_estimate
    model.asked.clear()
    model.faults["one"] = [whole("first"), 400]
    assert asker(model, n_best=3, temperature=1.0).ask("one").outputs == ["first"], "it has been paid"
    assert model.asked["one"] == 2


def test_an_output_that_was_cut_is_no_target(model, tmp_path):
    def answer(source, body):
        ends = {"one dog runs": ["length", "stop"], "three cats": ["length"] * 2}.get(source, ["stop", None])
        choices = [{"message": {"content": f"{source} {end}"}, "finish_reason": end} for end in ends]
        return json.dumps({"choices": choices, "usage": USAGE}).encode()

    model.answer = answer
    inputs, context = ExternalInputs(text_of(tmp_path / "text"), ()), context_in(tmp_path / "external.partial")
    run(inputs, config(model, n_best=2, temperature=1.0), context)
    assert counts(context) == {"rows": 6, "kept": 4, "empty": 1, "cut": 1}
    assert distilled(context.directory)[0] == "one dog runs stop"
    rows = json.loads((context.directory / "records/tables/distillation.json").read_text())["rows"]
    assert ["cut at the longest length", "1", "16.67%"] in rows
    again = context_in(tmp_path / "again.partial", shard_cache=context.shard_cache)
    run(inputs, config(model, n_best=2, temperature=1.0), again)
    assert counts(again) == counts(context), "kept answers know it"
    assert sum(model.asked.values()) == 5


def test_a_server_that_takes_no_text_ends_the_step(model, tmp_path):
    inputs, context = ExternalInputs(text_of(tmp_path / "text"), ()), context_in(tmp_path / "external.partial")
    model.faults = {line: [400] for line in LINES}
    with pytest.raises(DataError, match="expected translations, got for all 2 sources of a shard: status 400: "):
        run(inputs, config(model), context)


REJECTED = [
    ("How are you today, my friend?", "Here is the translation:\nWie geht es dir heute?", "chatter"),
    ("How are you today, my friend?", "Sure! Here's the German translation: Wie geht es dir heute?", "chatter"),
    ("How are you today, my friend?", "Wie geht es dir heute?\n\nLet me know if you need more.", "chatter"),
    ("How are you today, my friend?", "I cannot translate this text.", "refusal"),
    ("How are you today, my friend?", "As an AI, I have no feelings.", "refusal"),
    ("How are you today, my friend?", "how are you today, my friend?", "copy"),
    ("How are you today, my friend?", "Wie", "length"),
    ("How?", "Wie geht es dir denn heute, mein lieber guter Freund?", "length"),
    ("How are you today, my friend?", "Comment allez-vous aujourd'hui, mon cher ami ?", "language"),
    ("How are you today, my friend?", "Как ты сегодня поживаешь, мой друг?", "language"),
    ("How are you today, my friend?", "Wie geht es dir heute, mein Freund?", None),
    ("Here is the plan: we go.", "Hier ist der Plan: wir gehen.", None),
    ("I'm sorry, but I can't come to the party.", "I'm sorry, aber ich kann leider nicht zu der Feier kommen.", None),
    ("OK", "OK", None),
    ("New York", "New York", None),
    ("", "", None),
]


@pytest.mark.parametrize(("source", "target", "reason"), REJECTED)
def test_outputs_that_are_no_translation_are_named_by_reason(source, target, reason):
    assert TargetFilter(TargetFilters(), "de").rejection(source, target) == reason
    off = TargetFilters(refusals=False, copies=False, max_length_ratio=1000.0, max_other_language=1.0)
    assert TargetFilter(off, "de").rejection(source, target) is None


def test_addresses_and_limits_are_not_part_of_fingerprints():
    options = {"model": "m", "prompt": "{text}"}
    one = OpenAIOptions(url="http://a/v1", **options)
    other = OpenAIOptions(
        url="http://b/v1",
        key_variable="K",
        concurrency=1,
        retries=1,
        timeout_seconds=1.0,
        max_total_tokens=9,
        max_cost=1.0,
        input_price=1.0,
        output_price=1.0,
        **options,
    )
    assert canonical(one) == canonical(other) == options


def test_answers_are_kept_by_all_that_they_depend_on(tmp_path, model):
    paths = {
        Journal(tmp_path, config(model, **changed), sources).path
        for changed in ({}, {"model": "n"}, {"prompt": "x {text}"}, {"temperature": 0.1}, {"n_best": 2}, {"max_tokens": 9})
        for sources in (["a"], ["a", "b"])
    }
    assert len(paths) == 12
