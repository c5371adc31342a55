"""The tower: a transformer and its head. Token ids go in, one vector a text comes out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tercet.encoder.model.arrays import LEAST_LENGTH
from tercet.encoder.model.onestep import first_decoder_output
from tercet.encoder.model.readouts import READOUTS, T5_FAMILY, When

if TYPE_CHECKING:
    from transformers import PreTrainedModel, T5Model


class Dense(nn.Module):
    """A linear layer and an activation on the vector, as sentence-transformers' module of that name."""

    ACTIVATIONS: ClassVar[dict[str, Callable[[Tensor], Tensor]]] = {"identity": lambda x: x, "tanh": torch.tanh}

    def __init__(self, in_width: int, out_width: int, *, bias: bool, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(in_width, out_width, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Map [n, in_width] to [n, out_width]."""
        return self.ACTIVATIONS[self.activation](self.linear(x))


class Head(nn.Module):
    """What makes a vector of the transformer's hidden states: readout, optional MLP, dense layers, normalisation.

    Args:
        readout: A name in READOUTS.
        in_width: The transformer's width.
        mlp: The dense layer of `cls-mlp`, or None.
        mlp_when: Whether the MLP is used always or in training only.
        dense: What follows, usually nothing or one projection without bias.
        normalize: Whether vectors are scaled to length 1, in fp32.
    """

    def __init__(
        self,
        readout: str,
        in_width: int,
        *,
        mlp: Dense | None = None,
        mlp_when: When = "always",
        dense: list[Dense] | None = None,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.readout = readout
        self.in_width = in_width
        self.mlp = mlp
        self.mlp_when = mlp_when
        self.dense = nn.ModuleList(dense or [])
        self.normalize = normalize

    @property
    def dense_layers(self) -> list[Dense]:
        """The dense layers after the readout and its MLP."""
        return cast(list[Dense], list(self.dense))

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self._width(with_mlp=self.mlp_when == "always")

    @property
    def training_width(self) -> int:
        """How many numbers a vector has in training, where an MLP may be that is not there afterwards."""
        return self._width(with_mlp=True)

    def _width(self, *, with_mlp: bool) -> int:
        layers = [self.mlp, *self.dense_layers] if self.mlp is not None and with_mlp else self.dense_layers
        return layers[-1].linear.out_features if layers else self.in_width

    @contextmanager
    def as_in_training(self) -> Iterator[None]:
        """Use the MLP although it is for training only, while the block runs."""
        before, self.mlp_when = self.mlp_when, "always"
        try:
            yield
        finally:
            self.mlp_when = before

    @property
    def needs_decoder(self) -> bool:
        """Whether the readout is the decoder's first output."""
        return READOUTS[self.readout].pooling == "decoder"

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors of pooled hidden states before normalisation, in fp32."""
        if self.mlp is not None and (self.training or self.mlp_when == "always"):
            x = self.mlp(x)
        for layer in self.dense:
            x = layer(x)
        return x.float()


class Tower(nn.Module):
    """A transformer and its head.

    Args:
        backbone: A transformers model; an encoder-decoder for the readout `encdec-first`, else an encoder.
        head: What makes vectors of its hidden states.
    """

    def __init__(self, backbone: "PreTrainedModel", head: Head) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    @property
    def config(self) -> dict[str, Any]:
        """The transformer's configuration."""
        return self.backbone.config.to_dict()

    @property
    def device(self) -> torch.device:
        """Where the transformer is."""
        return next(self.backbone.parameters()).device

    def weights(self) -> dict[str, Tensor]:
        """Return the transformer's parameters by name."""
        return dict(self.backbone.named_parameters())

    def state(self) -> object:
        """Return something that is another thing after weights or configuration have changed."""
        return str(self.backbone.config), [(p.data_ptr(), p._version) for p in self.backbone.parameters()]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vectors [n, width] of padded token ids [n, num_tokens]."""
        x = self.raw(input_ids, attention_mask)
        return unit_length(x) if self.head.normalize else x

    def raw(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vectors before normalisation, in fp32."""
        x: Tensor = self.head(self.read(input_ids, attention_mask))
        return x

    def read(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the readout of the transformer, before the head's layers."""
        readout = READOUTS[self.head.readout]
        encoder: nn.Module = self.backbone.get_submodule("encoder") if self.has_decoder else self.backbone
        deep = readout.layers != (-1,)
        output = encoder(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=deep)
        hidden: Tensor = output.last_hidden_state
        if deep:
            hidden = torch.stack([output.hidden_states[layer] for layer in readout.layers]).mean(0)
        if readout.pooling == "decoder":
            return first_decoder_output(cast("T5Model", self.backbone), hidden, attention_mask)
        if readout.pooling == "first":
            return hidden[:, 0]
        weight = attention_mask[..., None].to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1)

    @property
    def has_decoder(self) -> bool:
        """Whether the transformer is an encoder-decoder."""
        return hasattr(self.backbone, "decoder") and self.backbone.config.model_type in T5_FAMILY


def unit_length(vectors: Tensor) -> Tensor:
    """Scale vectors to length 1."""
    return F.normalize(vectors, dim=-1, eps=LEAST_LENGTH)


def first_bad_layer(tower: Tower, input_ids: Tensor, attention_mask: Tensor) -> str:
    """Run the tower once more and return the name of the first layer whose output is not finite."""
    names: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and output.is_floating_point() and not bool(output.isfinite().all()):
                names.append(name)

        return hook

    hooks = [module.register_forward_hook(watch(name)) for name, module in tower.named_modules() if name]
    try:
        tower.raw(input_ids, attention_mask)
    finally:
        for handle in hooks:
            handle.remove()
    return names[0] if names else "the readout"
