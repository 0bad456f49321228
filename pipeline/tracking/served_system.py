"""The code of systems that MLflow loads and serves. It is copied into each model, and needs the runtime and MLflow alone."""

from __future__ import annotations

from typing import Any

import mlflow
from pandas import DataFrame

import fewstep


class ServedSystem(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """A system as a function from the column `source` to translations."""

    def load_context(self, context: Any) -> None:
        """Load the system from the model's artifacts."""
        self.system = fewstep.load(context.artifacts["system"])

    def predict(self, context: Any, model_input: DataFrame, params: dict[str, Any] | None = None) -> list[str]:
        """Return the translation of each text in `source`. The parameter `search` names another search than that of the model.

        A search that another engine ran in the pipeline is run by native code, with the same options; outputs may differ in
        near-ties.
        """
        search = self.system.chosen_search((params or {}).get("search") or None)
        native = type(search).from_values({**search.values(), "engine": "auto"})
        return self.system.translate([str(line) for line in model_input["source"]], native)


mlflow.models.set_model(ServedSystem())
