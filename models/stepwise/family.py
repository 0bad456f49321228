"""The functions of the stepwise family on networks."""

from models.family import Family
from models.stepwise.decode import StepwiseDecoder, load
from models.stepwise.loss import loss
from models.stepwise.model import build, fits

FAMILY = Family(build, loss, fits, load, StepwiseDecoder)
