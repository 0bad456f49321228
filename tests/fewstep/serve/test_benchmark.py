"""The load test and the soak, for a moment, with tiny systems."""

import pytest

from benchmarks.record import load as load_table
from benchmarks.serving import load, soak
from benchmarks.serving.load import Load, Target, drive
from benchmarks.serving.servers import fewstep_server

TEXT = "ein hund läuft\nzwei katze springt schnell blau\ndrei\n"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text(TEXT)
    return path


def rows(path):
    table = load_table(path)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_clients_count_answers_and_errors(server):
    target = Target(f"{server.url}/translate", lambda line: {"systems": ["graph"], "sentences": [line]})
    before = server.metric('fewstep_requests_total{path="/translate",status="200"}')
    found = drive(target, TEXT.splitlines(), clients=3, seconds=0.5)
    assert len(found.milliseconds) == server.metric('fewstep_requests_total{path="/translate",status="200"}') - before > 3
    assert not found.errors
    assert set(drive(target, ["ein " * 200], clients=1, seconds=0.5).errors) == {"413"}
    gone = Target("http://127.0.0.1:9/translate", lambda line: {"sentences": [line]})
    assert set(drive(gone, ["ein"], clients=1, seconds=0.5).errors) == {"ClientConnectorError"}


def test_percentiles_are_those_of_the_answers():
    found = Load(2.0, [float(number) for number in range(101)])
    assert [found.percentile(share) for share in (0.5, 0.95, 0.99)] == [50, 95, 99]
    assert found.rate == 50.5
    assert str(Load(1.0).percentile(0.5)) == "nan"


def test_a_server_that_does_not_start_is_reported(made):
    with pytest.raises(RuntimeError, match="expected the directory of a system"), fewstep_server([made["small"].parent], 1):
        pass


def test_a_table_has_a_row_for_each_system_and_number_of_clients(made, text, tmp_path):
    arguments = [str(made["small"]), str(made["graph"]), "--text", str(text), "--clients", "1", "2", "--seconds", "0.5"]
    more = ["--rounds", "2", "--without-ctranslate2", "--without-mlflow", "--json", str(tmp_path / "load.json")]
    assert load.main([*arguments, *more]) == 0
    found = rows(tmp_path / "load.json")
    expected = [(name, clients) for clients in ("1", "2") for name in ("small greedy", "graph greedy")]
    assert [(row["server"], row["clients"]) for row in found] == expected
    assert all(0 < float(row["p50 ms"]) <= float(row["p95 ms"]) <= float(row["p99 ms"]) for row in found)
    assert {row["errors"] for row in found} == {"0"}


@pytest.mark.exhaustive
def test_ctranslate2_and_mlflow_serve_the_same_system(made, text, tmp_path):
    arguments = [str(made["small"]), "--text", str(text), "--clients", "2", "--seconds", "2", "--rounds", "1"]
    assert load.main([*arguments, "--json", str(tmp_path / "load.json")]) == 0
    found = rows(tmp_path / "load.json")
    assert [row["server"] for row in found] == ["small greedy", "small greedy, CTranslate2", "small greedy, MLflow"]
    assert {row["errors"] for row in found} == {"0"}


@pytest.mark.slow
def test_a_soak_finds_no_wrong_answers(made, text, tmp_path):
    systems = [str(directory) for directory in made.values()]
    more = ["--minutes", "0.1", "--clients", "4", "--text", str(text), "--json", str(tmp_path / "s.json")]
    assert soak.main([*systems, *more]) == 0
    (row,) = rows(tmp_path / "s.json")
    assert row["wrong answers"] == "0"
    assert float(row["most"]) >= float(row["end"]) > 20
    answers = load_table(tmp_path / "s.json").figures["answers"]
    assert set(answers) == {"translate", "explain", "invalid", "given up"}


def test_growth_is_that_of_the_second_half():
    readings = [(float(second), 100.0 + 5 * second) for second in range(60)]
    readings += [(float(second), 400.0 + second / 60) for second in range(60, 120)]
    assert soak.growth(readings) == pytest.approx(1.0)
