"""Span corruption against a written-out copy of its rule, and a step against the loss of transformers."""

import pytest
import torch

from tercet import ModelError
from tercet.data.rows.kinds import Text, Triplet
from tercet.encoder.generator import load_generator, save_generator
from tercet.training.objectives.denoise import Denoise, DenoiseSettings, corrupt, sentinel_ids

SENTINELS = [999, 998, 997, 996, 995, 994, 993]


def joined(source, target):
    """Put what was taken back into the gaps."""
    spans, current = {}, None
    for token in target:
        if token in SENTINELS:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    return [token for place in source for token in spans.get(place, [place])]


@pytest.mark.parametrize("num", [2, 3, 10, 64, 137])
def test_what_was_taken_fits_into_the_gaps_and_is_the_wanted_share(num):
    for seed in range(30):
        torch.manual_seed(seed)
        source, target = corrupt(range(num), noise_density=0.15, mean_span=3, sentinels=SENTINELS)
        gaps = [token for token in source if token in SENTINELS]
        assert joined(source, target) == list(range(num))
        assert gaps == [token for token in target if token in SENTINELS] == SENTINELS[: len(gaps)]
        num_taken = max(1, round(num * 0.15))
        assert len(target) - len(gaps) == num_taken
        assert len(gaps) == min(max(1, round(num_taken / 3)), len(SENTINELS))
        assert source[0] == 0 and source[-1] in SENTINELS


def test_every_way_to_cut_spans_is_as_likely_as_the_others():
    counts = {}
    for seed in range(4000):
        torch.manual_seed(seed)
        _, target = corrupt(range(12), noise_density=0.5, mean_span=3, sentinels=SENTINELS)
        second = target.index(SENTINELS[1])
        counts[second - 1] = counts.get(second - 1, 0) + 1  # how many of six tokens the first of two gaps has
    assert counts.keys() == {1, 2, 3, 4, 5}
    assert all(abs(count / 4000 - 0.2) < 0.03 for count in counts.values())


@pytest.mark.parametrize("ids", [[], [5]])
def test_of_a_text_with_one_token_nothing_is_taken(ids):
    assert corrupt(ids, noise_density=0.5, mean_span=3, sentinels=SENTINELS) == (ids, [])


@pytest.fixture
def generator(t5_tokenizer, tmp_path):
    t5_tokenizer.save_pretrained(tmp_path / "tokenizer")

    def make(shape):
        return load_generator(f"random:{shape}", tokenizer=tmp_path / "tokenizer")

    return make


@pytest.mark.parametrize("shape", ["t5-tiny", "t5-1.1-tiny"])
def test_a_step_in_pieces_has_the_gradients_of_transformers_loss(generator, sentences, shape):
    model, tokenizer = generator(shape)
    model.eval()
    settings = DenoiseSettings(max_batch_tokens=40)
    objective = Denoise(model, tokenizer, settings)
    batch = [Text(text) for text in sentences if text]

    torch.manual_seed(7)
    result = objective.step(batch)
    ours = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()

    torch.manual_seed(7)
    pairs = []
    for row in batch:
        ids = tokenizer.encode(row.text, add_special_tokens=False)
        source, target = corrupt(ids, noise_density=0.15, mean_span=3.0, sentinels=sentinel_ids(tokenizer))
        pairs.append(([*source, 1], [*target, 1]))
    total = sum(len(target) for _, target in pairs)
    loss = sum(
        model(input_ids=torch.tensor([source]), labels=torch.tensor([target])).loss * len(target) / total
        for source, target in pairs
    )
    loss.backward()
    assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, atol=1e-5, rtol=1e-4)


def test_a_text_counts_once_in_each_row_whatever_other_rows_have(generator):
    model, tokenizer = generator("t5-tiny")
    rows = [Text("Dogs run."), Triplet("Dogs run.", "A man plays.")]
    examples = Denoise(model, tokenizer, DenoiseSettings()).examples
    torch.manual_seed(7)
    apart = [example for row in rows for example in examples([row])]
    torch.manual_seed(7)
    assert examples(rows) == apart
    assert len(apart) == 3


def test_a_tokenizer_without_sentinels_is_refused(generator, bert_tokenizer):
    model, _ = generator("t5-tiny")
    with pytest.raises(ModelError, match="the tokenizer has no <extra_id_0>"):
        Denoise(model, bert_tokenizer, DenoiseSettings())


@pytest.mark.parametrize("shape", ["t5-tiny", "t5-1.1-tiny"])
def test_a_saved_generator_reads_the_same_again(generator, tmp_path, shape):
    model, tokenizer = generator(shape)
    save_generator(model, tokenizer, tmp_path / "model")
    again, _ = load_generator(str(tmp_path / "model"))
    inputs = {"input_ids": torch.tensor([[5, 6, 7, 1]]), "decoder_input_ids": torch.tensor([[0, 9]])}
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(**inputs).logits, model.eval()(**inputs).logits)
    assert again.config.scale_decoder_outputs == (shape == "t5-tiny")


def test_a_folder_without_a_decoder_or_with_broken_weights_is_refused(tiny, tmp_path):
    tiny("t5").save(tmp_path / "encoder")
    with pytest.raises(ModelError, match=r"weights are missing, decoder\..* first\. Take a whole T5"):
        load_generator(str(tmp_path / "encoder"))
    (tmp_path / "encoder" / "model.safetensors").write_bytes(b"broken")
    (tmp_path / "encoder" / "SHA256SUMS").unlink()
    with pytest.raises(ModelError, match="the weights cannot be read"):
        load_generator(str(tmp_path / "encoder"))
