"""The part of the report on the lattices of systems."""

from __future__ import annotations

from stages.shared.figures.drawing import Colours
from stages.shared.report_parts import Artifacts, Part, recorded_figures, recorded_tables


def show(artifacts: Artifacts, colours: Colours) -> Part:
    """Return the recorded tables, and for each system and text a section with its figures."""
    made = [(text, system, artifact) for text, systems in artifacts.items() for system, artifact in systems.items()]
    return Part(
        tables=[table for _, _, artifact in made for table in recorded_tables(artifact)],
        sections={
            f"Lattices of {system} on {text}": list(recorded_figures(artifact, f"lattice.{system}.{text}."))
            for text, system, artifact in made
        },
    )
