"""Encoder-decoders of transformers as teachers, against `generate` on single sentences."""

import json
from pathlib import Path

import pytest

from stages.artifacts import ExternalFile
from stages.errors import DataError
from stages.external import ExternalConfig, ExternalInputs, TransformersOptions
from stages.external.run import run
from stages.external.transformers_model import TransformersLines
from tests.models.imports.marian_networks import LINES
from tests.stages.steps import context_in, rows_of, write_text

transformers = pytest.importorskip("transformers", reason="transformers is not installed (pip install transformers)")


@pytest.fixture(scope="module")
def m2m100(tmp_path_factory):
    """Return the directory of a random M2M-100 of a few thousand weights, with a tokeniser."""
    import torch
    from sentencepiece import SentencePieceTrainer

    folder = tmp_path_factory.mktemp("m2m100")
    SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 20), model_prefix=str(folder / "spm"), vocab_size=40, hard_vocab_limit=False, minloglevel=2
    )
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor(model_file=str(folder / "spm.model"))
    names = ["<s>", "<pad>", "</s>", "<unk>", *(pieces.id_to_piece(index) for index in range(3, pieces.get_piece_size()))]
    (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
    tokenizer = transformers.M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "spm.model"))
    torch.manual_seed(3)
    config = transformers.M2M100Config(
        vocab_size=len(names) + len(tokenizer.lang_code_to_id) + 8,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=64,
    )
    model = transformers.M2M100ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() == 2 and "shared" not in name and "embed" not in name:
                weights.normal_(0, 1.0)  # so that outputs depend on more than the token before
    directory = folder / "model"
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def files_of(directory: Path) -> dict[str, ExternalFile]:
    return {path.name: ExternalFile(path, path.name) for path in directory.iterdir()}


def options(**changed) -> TransformersOptions:
    return TransformersOptions(**{"source_language": "en", "target_language": "de", "max_tokens": 12, **changed})


def expected(directory: Path, lines, beam_size, length_penalty, source="en", target="de"):
    """Return what `generate` writes for each line alone."""
    tokenizer = transformers.M2M100Tokenizer.from_pretrained(directory, src_lang=source)
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(directory).eval()
    found = []
    for line in lines:
        ids = model.generate(
            **tokenizer(line, return_tensors="pt", truncation=True, max_length=12),
            forced_bos_token_id=tokenizer.get_lang_id(target),
            num_beams=beam_size,
            length_penalty=length_penalty,
            max_new_tokens=12,
        )
        found.append(" ".join(tokenizer.decode(ids[0][2:], skip_special_tokens=True).split()))
    return found


@pytest.mark.parametrize(("beam_size", "length_penalty"), [(1, 1.0), (4, 0.6)])
def test_a_text_is_translated_in_batches_as_its_sentences_are_alone(m2m100, tmp_path, beam_size, length_penalty):
    text = write_text(tmp_path / "text", [(line, "x") for line in [*LINES, ""]], 3)
    inputs, context = ExternalInputs(text, (), files_of(m2m100)), context_in(tmp_path / "external.partial")
    chosen = options(beam_size=beam_size, length_penalty=length_penalty, batch_sentences=3)
    run(inputs, ExternalConfig(transformers=chosen), context)
    found = {row["id"]: row["target"] for row in rows_of(context.directory)}
    alone = expected(m2m100, LINES, beam_size, length_penalty)
    assert len(set(alone)) > 2, "the network is not trivial"
    assert found == {number: line for number, line in enumerate(alone) if line}


def test_languages_choose_the_tokens_of_both_sides(m2m100):
    found = {
        (source, target): list(
            TransformersLines(
                files_of(m2m100), options(source_language=source, target_language=target, beam_size=1), device="cpu", threads=1
            ).translate(LINES)
        )
        for source, target in (("en", "de"), ("en", "fr"), ("fr", "de"))
    }
    for (source, target), lines in found.items():
        assert lines == expected(m2m100, LINES, 1, 1.0, source, target)
    assert found["en", "de"] != found["en", "fr"]


@pytest.mark.parametrize("key", ["source_language", "target_language"])
def test_an_unknown_language_is_named(m2m100, key):
    with pytest.raises(
        DataError, match=rf"teacher\.{key}: expected a language of the tokeniser, such as eng_Latn or en, got 'xx_Y'"
    ):
        TransformersLines(files_of(m2m100), options(**{key: "xx_Y"}), device="cpu", threads=1)


def test_other_directories_are_errors_of_the_user(m2m100, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match=r"teacher\.transformers: .*: expected a tokeniser, got"):
        TransformersLines(files_of(tmp_path), options(), device="cpu", threads=1)
    for path in m2m100.iterdir():
        if path.suffix != ".safetensors":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(DataError, match=r"teacher\.transformers: .*: expected an encoder-decoder with safetensors, got"):
        TransformersLines(files_of(tmp_path), options(), device="cpu", threads=1)
