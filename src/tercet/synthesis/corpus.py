"""The verb `synthesize`: sentences become triplets, in shards that survive a kill, filtered as often as one likes."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tercet.data.reading.datasets import HUB
from tercet.data.rows.given import given_files
from tercet.distributed.settings import LOCAL, ClusterSettings, Engine, cluster_of
from tercet.errors import InputError, OutputError, SettingError
from tercet.storage.choices import DEFAULT_SYNTHESIZER, Strategy
from tercet.storage.files import (
    atomic_write,
    is_temporary,
    make_folder,
    read_json,
    remove_temporaries,
    target_errors,
    write_json,
)
from tercet.storage.hashing import sha256_of_json
from tercet.storage.locks import hold_target
from tercet.storage.manifest import MANIFEST, forget, is_whole, record_file, write_manifest
from tercet.storage.progress import progress_bar
from tercet.storage.settings import checked
from tercet.storage.shards import Shards, in_shards
from tercet.storage.texts import several
from tercet.synthesis.candidates import Candidate, as_line, read_candidates, write_candidates
from tercet.synthesis.filters import Filter
from tercet.synthesis.sentences import Sentences
from tercet.synthesis.settings import FilterSettings, SentenceSettings, SynthesisSettings
from tercet.synthesis.strategies import STRATEGIES, Maker, Model
from tercet.synthesis.writing import Shard, Writer, write_here, write_spread

TITLE = "title"
"""The strategy whose rows are titles and their texts."""

CANDIDATES, TRIPLETS, AUDIT, REJECTS = "candidates", "triplets.jsonl", "audit.json", "rejects.jsonl"

logger = logging.getLogger("tercet")

_ENDING = ".parquet"
_MADE = "made.json"
"""In the folder of the candidates when all of them are there: what they were made of."""

_FEW = 0.2
"""Where a smaller share of the candidates is accepted, something may be wrong."""

_AUDITED = {"strategy", "seed", "sentences", "filters", "num_triplets"}
_FINISHED = "Name a folder that `tercet synthesize` has finished."


@dataclass(frozen=True, repr=False)
class Synthesis:
    """What `synthesize` made in a folder."""

    folder: Path
    audit: dict[str, Any]
    """What became of all sentences and candidates: the contents of `audit.json`."""

    @property
    def triplets(self) -> Path:
        """The accepted triplets, to train on."""
        return self.folder / TRIPLETS

    @property
    def num_triplets(self) -> int:
        """How many were accepted."""
        return int(self.audit["num_triplets"])

    @property
    def advice(self) -> str:
        """Where few candidates were accepted: which rule dropped most, and what to change. Empty where enough were."""
        tally = self.audit["filters"]
        if tally["num_kept"] >= _FEW * tally["num"]:
            return ""
        return f"Few were accepted. {remedy(self.audit, command=f'tercet refilter {self.folder} --set ')}"

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of `audit.json`."""
        return self.audit

    def __getitem__(self, name: str) -> Any:
        return self.audit[name]

    def __repr__(self) -> str:
        candidates, sentences = self.audit["filters"]["num"], self.audit["sentences"]["num_kept"]
        return f"{self.num_triplets:,} of {candidates:,} triplets of {sentences:,} sentences accepted: {self.triplets}"


def synthesize(
    sentences: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    model: str = DEFAULT_SYNTHESIZER,
    strategy: Strategy = "generate",
    num_samples: int = 1,
    split: bool = False,
    alpha: float | None = None,
    leaks: Sequence[str | Path] = (),
    there: str | Sequence[str] | None = None,
    back: str | Sequence[str] | None = None,
    column: str | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    engine: Engine = LOCAL,
    progress: bool = False,
) -> Synthesis:
    """Make triplets from sentences: a synthesizer writes and judges them, and a filter keeps those that it is sure of.

    `out` gets `candidates/` (all of them, with their probabilities), `triplets.jsonl` (those that were accepted),
    `audit.json`, and `rejects.jsonl` (rows that could not be read). Killed and called again with the same sentences,
    model and settings, it goes on after the last finished shard and writes the same bytes.

    Args:
        sentences: A list of sentences; or a file with one per row, or a dataset of the hub, which is streamed (a list
            of Paths for several).
        out: The folder.
        model: The synthesizer: an embedded name, a folder or a hub id.
        strategy: What is written: `generate` (an entailment and a contradiction), `no-negatives`, `retrieval` (BM25),
            `backtranslation`, or `title` (a short title for each text).
        num_samples: How many candidates each sentence gets.
        split: Whether the texts are documents, to be split into sentences first.
        alpha: The least probability that a pair is what it should be; 0.9 where None.
        leaks: Files and folders with evaluation texts, which are kept out.
        there: For back-translation: the model into the other language, or several, one for each language.
        back: For back-translation: the model back, or the models.
        column: The column with the text.
        seed: What texts are drawn with.
        settings: Any other of `SynthesisSettings`: `top_p`, `language`, `min_premise_words` and so on.
        engine: Who writes and judges: this process (`local`), the workers of a cluster (`ray`: the same bytes), or the
            settings of a cluster, such as `{"address": "auto", "workers": 8}`.
        progress: Whether a bar is shown.

    Raises:
        TercetError: An input, a setting or the model is not as it should be, or the target cannot be written.
    """
    columns = {} if column is None else {"columns": {"text": column}}
    sources = [{"path": path, "stream": path.startswith(HUB), **columns} for path in given_files(sentences)]
    named = {
        "strategy": strategy,
        "num_samples": num_samples,
        "split": split,
        "alpha": alpha,
        "leaks": several(leaks) or None,
        "there": _listed(there),
        "back": _listed(back),
    }
    usual = SynthesisSettings.model_fields
    given = {name: value for name, value in named.items() if value not in (None, usual[name].default)}
    chosen = {"sentences": sources, "model": model, **_joined(given, settings)}
    target, checked_settings, cluster = Path(out), checked(SynthesisSettings, chosen), cluster_of(engine)
    make_folder(target.parent)
    with hold_target(target):
        _check_ours(target)
        return Synthesis(target, make_corpus(checked_settings, target, seed=seed, cluster=cluster, progress=progress))


def _check_ours(out: Path) -> None:
    """Raise OutputError if a folder holds other files, and nothing that `synthesize` wrote."""
    with target_errors(out):
        names = {path.name for path in out.iterdir() if not is_temporary(path.name)} if out.exists() else set()
    if names - {REJECTS} and CANDIDATES not in names:
        others = ", ".join(sorted(names)[:3])
        raise OutputError(f"{out}: holds other files than triplets ({others}). Name a new folder.")


def _listed(models: str | Sequence[str] | None) -> str | list[str] | None:
    """Return one model by its name, several as a list."""
    found = several(models or ())
    return found[0] if len(found) == 1 else found or None


def _joined(named: Mapping[str, Any], settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return arguments and further settings together; what is given in both would be lost in one of them."""
    for name in settings or {}:
        if name in named:
            raise SettingError(f"{name}: is given as an argument and among the settings. Give it once.")
    return {**named, **(settings or {})}


def make_corpus(
    settings: SynthesisSettings,
    out: str | Path,
    *,
    candidates: Path | None = None,
    model: Model | None = None,
    sentences: Sentences | None = None,
    seed: int = 0,
    cluster: ClusterSettings | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Make triplets of sentences; see `synthesize`.

    Args:
        settings: Everything that can be chosen.
        out: The folder.
        candidates: A folder that keeps candidates in place of `out`, those of other inputs or settings beside them.
        model: What generates and discriminates, in place of loading the one that the settings name.
        sentences: The sentences, where they are open already.
        seed: What draws are made from, with the number of a shard.
        cluster: Whose workers make the candidates; this process where None.
        progress: Whether a bar is shown.

    Returns:
        The audit, as it is in the file.

    Raises:
        TercetError: An input, a setting or the model is not as it should be, or the target cannot be written.
    """
    out = Path(out)
    filters = FilterSettings(**settings.part(FilterSettings))
    without_memory = filters.model_copy(update={"deduplicate": False})  # what it has seen would be remembered twice
    # before any work, because files with evaluation texts may not be there
    preview = Filter(without_memory, titles=settings.strategy == TITLE)
    for folder in (out, candidates or out):
        make_folder(folder)
    sentences = sentences or Sentences(SentenceSettings(**settings.part(SentenceSettings)), rejects=out / REJECTS)
    model = model or _load(settings)
    num_samples = _num_samples(settings, sentences)
    maker = STRATEGIES[settings.strategy](settings, num_samples, model, sentences)
    plan = {**_plan(settings, model, sentences, maker, seed), "num_samples": num_samples}
    folder = out / CANDIDATES if candidates is None else _folder_of(plan, candidates)
    shards = Shards(folder, plan=plan, ending=_ENDING, replace=False)
    spread = partial(write_spread, load=_load, model=model, maker=maker, num_samples=num_samples, sentences=sentences)
    here = contextlib.nullcontext(write_here(maker))
    with here if cluster is None else spread(cluster, settings) as write:
        num_shards = _make(shards, sentences, write, preview, settings, seed=seed, progress=progress)
    if not sentences.tally.num_kept:
        raise InputError(
            f"{settings.sentences[0].path}: none of {sentences.tally.num:,} sentences is of use: see the rules for "
            "length and language. Set split: true where the texts are documents."
        )
    made = {"strategy": settings.strategy, "seed": seed, "num_shards": num_shards, "sentences": sentences.audit()}
    forget(shards.folder / _MADE)
    write_json(shards.folder / _MADE, made)
    record_file(shards.folder / _MADE)
    return _filter(shards.folder, out, filters)


def refilter(
    folder: str | Path,
    *,
    alpha: float | None = None,
    leaks: Sequence[str | Path] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Synthesis:
    """Filter the candidates in a folder again, without generating.

    Args:
        folder: What `synthesize` wrote.
        alpha: The least probability that a pair is what it should be; as the last time where None.
        leaks: Files and folders with evaluation texts, which are kept out; as the last time where None.
        settings: Any other of `FilterSettings`, in place of those of the last time.

    Raises:
        InputError: The folder does not hold all candidates, or is that of a stage.
        SettingError: There is no such setting, or its value does not fit.
    """
    folder = Path(folder)
    audit = read_audit(folder)
    if audit.get("candidates", CANDIDATES) != CANDIDATES:
        raise InputError(
            f"{folder}: is a stage of a run, which later stages learn from. Run its recipe again with another filter, "
            "such as --set stages.NAME.alpha=0.8: nothing is generated anew."
        )
    named = {"alpha": alpha, "leaks": None if leaks is None else several(leaks)}
    changes = _joined({name: value for name, value in named.items() if value is not None}, settings)
    filters = checked(FilterSettings, {**audit["filters"]["settings"], **changes})
    with hold_target(folder):
        return Synthesis(folder, _filter(folder / CANDIDATES, folder, filters))


def read_audit(folder: Path) -> dict[str, Any]:
    """Return the audit in a folder that `synthesize` wrote.

    Raises:
        InputError: There is none.
    """
    audit: dict[str, Any] = read_json(folder / AUDIT, kind=dict, fix=_FINISHED)
    missing = _AUDITED - audit.keys()
    if missing or not isinstance(audit["filters"], dict) or not isinstance(audit["filters"].get("settings"), dict):
        raise InputError(f"{folder / AUDIT}: is not an audit ({', '.join(missing) or 'filters'}). {_FINISHED}")
    return audit


def most_dropped(tally: dict[str, Any]) -> tuple[str, str]:
    """Return the rule of an audit's part that dropped most, and what is to be said of it; nothing where none did."""
    rule = max(tally["dropped"], key=lambda name: tally["dropped"][name]["num"])
    num = tally["dropped"][rule]["num"]
    return (rule, f"The rule {rule!r} dropped {num:,}") if num else ("", "")


_REMEDIES = {
    "alpha": ("Accept less certain ones", "alpha=0.5"),
    "label": ("Try another synthesizer: this one may not know such sentences", ""),
    "short": ("Accept shorter ones", "min_hypothesis_words=2"),
    "contained": ("Accept parts of sentences", "containment=false"),
    "lost": ("Take a synthesizer that has learned to write titles, or accept vaguer ones", "max_rank=5"),
    "leak": ("Take texts that are not in the evaluation files", ""),
}
"""What helps against a rule that drops too much, and the setting that does it."""


def remedy(audit: dict[str, Any], *, command: str) -> str:
    """Return which rule dropped most, and what to change by a command; nothing where none did."""
    rule, said = most_dropped(audit["filters"])
    words, change = _REMEDIES.get(rule, ("", ""))
    if rule == "short" and audit["strategy"] == TITLE:
        change = "min_title_words=1"
    return ". ".join(filter(None, [said, f"{words}: {command}{change}" if change else words]))


def _make(
    shards: Shards,
    sentences: Sentences,
    write: Writer,
    preview: Filter,
    settings: SynthesisSettings,
    *,
    seed: int,
    progress: bool,
) -> int:
    """Make the candidates that are not there yet, and return how many shards there are."""
    start_s: float | None = None
    num_done, number = 0, -1
    with progress_bar("synthesizing", total=sentences.rows.num_rows, unit="rows", enabled=progress) as advance:

        def to_write() -> Iterator[Shard]:
            nonlocal num_done, number, start_s
            for number, texts in enumerate(in_shards(iter(sentences), settings.shard_sentences)):
                num_new, num_done = sentences.num_rows - num_done, sentences.num_rows
                if shards.is_done(number):
                    advance(num_new, earlier=True)
                    continue
                start_s = time.monotonic() if start_s is None else start_s
                shard_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
                yield Shard(number, number * settings.shard_sentences, texts, shard_seed, num_new)

        for shard, made in write(to_write()):
            write_candidates(shards.path(shard.number), made)
            shards.finish(shard.number)
            preview.accept(made)
            num = preview.tally.num_kept
            rate, share = num / (time.monotonic() - (start_s or 0.0)), num / max(preview.tally.num, 1)
            advance(shard.num_read, note=f"{num:,} accepted ({share:.0%}, {rate:.2f}/s)")
        advance(sentences.num_rows - num_done)
    return number + 1


def _num_samples(settings: SynthesisSettings, sentences: Sentences) -> int:
    """Return how many candidates each sentence gets; where a rule says it, the sentences are read to count them."""
    if isinstance(settings.num_samples, int):
        return settings.num_samples
    is_stream = sentences.rows.num_rows is None
    return settings.num_samples.num_samples(None if is_stream else sum(1 for _ in sentences))


def _plan(
    settings: SynthesisSettings, model: Model, sentences: Sentences, maker: Maker, seed: int
) -> dict[str, object]:
    """Return everything that decides the candidates."""
    about = SentenceSettings(**settings.part(SentenceSettings)).model_dump(mode="json", exclude={"sentences"})
    packages = [name for name, used in (("sentencex", settings.split), ("py3langid", settings.language)) if used]
    return {
        "sentences": sentences.rows.describe()["sha256"],
        **about,
        "packages": {name: version(name) for name in packages},
        "model": model.fingerprint(),
        "strategy": settings.strategy,
        "maker": maker.plan,
        "shard_sentences": settings.shard_sentences,
        "seed": seed,
    }


def _folder_of(plan: dict[str, object], candidates: Path) -> Path:
    """Return the folder of a plan among those of others, which may have taken days and are never thrown away."""
    folder = candidates / sha256_of_json(plan)[:12]
    if not folder.exists() and any(path.is_dir() for path in candidates.iterdir()):
        logger.warning("%s: holds candidates of other inputs or settings; they are kept, and new ones made", candidates)
    return folder


def _filter(candidates: Path, out: Path, settings: FilterSettings) -> dict[str, Any]:
    """Write the accepted candidates and the audit."""
    made = _read_made(candidates)
    remove_temporaries(out, of=(TRIPLETS, AUDIT, REJECTS))
    (out / MANIFEST).unlink(missing_ok=True)
    chosen = Filter(settings, titles=made["strategy"] == TITLE)
    with atomic_write(out / TRIPLETS) as stream:
        for shard in _shards_of(candidates, made["num_shards"]):
            stream.writelines(map(as_line, chosen.accept(shard)))
    filters = {"settings": settings.model_dump(mode="json"), **chosen.tally.as_json()}
    place = Path(os.path.relpath(candidates, out)).as_posix()
    audit = {**made, "candidates": place, "filters": filters, "num_triplets": chosen.tally.num_kept}
    write_json(out / AUDIT, audit)
    own = (TRIPLETS, AUDIT, REJECTS)
    write_manifest(out, of=lambda file: file.parent == out and file.name in own)
    return audit


def _read_made(candidates: Path) -> dict[str, Any]:
    """Return what candidates were made of.

    Raises:
        InputError: There are none, or it is damaged.
    """
    file = candidates / _MADE
    made: dict[str, Any] = read_json(file, kind=dict, fix=_FINISHED)
    if not is_whole(file) or not {"strategy", "num_shards"} <= made.keys() or type(made["num_shards"]) is not int:
        raise InputError(f"{file}: is not as it was written. Run `tercet synthesize` again: nothing is lost.")
    return made


def _shards_of(folder: Path, num: int) -> Iterator[list[Candidate]]:
    for number in range(num):
        file = folder / f"{number:06d}{_ENDING}"
        if not is_whole(file):
            raise InputError(f"{file}: is not as it was written. Run `tercet synthesize` again: it is made anew.")
        yield [*read_candidates(file)]


def _load(settings: SynthesisSettings) -> Model:
    from tercet.synthesis.synthesizer import Synthesizer

    return Synthesizer.load(
        settings.model,
        revision=settings.revision,
        engine=settings.engine,
        convert_pickle=settings.convert_pickle,
        precision=settings.precision,
    )
