"""Folders of models, sent to the machines of a cluster with the work: no machine asks the hub, or needs its token."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tercet.storage.files import make_folder
from tercet.storage.user_cache import cache_folder, cached_folder


@dataclass(frozen=True)
class SentFolder:
    """The files of a folder; arrays of bytes are not copied on their way."""

    files: dict[str, NDArray[np.uint8]]
    sha256: str

    @classmethod
    def of(cls, folder: Path, *, of: Callable[[Path], bool]) -> "SentFolder":
        """Read those files of a folder that `of` chooses."""
        files, digest = dict[str, NDArray[np.uint8]](), hashlib.sha256()
        for file in sorted(each for each in folder.rglob("*") if each.is_file() and of(each)):
            name = file.relative_to(folder).as_posix()
            files[name] = np.fromfile(file, np.uint8)
            digest.update(f"{name}\0{len(files[name])}\0".encode())
            digest.update(files[name].data)
        return cls(files, digest.hexdigest())

    def unpack(self) -> Path:
        """Return where the folder is on this machine; it is written there by the first who asks."""
        return cached_folder(cache_folder() / "sent" / self.sha256, self._write)

    def _write(self, folder: Path) -> None:
        for name, content in self.files.items():
            make_folder((folder / name).parent)
            content.tofile(folder / name)
