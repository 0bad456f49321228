"""The `aggressive` family, as its callers see it."""

from models.aggressive.config import AggressiveConfig, AggressiveSearch
from models.aggressive.decode import DraftDecoder, load
from models.aggressive.loss import loss
from models.aggressive.model import build, fits
from models.family import Family

FAMILY = Family(AggressiveConfig, AggressiveSearch, build, loss, fits, load, DraftDecoder)
