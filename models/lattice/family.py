"""The functions of the lattice family on networks."""

from models.family import Family
from models.lattice.decode import LatticeDecoder, load
from models.lattice.loss import loss
from models.lattice.model import build, fits

FAMILY = Family(build, loss, fits, load, LatticeDecoder)
