"""The inputs of trainings on a toy language, and an undisturbed training."""

import pytest

from stages import encode, train, vocabulary
from stages.artifacts import Tokens, Vocabulary
from stages.train import TrainInputs
from tests.stages.steps import context_in
from tests.stages.train.toy_training import config_of, make_text


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    root = tmp_path_factory.mktemp("inputs")
    text, held_out = make_text(root / "text", 150), make_text(root / "held-out", 20, offset=1000)
    vocabulary.STAGE.run(vocabulary.VocabularyInputs(text), vocabulary.VocabularyConfig(size=38), context_in(root / "vocabulary"))
    pieces = Vocabulary(root / "vocabulary", "vocabulary")
    for name, part in (("tokens", text), ("validation", held_out)):
        encode.STAGE.run(encode.EncodeInputs(part, pieces), encode.EncodeConfig(), context_in(root / name))
    tokens = (Tokens(root / "tokens", "tokens"),)
    return TrainInputs(tokens, Tokens(root / "validation", "validation"), held_out, pieces)


@pytest.fixture(scope="session")
def straight(inputs, tmp_path_factory):
    """Run an undisturbed training."""
    directory = tmp_path_factory.mktemp("straight")
    train.STAGE.run(inputs, config_of(), context_in(directory))
    return directory
