"""A system as a model of MLflow, for `mlflow models serve`."""

from __future__ import annotations

from typing import Any

import mlflow

import fewstep


class Translator(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """A model that translates lines with its system's default search."""

    def load_context(self, context: Any) -> None:
        """Load the system."""
        self.system = fewstep.load(context.artifacts["system"])

    def predict(self, context: Any, model_input: list[str]) -> list[str]:
        """Return the translation of each line."""
        return self.system.translate(model_input)


mlflow.models.set_model(Translator())
