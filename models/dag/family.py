"""The `dag` family, as its callers see it."""

from models.dag.config import DagConfig, DagSearch
from models.dag.decode import DagDecoder, load
from models.dag.graph import fits
from models.dag.loss import loss
from models.dag.model import build
from models.family import Family

FAMILY = Family(build, loss, fits, load, DagDecoder)
