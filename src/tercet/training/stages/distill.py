"""The stage `distill`: an encoder learns to do as its teachers do."""

from pathlib import Path

from tercet.data.rows.columns import RowKind
from tercet.encoder.encoder import Encoder
from tercet.errors import SettingError
from tercet.training.objectives.distill import Distill, DistillSettings
from tercet.training.objectives.gather import Gather
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.teachers import Targets, TeacherList
from tercet.training.stages.texts import different_texts
from tercet.training.stages.trained import Objective, TrainedEncoder, TrainedSettings


class DistillStage(TrainedSettings, DistillSettings):
    """The settings of a stage that learns from teachers."""

    teacher: TeacherList
    """Whose vectors are learned: a model, or a list of them."""

    cache: Path | None = None
    """The folder where teachers' vectors are kept for other stages and runs, too; in the run's own where null."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        return [*super().names(), *(name for teacher in self.teacher for name in teacher.names())]


class _Distill(TrainedEncoder):
    settings: DistillStage
    row_kind: RowKind = "triplets"

    def __init__(self, settings: DistillStage, context: Context) -> None:
        super().__init__(settings, context)
        if self.rows.num_rows is None:
            raise SettingError(f"stages.{context.name}.rows: teachers need all texts beforehand. Set stream: false.")
        self.inputs["teachers"] = [teacher.describe(context) for teacher in settings.teacher]

    def start(self) -> Encoder:
        settings, context, encoder = self.settings, self.context, super().start()
        cache = settings.cache or context.teachers
        self._targets = Targets(
            settings.teacher, width=encoder.dim, context=context, cache=cache, precision=settings.precision
        )
        self._targets.learn(lambda: different_texts(self.rows))
        return encoder

    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        return Distill(encoder, self._targets, self.settings, compute=self.settings, gather=gather)


KIND = Kind(DistillStage, _Distill, output="encoder")
