"""Tests of parameters of MLflow runs."""

from pipeline.tracking.tags_and_params import parameters


def test_parameters_are_flat_and_masked() -> None:
    config = {"a": {"b": 1, "c": None, "d": {}}, "e": ["http://u:p@h", 2], "n+": True}
    assert parameters(config) == {"a.b": "1", "a.c": "null", "a.d": "{}", "e": '["http://***@h", 2]', "n_": "true"}
