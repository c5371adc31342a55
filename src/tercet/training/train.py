"""The verb `train`: an encoder by a recipe."""

from collections.abc import Sequence
from pathlib import Path

from tercet.distributed.settings import LOCAL, Engine
from tercet.errors import SettingError
from tercet.storage.texts import several
from tercet.training.pipeline import RunResult, check_tasks, run_recipe
from tercet.training.recipe import Recipe, read_recipe
from tercet.training.sweep import SweepResult, run_sweep


def train(
    recipe: str | Path | Recipe,
    run: str | Path,
    *,
    changes: Sequence[str] = (),
    sweep: Sequence[str] = (),
    data: str | Path | None = None,
    env: Sequence[str] = (),
    dry_run: bool = False,
    force: bool = False,
    loggers: Sequence[str] = (),
    engine: Engine = LOCAL,
    progress: bool = False,
) -> RunResult | SweepResult:
    """Train an encoder by a recipe, and score it where the recipe says so.

    Args:
        recipe: A recipe's file, or a recipe that was read.
        run: The folder for everything. Killed and called again, a run goes on; stages whose settings and inputs have
            not changed are skipped.
        changes: Settings in place of the file's, as `PATH=VALUE`: `seed=3`, `stages.nli.batch=64`.
        sweep: Settings with several values, as `PATH=VALUE,VALUE`: `seed=0,1,2`. Every combination is a run of its own
            in a folder below `run`, and `report` of that folder has means and spreads over seeds.
        data: The folder with the evaluation data; `$TERCET_DATA/eval` where None.
        env: Variables of the environment that the recipe may use besides those that begin with `TERCET_`.
        dry_run: Whether the recipe is only read and checked; `recipe` of the result shows every setting.
        force: Whether the encoder and the results of a finished run of other settings are replaced. What its stages
            made is kept in `kept/`, and comes back when their settings do.
        loggers: Where else the log goes: `tensorboard`, `wandb`, `mlflow`.
        engine: Who embeds and writes for stages that do so (`mine`, `distill`, `parallel`, `synthesize`): this process
            (`local`), or the workers of a cluster (`ray`, or its settings). Training itself is a matter of torchrun.
        progress: Whether bars are shown.

    Raises:
        TercetError: Something about the recipe, its inputs or the training is not as it should be.
    """
    if isinstance(recipe, Recipe):
        if changes or sweep:
            raise SettingError("changes: a recipe that was read has all its settings. Change them when it is read.")
        read = recipe
    elif sweep:
        return run_sweep(
            recipe,
            run,
            several(sweep),
            changes=several(changes),
            data=data,
            env=several(env),
            dry_run=dry_run,
            force=force,
            loggers=loggers,
            engine=engine,
            progress=progress,
        )
    else:
        read = read_recipe(recipe, changes=several(changes), env=several(env), data=data)
    if dry_run:
        check_tasks(read)
        return RunResult((), None, None, read, Path(run))
    return run_recipe(read, run, data=data, force=force, loggers=loggers, engine=engine, progress=progress)
