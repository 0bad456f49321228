"""The `stepwise` family, as its callers see it."""

from models.family import Family
from models.stepwise.config import StepwiseConfig, StepwiseSearch
from models.stepwise.decode import StepwiseDecoder, load
from models.stepwise.loss import loss
from models.stepwise.model import build, fits

FAMILY = Family(build, loss, fits, load, StepwiseDecoder)
