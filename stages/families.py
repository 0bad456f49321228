"""Networks and searches of all families, for the configs of stages."""

from models.aggressive.config import AggressiveConfig, AggressiveSearch
from models.dag.config import DagConfig, DagSearch
from models.lattice.config import LatticeModelConfig, LatticeSearch
from models.stepwise.config import StepwiseConfig, StepwiseSearch

Network = StepwiseConfig | DagConfig | LatticeModelConfig | AggressiveConfig
PenalisedSearch = StepwiseSearch | DagSearch
"""Searches with a length penalty."""
Search = PenalisedSearch | LatticeSearch | AggressiveSearch
