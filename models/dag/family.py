"""The functions of the dag family on networks."""

from models.dag.decode import DagDecoder, load
from models.dag.loss import loss
from models.dag.model import build, fits
from models.family import Family

FAMILY = Family(build, loss, fits, load, DagDecoder)
