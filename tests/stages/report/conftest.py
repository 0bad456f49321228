"""Inputs of a report, and the report that they give."""

from __future__ import annotations

import pytest

from stages.context import StepContext
from stages.report import STAGE, ReportInputs
from tests.stages.report.made_report import CONFIG, Maker, make_analysed_report
from tests.stages.steps import context_in


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> ReportInputs:
    return Maker(tmp_path_factory.mktemp("inputs")).inputs()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory, inputs: ReportInputs) -> StepContext:
    context = context_in(tmp_path_factory.mktemp("report") / "out")
    STAGE.run(inputs, CONFIG, context)
    return context


@pytest.fixture(scope="session")
def analysed(tmp_path_factory: pytest.TempPathFactory, inputs: ReportInputs) -> StepContext:
    return make_analysed_report(tmp_path_factory.mktemp("analysed"), inputs)
