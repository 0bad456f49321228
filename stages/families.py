"""Networks and searches of all families, for the configs of stages."""

from models.dag.config import DagConfig, DagSearch
from models.stepwise.config import StepwiseConfig, StepwiseSearch

Network = StepwiseConfig | DagConfig
Search = StepwiseSearch | DagSearch
