"""The verb `push`: a model folder to the hub, after all of its files were shown."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tercet.encoder.folder.card import CARD
from tercet.encoder.folder.layout import EXPORT_FILE
from tercet.errors import InputError, OutputError
from tercet.storage.extras import require
from tercet.storage.manifest import MANIFEST, damage_of
from tercet.storage.progress import announce

_HUB = "hub:"


@dataclass(frozen=True)
class Pushed:
    """What was uploaded, or would be."""

    files: dict[str, int]
    """How many bytes each file has, by its name in the folder."""

    name: str
    """What it is called on the hub."""

    url: str | None = None
    """Where it is now; None after a dry run."""

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, as JSON."""
        return {"files": self.files, "name": self.name, "url": self.url}

    def __repr__(self) -> str:
        lines = [f"{size:>15,}  {file}" for file, size in self.files.items()]
        where = f"uploaded to {self.url}" if self.url else f"nothing was uploaded to {self.name} yet"
        return "\n".join([*lines, f"{sum(self.files.values()):>15,}  bytes in {len(self.files)} files: {where}"])


def push(
    folder: str | Path, name: str, *, dry_run: bool = True, private: bool = False, progress: bool = False
) -> Pushed:
    """Upload a model folder to the hub, under a name that every command then takes.

    Args:
        folder: What `train`, `adapt`, `export` or `Encoder.save` wrote: all of it, hidden files aside.
        name: `hub:USER/NAME`. A repository is made where there is none; files of others in it stay.
        dry_run: Whether nothing is uploaded, and the result only says what would be.
        private: Whether a new repository is private.
        progress: Whether it is said that something is uploaded.

    Raises:
        InputError: The folder is no model's, is damaged, or has a link in it that leads out of it.
        OutputError: The hub did not take it.
    """
    path = Path(folder)
    repository = name.removeprefix(_HUB)
    if not name.startswith(_HUB) or repository.count("/") != 1 or not all(repository.split("/")):
        raise InputError(f"{name}: is no name on the hub. Write hub:USER/NAME.")
    files = {file.relative_to(path).as_posix(): file.stat().st_size for file in _files_of(path)}
    if dry_run:
        return Pushed(files, repository)
    require("huggingface_hub", "hub")
    import huggingface_hub

    api, bars = huggingface_hub.HfApi(), cast("Any", huggingface_hub.utils)
    megabytes = sum(files.values()) / 1e6
    announce(f"uploading {len(files)} files, {megabytes:,.1f} MB", enabled=progress)
    try:
        bars.disable_progress_bars()
        repo = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repo.repo_id,
            folder_path=path,
            allow_patterns=[*files],
            commit_message=f"Upload {path.resolve().name} with Tercet",
        )
    except Exception as error:  # the client's own errors, and those of its network libraries
        reason = " ".join(str(error).split())[:300]
        fix = "Check the name, the network and your login: hf auth login."
        raise OutputError(f"{repository}: {api.endpoint} did not take it ({reason}). {fix}") from error
    finally:
        bars.enable_progress_bars()
    return Pushed(files, repo.repo_id, str(repo))


def _files_of(folder: Path) -> Iterator[Path]:
    """Yield the files of a model folder.

    Raises:
        InputError: It is none, or is damaged.
    """
    if not any((folder / name).exists() for name in ("modules.json", "config.json", EXPORT_FILE)):
        raise InputError(f"{folder}: is no model folder. Name one, such as the encoder/ of a run.")
    manifest = folder / MANIFEST
    for file, problem in damage_of(manifest) if manifest.exists() else ():
        if file.name != CARD:
            raise InputError(f"{file}: {problem}. Save the model again, or remove {MANIFEST} if you changed the file.")
    for file in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in file.relative_to(folder).parts) or not file.is_file():
            continue
        if not file.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{file}: is a link to a file elsewhere. Copy the file into the folder, or remove the link."
            )
        yield file
