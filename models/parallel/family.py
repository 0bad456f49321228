"""The functions of the parallel family on networks."""

from models.family import Family
from models.parallel.decode import ParallelDecoder, load
from models.parallel.lengths import fits
from models.parallel.loss import loss
from models.parallel.model import build

FAMILY = Family(build, loss, fits, load, ParallelDecoder)
