"""LoRA by peft: small matrices are trained beside frozen ones, and added to them at the end."""

import torch
from pydantic import Field
from torch import nn

from tercet.encoder.model.readouts import T5_FAMILY
from tercet.encoder.model.tower import Tower
from tercet.errors import SettingError
from tercet.storage.extras import require
from tercet.storage.settings import Settings


class LoraSettings(Settings):
    """What can be chosen about LoRA."""

    rank: int = Field(default=8, ge=1)
    """The rank of what is added to a matrix."""

    alpha: int = Field(default=16, ge=1)
    """What is added counts alpha / rank."""

    dropout: float = Field(default=0.0, ge=0, lt=1)
    """The dropout before it."""

    targets: list[str] | None = None
    """The last names of the layers that get it; queries and values where null."""


def add_lora(tower: Tower, settings: LoraSettings, *, seed: int) -> None:
    """Freeze a tower's transformer and put small matrices beside some of its layers.

    Raises:
        SettingError: peft is not installed, or no layer has such a name.
    """
    require("peft", "lora")
    from peft import LoraConfig, inject_adapter_in_model

    backbone = tower.backbone
    usual = ["q", "v"] if backbone.config.model_type in T5_FAMILY else ["query", "value"]
    targets = settings.targets or usual
    # the one-step decoder uses these two as matrices, not as layers
    taken = ("EncDecAttention.k", "EncDecAttention.v")
    names = [
        name
        for name, module in backbone.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] in targets and not name.endswith(taken)
    ]
    if not names:
        raise SettingError(f"lora.targets {targets}: no layer has such a name. The usual ones are {', '.join(usual)}.")
    backbone.requires_grad_(False)
    config = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=settings.dropout, target_modules=names, bias="none"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, backbone)


def merge_lora(tower: Tower) -> None:
    """Add the small matrices to those that they stand beside, and leave no trace of them."""
    from peft.tuners.lora import LoraLayer

    layers: list[tuple[str, LoraLayer]] = [
        (name, module) for name, module in tower.named_modules() if isinstance(module, LoraLayer)
    ]
    for name, layer in layers:
        parent, _, attribute = name.rpartition(".")
        layer.merge(safe_merge=True)
        setattr(tower.get_submodule(parent), attribute, layer.get_base_layer())
    tower.requires_grad_(True)
