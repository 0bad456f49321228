"""The `lattice` family, as its callers see it."""

from models.family import Family
from models.lattice.decode import LatticeDecoder
from models.lattice.loading import load
from models.lattice.loss import loss
from models.lattice.model import build, fits

FAMILY = Family(build, loss, fits, load, LatticeDecoder)
