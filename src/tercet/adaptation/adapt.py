"""The verb `adapt`: from a pile of sentences to a better encoder, in one folder that survives a kill.

It makes a recipe (rows from the texts, then training), runs it, judges both encoders, and keeps one of them.
"""

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tercet.adaptation.balance import balance
from tercet.adaptation.findings import Findings, Learned, domain_of, evenly, measures_of, samples_of
from tercet.adaptation.folder import LABELS, RECORD, REPORTS, RUN, locked_adaptation
from tercet.adaptation.judges import JUDGED_BY, Judges, own_tasks
from tercet.adaptation.neighbours import compare
from tercet.adaptation.page import document_of
from tercet.adaptation.picture import cosines_of, map_of
from tercet.adaptation.plan import Plan, Request, chosen_plan
from tercet.data.feeding.sources import open_rows
from tercet.data.reading.datasets import HUB
from tercet.data.rows.given import given_files
from tercet.distributed.settings import LOCAL, Engine
from tercet.encoder.encoder import Encoder
from tercet.errors import InputError, OutputError, SettingError
from tercet.reporting.html import to_html
from tercet.reporting.markdown import to_markdown
from tercet.storage.choices import DEFAULT_MODEL, DEFAULT_PLAN, DEFAULT_SYNTHESIZER, AdaptPlan, check_choice
from tercet.storage.files import atomic_write, write_json
from tercet.storage.progress import announce
from tercet.storage.texts import several
from tercet.synthesis.corpus import most_dropped, read_audit
from tercet.synthesis.sentences import Sentences
from tercet.training.pipeline import StageResult, run_recipe
from tercet.training.runs import ENCODER, copy_folder, read_record
from tercet.vectors.store import VectorStore

_MAX_POOL = 2_000
"""Neighbours are looked for among so many texts at most."""


@dataclass(frozen=True, repr=False)
class Adapted:
    """What came of it."""

    out: Path
    findings: Findings
    times_s: dict[str, float]

    @property
    def encoder(self) -> Path:
        """The encoder that was kept."""
        return self.out / ENCODER

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers: what was found out, and how long each part took."""
        return {"findings": self.findings.to_dict(), "times_s": self.times_s}

    def __repr__(self) -> str:
        lines = [
            f"{measure.name}, {measure.metric}: {before} to {after} ({gain}, {interval})"
            for measure in self.findings.measures
            for before, after, gain, interval in [measure.texts()]
        ]
        return "\n  ".join([self.findings.verdict, *lines, f"encoder: {self.encoder}"])


def adapt(
    sentences: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    plan: AdaptPlan = DEFAULT_PLAN,
    synthesizer: str | Path = DEFAULT_SYNTHESIZER,
    model: str | Path = DEFAULT_MODEL,
    evals: Sequence[str] = (),
    keep_anyway: bool = False,
    split: bool = False,
    column: str | None = None,
    max_sentences: int | None = None,
    seed: int = 0,
    changes: Sequence[str] = (),
    data: str | Path | None = None,
    engine: Engine = LOCAL,
    progress: bool = False,
) -> Adapted:
    """Adapt an encoder to a pile of sentences.

    `out` gets `encoder/`, `report.html`, `report.md`, `adapt.json` (all numbers) and `run/` (the run of the recipe).
    Killed and called again with the same arguments, it goes on and ends with the same encoder and report, times aside.

    Args:
        sentences: A list of sentences; or a file with one per row or a dataset of the hub, a list of Paths for several.
        out: The folder.
        plan: How it learns: `titles` trains on titles that a synthesizer writes, `reweight` weights directions by parts
            of the texts, `titles-reweight` does both; `spans` trains on some words in a row and the text that they were
            taken from, `mixture` on spans, titles and triplets, `gense` on triplets alone, as in GenSE. `auto` is
            `titles-reweight` where a quarter of the texts have several sentences, else `titles`.
        synthesizer: What writes titles and triplets: an embedded name, a folder, or a hub id.
        model: The encoder to start from.
        evals: Your own files that both encoders are judged by, `KIND:FILE` or a file whose columns tell its kind;
            without, they are judged by texts that nothing is learned from. The adapted encoder is kept where it is
            better by more than chance and has forgotten little; else the start.
        keep_anyway: Whether the adapted encoder is kept in any case.
        split: Whether the texts are documents, to be split into sentences.
        column: The column with the text.
        max_sentences: The most sentences that are taken from each source.
        seed: What everything is drawn with.
        changes: Settings of the recipe, as `PATH=VALUE`: `stages.triplets.alpha=0.8`, `stages.contrast.steps=200`.
        data: The folder with the evaluation data, for STSB-dev; `$TERCET_DATA/eval` where None.
        engine: Who writes rows and embeds for them: this process (`local`), or the workers of a cluster (`ray`, or its
            settings).
        progress: Whether bars are shown.

    Raises:
        TercetError: An input, a setting or a model is not as it should be, too few triplets were accepted, or the
            folder cannot be used.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingError(f"adapt: is for one process. Adapt with one, then train OUT/{RUN}/recipe.yaml with several.")
    check_choice("plan", plan, AdaptPlan)
    request = Request(
        sentences=tuple(given_files(sentences)),
        plan=plan,
        model=str(model),
        synthesizer=str(synthesizer),
        own=own_tasks(several(evals)),
        split=split,
        column=column,
        max_sentences=max_sentences,
        seed=seed,
        keep_anyway=keep_anyway,
        changes=tuple(several(changes)),
    )
    dataset = next((path for path in request.sentences if path.startswith(HUB)), None)
    if dataset is not None and max_sentences is None:
        raise SettingError(f"{dataset}: a dataset may take days. Say how many sentences: --max-sentences 2000.")
    opened = open_rows({"sources": request.sources(0, 1), "on_error": "skip", "max_bad_fraction": 1.0}, kind="texts")
    if plan == "auto":
        request = replace(request, plan=chosen_plan([*Sentences(request.first_texts(), rank=1)]))
    chosen = Plan.of(request, num_texts=opened.num_rows)
    found = Sentences(chosen.sentences(), rank=1)  # the stage is the one to tell of bad rows
    if opened.num_rows is not None and next(iter(found), None) is None:
        rule, dropped = most_dropped(found.tally.as_json())
        why = f"{dropped}. " if rule else ""
        raise InputError(
            f"{request.sentences[0]}: none of {found.tally.num:,} sentences is of use. {why}Split documents with "
            f"--split, or see the rules: --set stages.{chosen.learned_from[0].name}.min_premise_words=3."
        )
    out = Path(out)
    with locked_adaptation(out):
        return _Adaptation(request, chosen, out, opened.describe()["sha256"], data, engine, progress).go()


class _Adaptation:
    """One adaptation in its folder."""

    def __init__(
        self,
        request: Request,
        plan: Plan,
        out: Path,
        sha256: str,
        data: str | Path | None,
        engine: Engine,
        progress: bool,
    ) -> None:
        self.request, self.plan, self.out, self.data, self.progress = request, plan, out, data, progress
        self.engine = engine
        self.chosen = {"own": [*request.own], "changes": [*request.changes], "keep_anyway": request.keep_anyway}
        asked = {name: value for name, value in asdict(request).items() if name not in self.chosen}
        self.asked: dict[str, Any] = {**asked, "sentences": [*request.sentences], "sha256": sha256}
        self.record: dict[str, Any] = self._earlier()
        self.times_s: dict[str, float] = self.record.get("times_s", {})

    def go(self) -> Adapted:
        self._say(f"plan: {self.request.plan}")
        start_s = time.monotonic()
        start = self._load_start()
        learned_from = [*Sentences(self.plan.sentences(), rank=1)]
        judges = Judges(
            self.request.own,
            self.data,
            held_out=[*Sentences(self.plan.texts(held_out=True), rank=1)],
            others=[*Sentences(self.plan.texts(held_out=False), rank=1)],
            views=JUDGED_BY[self.request.plan],
            seed=self.request.seed,
        )
        before = VectorStore(start)
        self._say("judging the start")
        judged_before = judges.on_domain(
            before
        )  # first of all, because it finds out whether files are as they should be
        general = {id(start): judges.on_general(before)}
        self._begin()
        measuring_s = time.monotonic() - start_s

        run = run_recipe(
            self.plan.recipe, self.out / RUN, data=self.data, force=True, engine=self.engine, progress=self.progress
        )
        made, learned = run.stages[: self.plan.first], run.stages[self.plan.first :]
        self.times_s |= {
            "making rows": sum(stage.time_s for stage in made),
            "learning": sum(stage.time_s for stage in learned),
        }
        trained = learned[-1]

        start_s = time.monotonic()
        self._say("judging what was learned")
        result = Encoder.load(trained.output.path, device=str(start.device))

        def score(encoder: Encoder) -> float:
            if id(encoder) != id(start):
                general[id(encoder)] = judges.on_general(VectorStore(encoder))
            return float(general[id(encoder)][2]["score"])

        share = balance(start, result, score)
        after = VectorStore(result)
        judged_after = judges.on_domain(after)
        pool = evenly(learned_from, _MAX_POOL)
        findings = Findings(
            command=self.request.command(self.out, self.data),
            recipe=self.plan.recipe,
            num_steps=learned[0].notes.get("num_steps"),
            share=share,
            keep_anyway=self.request.keep_anyway,
            learned=[_learned(stage) for stage in made],
            measures=measures_of([*judged_before, general[id(start)]], [*judged_after, general[id(result)]]),
            domain=domain_of(judged_before, judged_after),
            examples=compare(pool, before(pool), after(pool)),
            num_pool=len(pool),
            map=map_of(pool, before(pool), after(pool)),
            cosines=cosines_of(judges.pairs, before, after),
        )
        self.times_s["judging"] = measuring_s + time.monotonic() - start_s
        self._write(findings, start, result, trained.output.path)
        return Adapted(self.out, findings, self.times_s)

    def _say(self, what: str) -> None:
        announce(what, enabled=self.progress)

    def _earlier(self) -> dict[str, Any]:
        """Return the record of an earlier attempt.

        Raises:
            OutputError: The folder holds something else, or the adaptation of something else.
        """
        earlier = read_record(self.out / RECORD)
        others = [path.name for path in self.out.iterdir() if not path.name.startswith(".") and path.name != LABELS]
        if others and "asked" not in earlier:
            raise OutputError(f"{self.out}: holds another run ({', '.join(sorted(others)[:3])}). Name a new folder.")
        for name, value in earlier.get("asked", self.asked).items():
            if self.asked.get(name) != value:
                what = "other sentences" if name == "sha256" else f"{name} {value}"
                raise OutputError(f"{self.out}: was made with {what}. Name a new folder, or ask for the same.")
        return earlier

    def _begin(self) -> None:
        """Write down what is asked for; what came of other settings goes, lest it be taken for what comes of these."""
        if self.record.get("chosen") != self.chosen:
            self.record.pop("findings", None)
            for name in REPORTS:
                (self.out / name).unlink(missing_ok=True)
            shutil.rmtree(self.out / ENCODER, ignore_errors=True)
        self._save()

    def _save(self, **more: Any) -> None:
        self.record |= {"asked": self.asked, "chosen": self.chosen, "times_s": self.times_s, **more}
        write_json(self.out / RECORD, self.record)

    def _load_start(self) -> Encoder:
        settings = self.plan.learning
        start = Encoder.load(
            settings.start or self.request.model,
            tokenizer=settings.tokenizer,
            revision=settings.revision,
            convert_pickle=settings.convert_pickle,
            seed=self.plan.recipe.seed,
            **settings.encoder.given(),
        )
        _ = start.tower  # an exported graph has none, and can not be trained
        return start

    def _write(self, findings: Findings, start: Encoder, result: Encoder, trained: Path) -> None:
        """Write the encoder that is kept, all numbers, and the report, which comes last."""
        if findings.keeps_start:
            start.save(self.out / ENCODER)
        elif findings.share < 1:
            result.save(self.out / ENCODER)
        else:
            copy_folder(trained, self.out / ENCODER)
        self._save(findings=findings.to_dict())
        document = document_of(findings, self.times_s)
        for name, text in zip(REPORTS, (to_markdown(document, ""), to_html(document)), strict=True):
            with atomic_write(self.out / name, "w") as stream:
                stream.write(text)


def _learned(stage: StageResult) -> Learned:
    """Return what a stage made for the encoder to learn from."""
    samples = samples_of(stage.output.path)
    if "num_pairs" in stage.notes:
        return Learned(stage.name, stage.notes["num_pairs"], stage.notes["sentences"], None, samples)
    audit = read_audit(stage.folder)
    return Learned(stage.name, audit["num_triplets"], audit["sentences"], audit["filters"], samples)
