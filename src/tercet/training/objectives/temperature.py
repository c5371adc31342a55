"""What cosines are divided by: given, or trained with everything else."""

import math

import torch
from pydantic import PositiveFloat, model_validator
from torch import Tensor, nn

from tercet.encoder.model.tower import Tower
from tercet.storage.settings import Settings


class TemperatureSettings(Settings):
    """What can be chosen about the temperature."""

    temperature: PositiveFloat = 0.05
    """What cosines are divided by."""

    learn_temperature: bool = False
    """Whether the temperature is trained too, from that value on."""

    min_temperature: PositiveFloat = 0.01
    """The least that a trained temperature can become."""

    @model_validator(mode="after")
    def _starts_in_range(self) -> "TemperatureSettings":
        if self.learn_temperature and self.temperature < self.min_temperature:
            raise ValueError(f"temperature {self.temperature:g} is below min_temperature {self.min_temperature:g}")
        return self


class Trained(nn.Module):
    """Towers that are trained, and the temperature, which has no weight decay because it is a scalar.

    Args:
        settings: The temperature.
        **towers: The towers by the names that checkpoints call them.
    """

    def __init__(self, settings: TemperatureSettings, **towers: Tower) -> None:
        super().__init__()
        for name, tower in towers.items():
            self.add_module(name, tower)
        self.settings = settings
        log_scale = torch.tensor(-math.log(settings.temperature))
        self.log_scale = nn.Parameter(log_scale) if settings.learn_temperature else None

    def temperature(self) -> Tensor:
        """Return the temperature; one that the optimizer has made too small is first set to the least there is."""
        if self.log_scale is None:
            return torch.tensor(self.settings.temperature)
        with torch.no_grad():
            self.log_scale.clamp_(max=-math.log(self.settings.min_temperature))
        return torch.exp(-self.log_scale)
