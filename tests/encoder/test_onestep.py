"""The one-step decoder equals the transformers forward, and never makes keys or values for all tokens."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import MT5Config, MT5Model, T5Config, T5Model, UMT5Config, UMT5Model

from tercet.encoder.model.onestep import first_decoder_output

# The inner width (3 x 20 = 60) differs from every other width, so that a tensor of that size gives keys away.
SHAPE = {"vocab_size": 50, "d_model": 32, "d_kv": 20, "num_heads": 3, "d_ff": 48, "decoder_start_token_id": 0}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

MODELS = {
    "v1.0": lambda: T5Model(T5Config(**SHAPE, num_layers=2, num_decoder_layers=3)),
    "v1.0, one layer": lambda: T5Model(T5Config(**SHAPE, num_layers=1, num_decoder_layers=1)),
    "v1.1": lambda: T5Model(T5Config(**SHAPE, **GATED, num_layers=2, num_decoder_layers=4)),
    "mT5": lambda: MT5Model(MT5Config(**SHAPE, num_layers=2, num_decoder_layers=2)),
    "umT5": lambda: UMT5Model(UMT5Config(**SHAPE, num_layers=2, num_decoder_layers=2)),
}


def make(kind: str):
    torch.manual_seed(7)
    model = MODELS[kind]().eval()
    for name, parameter in model.named_parameters():
        if "layer_norm" in name:  # ones would hide a forgotten weight
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def padded_batch():
    ids = torch.randint(3, 50, (4, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[1] * n + [0] * (9 - n) for n in (9, 5, 1, 7)])
    return ids * mask, mask


def reference(model, ids, mask):
    start = torch.zeros((len(ids), 1), dtype=torch.long)
    return model(input_ids=ids, attention_mask=mask, decoder_input_ids=start).last_hidden_state[:, 0]


def one_step(model, ids, mask):
    encoded = model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    return first_decoder_output(model, encoded, mask)


@pytest.mark.parametrize("kind", MODELS)
def test_the_output_equals_the_transformers_forward(kind):
    model, (ids, mask) = make(kind), padded_batch()
    with torch.no_grad():
        torch.testing.assert_close(one_step(model, ids, mask), reference(model, ids, mask), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", MODELS)
def test_the_gradients_equal_the_transformers_forward(kind):
    ours, (ids, mask) = make(kind), padded_batch()
    theirs = copy.deepcopy(ours)
    weight = torch.randn(32, generator=torch.Generator().manual_seed(2))
    (one_step(ours, ids, mask) @ weight).sum().backward()
    (reference(theirs, ids, mask) @ weight).sum().backward()
    num_compared = 0
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if other.grad is None or ("decoder" in name and not other.grad.any()):
            assert mine.grad is None or not mine.grad.any(), name
            continue
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-4, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
        num_compared += 1
    assert num_compared > 20


def test_dropout_works_in_training_and_changes_the_output():
    model, (ids, mask) = make("v1.0"), padded_batch()
    model.train()
    assert not torch.allclose(one_step(model, ids, mask), one_step(model, ids, mask))


def test_dropout_has_the_same_mean_and_spread_as_in_the_transformers_forward():
    model, (ids, mask) = make("v1.0"), padded_batch()
    model.train()
    encoded = model.encoder(input_ids=ids[:1], attention_mask=mask[:1]).last_hidden_state.detach()
    encoded, mask = encoded.expand(8000, -1, -1), mask[:1].expand(8000, -1)
    with torch.no_grad():
        ours = first_decoder_output(model, encoded, mask)
        start = torch.zeros((8000, 1), dtype=torch.long)
        theirs = model.decoder(
            input_ids=start, encoder_hidden_states=encoded, encoder_attention_mask=mask
        ).last_hidden_state[:, 0]
    error = (theirs.std(0) * (2 / 8000) ** 0.5).clamp(min=1e-6)
    assert ((ours.mean(0) - theirs.mean(0)) / error).abs().max() < 5
    torch.testing.assert_close(ours.std(0), theirs.std(0), rtol=0.08, atol=0.01)


class Sizes(TorchDispatchMode):
    """Records the last dimension and the number of rows of every tensor that is made."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        if isinstance(output, torch.Tensor):
            self.seen.add((output.numel(), tuple(output.shape)))
        return output


@pytest.mark.parametrize(("forward", "expected"), [(first_decoder_output, False), (None, True)])
def test_no_keys_or_values_are_made_for_all_tokens(forward, expected):
    """The transformers forward is the control: there, they are seen."""
    model = make("v1.1")
    encoded, mask = torch.randn(2, 11, 32), torch.ones(2, 11, dtype=torch.long)
    with torch.no_grad(), Sizes() as sizes:
        if forward is not None:
            forward(model, encoded, mask)
        else:
            start = torch.zeros((2, 1), dtype=torch.long)
            model.decoder(input_ids=start, encoder_hidden_states=encoded, encoder_attention_mask=mask)
    keys = 2 * 11 * 60
    assert (keys in {num for num, _ in sizes.seen}) == expected
