"""The verb `data fetch`: bring evaluation data from the hub into the layout that the tasks read."""

import difflib
import hashlib
import tarfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tercet.data.sets.catalogue import FILES, NOT_ON_HUB, ArchiveFile, HubDataset, HubFile, RowsFile
from tercet.data.sets.folder import named_data_root
from tercet.data.sets.groups import DEV_SETS, GROUPS
from tercet.errors import InputError, OutputError, SettingError
from tercet.storage.extras import require
from tercet.storage.files import atomic_write, check_writable, make_folder, read_json, write_json
from tercet.storage.hashing import sha256_of_file
from tercet.storage.hub import commit_of, hub_errors, no_bars
from tercet.storage.locks import hold
from tercet.storage.progress import progress_bar

CHECKSUMS = "checksums.json"


@dataclass
class Fetched:
    """What a fetch did.

    Attributes:
        written: Files that are new or were replaced.
        unchanged: Files that were there already, with the same content.
        notes: Row counts that are not the known ones.
        not_on_hub: Tasks that were asked for and are not on the hub, and what to do instead.
    """

    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_on_hub: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it."""
        return asdict(self)


def fetch(
    names: str | Sequence[str], *, data: str | Path | None = None, force: bool = False, progress: bool = False
) -> Fetched:
    """Fetch the data of tasks from the hub.

    Each file is written whole or not at all, and is entered in `checksums.json` with its SHA-256 and where it is from.

    Args:
        names: Names of tasks and groups.
        data: The data folder; `$TERCET_DATA/eval` where None. It is made where it is not there.
        force: Whether files that are there with other content are replaced.
        progress: Whether a bar is shown.

    Raises:
        SettingError: A name is unknown, nothing of it is on the hub, or the package `datasets` is not installed.
        InputError: The hub or the network did not give a dataset; what was fetched before stays.
        OutputError: A file is there with other content (all else is fetched), or cannot be written.
    """
    tasks = choose_data(names)
    report = Fetched(not_on_hub={task: NOT_ON_HUB[task] for task in tasks if task in NOT_ON_HUB})
    wanted = [task for task in tasks if task in FILES]
    if not wanted:
        reasons = "; ".join(f"{task} ({reason})" for task, reason in report.not_on_hub.items())
        raise SettingError(f"not on the hub: {reasons}.")
    root, hub, done, different = _data_root(data), _Hub(), set[str](), list[str]()
    _recorded(root)
    total = len({file.path for task in wanted for file in FILES[task]})
    with progress_bar("fetching files", total=total, unit="files", enabled=progress) as advance, no_bars():
        for task in wanted:
            files = [file for file in FILES[task] if file.path not in done]
            contents = {}
            for file in files:
                advance(0, note=file.dataset.id)
                contents[file.path] = hub.content(file)
                advance(1)
            done |= contents.keys()
            others = [path for path in contents if _is_other(root / path, contents[path][0])]
            if others and not force:
                different += others
                continue
            _write(root, files, contents, hub, report)
    if different:
        raise OutputError(
            f"{root}: has other content than the hub in {', '.join(different)}. "
            "Use --force to replace it, or another folder."
        )
    return report


def choose_data(names: str | Sequence[str]) -> list[str]:
    """Return the tasks that names of tasks and groups stand for, each once and in the order given.

    Raises:
        SettingError: A name is unknown; the message lists near matches.
    """
    chosen: dict[str, None] = {}
    given = [names] if isinstance(names, str) else names
    for name in [part.strip() for names in given for part in names.split(",")]:
        known = [*GROUPS, *FILES, *NOT_ON_HUB]
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3) or known
            raise SettingError(f"data {name!r}: there is none of that name. Take one of: {', '.join(near)}.")
        chosen |= dict.fromkeys((*GROUPS.get(name, (name,)), *DEV_SETS.get(name, ())))
    return list(chosen)


class _Hub:
    """The hub, each dataset and archive asked for once."""

    def __init__(self) -> None:
        self._datasets = require("datasets", "hub")
        self._loaded: dict[HubDataset, Any] = {}
        self._commits: dict[HubDataset, str] = {}

    def commit(self, dataset: HubDataset) -> str:
        """Return the commit that a dataset is read at."""
        if dataset not in self._commits:
            self._commits[dataset] = commit_of(dataset.id, dataset.revision)
        return self._commits[dataset]

    def content(self, file: HubFile) -> tuple[bytes, int]:
        """Return the bytes of a file and how many rows it has."""
        return self._member(file) if isinstance(file, ArchiveFile) else self._rows(file)

    def _rows(self, file: RowsFile) -> tuple[bytes, int]:
        dataset = file.dataset
        if dataset not in self._loaded:
            commit = self.commit(dataset)
            with hub_errors(dataset.id, commit):
                self._loaded[dataset] = self._datasets.load_dataset(dataset.id, dataset.config, revision=commit)
        splits = self._loaded[dataset]
        if file.split not in splits:
            raise InputError(f"{dataset.id}: has no split {file.split!r}. It has: {', '.join(splits)}.")
        rows = splits[file.split]
        numbered = ((f"{dataset.id}:{file.split}:{number}", row) for number, row in enumerate(rows, 1))
        return "".join(f"{line}\n" for line in file.lines(numbered)).encode(), len(rows)

    def _member(self, file: ArchiveFile) -> tuple[bytes, int]:
        import huggingface_hub

        commit = self.commit(file.dataset)
        with hub_errors(file.dataset.id, commit):
            path = huggingface_hub.hf_hub_download(file.dataset.id, file.archive, repo_type="dataset", revision=commit)
        try:
            with tarfile.open(path) as archive:
                stream = archive.extractfile(file.member)
                content = stream.read() if stream else b""
        except (tarfile.TarError, KeyError, EOFError) as error:
            raise InputError(f"{file.dataset.id}: {file.archive} does not give {file.member} ({error}).") from error
        num_lines = content.count(b"\n") + (not content.endswith(b"\n"))
        return content, num_lines - file.header


def _data_root(data: str | Path | None) -> Path:
    root = named_data_root(data)
    if root.exists():
        check_writable(root / CHECKSUMS)
    return root


def _is_other(path: Path, content: bytes) -> bool:
    return path.exists() and (not path.is_file() or sha256_of_file(path) != hashlib.sha256(content).hexdigest())


def _write(
    root: Path, files: list[HubFile], contents: dict[str, tuple[bytes, int]], hub: _Hub, report: Fetched
) -> None:
    entries = {}
    for file in files:
        path, (content, num_rows) = root / file.path, contents[file.path]
        if path.exists() and not _is_other(path, content):
            report.unchanged.append(file.path)
        else:
            make_folder(path.parent)
            with atomic_write(path) as stream:
                stream.write(content)
            report.written.append(file.path)
        if file.num_rows not in (None, num_rows):
            report.notes.append(f"{file.path}: {num_rows:,} rows, {file.num_rows:,} were expected")
        entries[file.path] = {
            "sha256": hashlib.sha256(content).hexdigest(),
            "num_rows": num_rows,
            "dataset": file.dataset.id,
            "config": file.dataset.config,
            "part": file.split if isinstance(file, RowsFile) else f"{file.archive}:{file.member}",
            "revision": hub.commit(file.dataset),
        }
    _record(root, entries)


def _record(root: Path, entries: dict[str, Any]) -> None:
    """Enter files in `checksums.json`; another fetch into this folder waits meanwhile."""
    with hold(root / f".{CHECKSUMS}.lock", wait=True):
        write_json(root / CHECKSUMS, {"files": dict(sorted((_recorded(root) | entries).items()))})


def _recorded(root: Path) -> dict[str, Any]:
    path = root / CHECKSUMS
    if not path.exists():
        return {}
    try:
        return dict(read_json(path, fix="Move it away.")["files"])
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: is not as a fetch writes it. Move it away.") from error
