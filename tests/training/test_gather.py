"""What processes exchange is where the model is: the processes of GPUs cannot exchange what is on a CPU."""

import pytest
import torch

from tercet.training.loop.processes import like
from tercet.training.objectives.conditional import ConditionalGeneration, Example
from tercet.training.objectives.gather import Gather

ELSEWHERE = torch.device("meta")
"""A device that every machine has and that is not the CPU."""


class Exchange(Gather):
    """Stands in for two processes with equal numbers; remembers where the numbers were."""

    def __init__(self):
        self.devices = []

    def parts(self, own):
        self.devices.append(own.device)
        return [torch.full(own.shape, 3.0)] * 2


def test_a_total_is_exchanged_where_it_is_asked_for_and_comes_back_to_the_cpu():
    exchange = Exchange()
    total = exchange.total(torch.tensor(3.0), device=ELSEWHERE)
    assert (total.item(), total.device.type) == (6.0, "cpu")
    assert exchange.devices == [ELSEWHERE]


@pytest.mark.parametrize("weigh_alike", [False, True])
def test_the_totals_of_generation_are_exchanged_where_the_model_is(weigh_alike):
    class Model(torch.nn.Module):
        device = ELSEWHERE

    class Generation(ConditionalGeneration):
        def examples(self, batch):
            return [Example([1], [2, 3, 4])]

        def _loss(self, examples, *, weigh_alike=False):
            return torch.ones((), requires_grad=True)

    exchange = Exchange()
    result = Generation(Model(), max_batch_tokens=9, weigh_alike=weigh_alike, gather=exchange).step([])
    assert result.metrics["num_targets"] == 6.0
    assert set(exchange.devices) == {ELSEWHERE}


@pytest.mark.parametrize("value", [torch.tensor(3.0), torch.ones(2)])
def test_what_a_checkpoint_holds_goes_where_the_parameter_is(value):
    assert like(value, torch.empty(2, device=ELSEWHERE)).device == ELSEWHERE
