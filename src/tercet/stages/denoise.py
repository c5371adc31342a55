"""The stage `denoise`: a T5 learns its language by filling gaps in texts (span corruption)."""

from typing import Any, Literal, Self

import torch
from pydantic import model_validator

from tercet.encoder.engine import resolve_precision
from tercet.encoder.generator import load_generator, save_generator
from tercet.files import atomic_folder
from tercet.objectives.denoise import Denoise, DenoiseSettings
from tercet.objectives.gather import Gather
from tercet.stages.stage import Context, Kind
from tercet.stages.texts import open_texts
from tercet.stages.trained import LearningSettings, other_dropout, train_on_rows


class DenoiseStage(LearningSettings, DenoiseSettings):
    """The settings of a denoising stage. Its output is a T5, which has no readout yet."""

    precision: Literal["exact", "fast", "auto"] = "exact"
    """`exact` (fp32), `fast` (bf16 by autocast; weights in fp32), or `auto` (`fast` where the machine has bf16)."""

    @model_validator(mode="after")
    def _no_encoder(self) -> Self:
        if self.evaluate is not None or self.trajectory is not None or self.lora is not None:
            raise ValueError("denoising has no evaluate, trajectory or lora: what comes out is no encoder yet")
        return self


class _Denoise:
    def __init__(self, settings: DenoiseStage, context: Context) -> None:
        self._settings, self._context = settings, context
        self.inputs = settings.describe(context)
        self._rows = open_texts(settings.rows, context)
        self.inputs["rows"] = self._rows.describe()

    def run(self) -> dict[str, Any]:
        settings, context, processes = self._settings, self._context, self._context.processes
        model, tokenizer = load_generator(**settings.placed(context))
        model.to(processes.device)  # type: ignore[arg-type]  # its decorator hides the argument
        precision = resolve_precision(settings.precision, model_type=model.config.model_type, device=processes.device)
        objective = Denoise(
            model,
            tokenizer,
            settings,
            dtype=torch.bfloat16 if precision == "fast" else None,
            gather=Gather() if processes.world > 1 else None,
        )
        with other_dropout(model, settings.dropout):
            result = train_on_rows(objective, self._rows, settings=settings, context=context)
        if processes.is_main:
            with atomic_folder(context.folder / KIND.output) as folder:
                save_generator(model, tokenizer, folder)
        return {"num_steps": result.num_steps}


KIND = Kind(DenoiseStage, _Denoise, output="model")
