"""Draws the figures of the documentation from what was measured, and writes measured numbers into pages.

    python benchmarks/figures.py [--check]

docs/figures/*.json has the numbers, each with its command, machine and date. A place in a page that looks like
`<!-- figure: models.table -->...<!-- end -->` gets the text that is made here; `--check` only says whether all are
as they should be. Needs the extra report.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

import scale

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if not page.is_symlink()),
    *sorted((ROOT / "src" / "tercet" / "models").glob("*/README.md")),
]
PLACE = re.compile(r"(<!-- figure: ([\w.-]+) -->).*?(<!-- end -->)", re.DOTALL)
HOW = "bge-small from 8-bit weights, e5-small with `query: ` before every text"
THEMES = {"light": {"text": "#1f2a2e", "faint": "#9aa5a8"}, "dark": {"text": "#e3e8ea", "faint": "#67757a"}}
COLOURS = {
    "light": {"mini": "#c8602f", "all-MiniLM-L6-v2": "#2f7380", "bge-small": "#6a5a9c", "e5-small": "#5d7b2c"},
    "dark": {"mini": "#f08a55", "all-MiniLM-L6-v2": "#6fb7c4", "bge-small": "#b0a2dd", "e5-small": "#a8c777"},
}


def load(name: str) -> dict[str, Any]:
    """Return measured numbers."""
    return json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))


def has_speeds() -> bool:
    """Return whether the speed of the models was measured, too."""
    return all("sentences_per_s" in model for model in load("models")["models"].values())


def mean_sts(model: dict[str, Any]) -> float:
    """Return the mean of a model's STS scores."""
    return sum(model["scores"].values()) / len(model["scores"])


def fastest(model: dict[str, Any], library: str) -> tuple[str, dict[str, float]]:
    """Return the number format in which a library is fastest with a model, and its speed."""
    rates = {how: rate for how, rate in model["sentences_per_s"].items() if how.startswith(library)}
    how = max(rates, key=lambda each: rates[each]["median"])
    return how.removeprefix(f"{library}, "), rates[how]


def draw_models(theme: str) -> None:
    """Draw quality against speed: a line from sentences per second in sentence-transformers to those in Tercet."""
    measured, colours = load("models"), THEMES[theme]
    plt.rcParams.update(
        {"svg.fonttype": "path", "svg.hashsalt": "tercet", "font.family": "DejaVu Sans", "font.size": 11}
    )
    figure, axes = plt.subplots(figsize=(7.6, 4.2))
    for name, model in measured["models"].items():
        quality, colour = mean_sts(model), COLOURS[theme][name]
        theirs, ours = (fastest(model, library)[1]["median"] for library in ("sentence-transformers", "Tercet"))
        axes.plot([theirs, ours], [quality, quality], color=colour, linewidth=1.4, alpha=0.6, zorder=1)
        axes.scatter([theirs], [quality], s=58, facecolors="none", edgecolors=colour, linewidths=1.8, zorder=2)
        axes.scatter([ours], [quality], s=78, color=colour, zorder=3)
        label = f"{name} ({model['parameters'] / 1e6:.0f}M)"
        weight = "bold" if name == "mini" else "normal"
        axes.annotate(
            label, (ours, quality), (0, 9), textcoords="offset points", ha="center", color=colour, weight=weight
        )
    axes.scatter(
        [], [], s=58, facecolors="none", edgecolors=colours["text"], linewidths=1.8, label="sentence-transformers"
    )
    axes.scatter([], [], s=78, color=colours["text"], label="Tercet")
    axes.legend(loc="lower right", bbox_to_anchor=(1.02, 0.99), ncols=2, frameon=False, labelcolor=colours["text"])
    axes.set_xscale("log")
    ticks = [200, 500, 1000, 2000, 5000]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("sentences per second on two CPU cores", color=colours["text"])
    axes.set_ylabel("Spearman correlation x 100", color=colours["text"])
    axes.set_title("Mean of STS12, STS14 and STS15", loc="left", color=colours["text"], fontsize=11)
    axes.tick_params(colors=colours["text"], which="both", length=3)
    axes.margins(x=0.12, y=0.2)
    axes.grid(visible=True, color=colours["faint"], alpha=0.3, linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(colours["faint"])
    figure.tight_layout()
    figure.savefig(FIGURES / f"models-{theme}.svg", transparent=True, metadata={"Date": None, "Creator": "Tercet"})
    plt.close(figure)


def models_picture(page: Path) -> str:
    """Return the figure, for README.md or for a page of the site."""
    alt = "Quality against speed of four small English encoders, in sentence-transformers and in Tercet"
    if page.name != "README.md":
        return "".join(f"\n![{alt}](figures/models-{theme}.svg#only-{theme})" for theme in THEMES) + "\n"
    dark, light = (f"docs/figures/models-{theme}.svg" for theme in ("dark", "light"))
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    return f'\n<picture>\n  {source}\n  <img alt="{alt}" src="{light}">\n</picture>\n'


def models_table() -> str:
    """Return the table of models."""
    measured = load("models")
    tasks = list(next(iter(measured["models"].values()))["scores"])
    heads = ["model", "parameters", *tasks, "mean"]
    heads += ["sentences/s in sentence-transformers", "in Tercet"] if has_speeds() else []
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name, model in measured["models"].items():
        shown = [f"{model['scores'][task]:.2f}" for task in tasks]
        rates = [fastest(model, library) for library in ("sentence-transformers", "Tercet") if has_speeds()]
        speeds = [f"{rate['median']:,.0f} ({how})" for how, rate in rates]
        mark = "**" if name == "mini" else ""
        cells = [f"`{name}`" if name == "mini" else name, f"{model['parameters'] / 1e6:.1f}M", *shown]
        lines.append([*cells, f"{mark}{mean_sts(model):.2f}{mark}", *speeds])
    return "\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def models_note() -> str:
    """Return where and how the models were measured."""
    measured = load("models")
    if not has_speeds():
        return f"\nMeasured with `{measured['command']}` on {measured['date']}, on {measured['machine']}; {HOW}.\n"
    rounds = next(iter(measured["models"]["mini"]["sentences_per_s"].values()))["rounds"]
    return (
        f"\nMeasured with `{measured['command']}` on {measured['date']}, on {measured['machine']}: "
        f"{measured['sentences']['num']:,} sentences of STS, two threads, "
        f"median of {rounds} rounds in turns, each library in the faster of fp32 and bf16; {HOW}.\n"
    )


def mini_ratio() -> str:
    """Return how many times as fast as MiniLM in sentence-transformers `mini` is in Tercet, at its fastest."""
    return f"{max(ratio['median'] for ratio in load('mini')['ratios'].values()):.1f}"


def mini_speed() -> str:
    """Return how fast `mini` is, for its card."""
    measured = load("mini")
    shown = [
        f"in {name} {ratio['median']:.2f} times ({ratio['min']:.2f} to {ratio['max']:.2f})"
        for level, name in (("exact", "fp32"), ("fast", "bf16"), ("int8", "int8"))
        for ratio in [measured["ratios"][f"mini/{level}"]]
    ]
    return (
        "\nSpeed in Tercet, relative to all-MiniLM-L6-v2 in sentence-transformers in fp32: "
        f"{', '.join(shown)}. Measured with `{measured['command']}` on {measured['date']}, on {measured['machine']}: "
        f"{measured['sentences']['num']:,} sentences of STS, {measured['threads']} threads, in turns.\n"
    )


def install_table() -> str:
    """Return what the installation downloads."""
    measured = load("install")
    lines = ["| package | download | installed |", "|---|---:|---:|"]
    lines += [f"| {name} | {down:,.0f} MB | {disk:,.0f} MB |" for name, (down, disk) in measured["packages"].items()]
    return (
        "\n"
        + "\n".join(lines)
        + f"\n\nMeasured with `{measured['command']}` on {measured['date']}, on {measured['machine']}.\n"
    )


def scale_costs() -> str:
    """Return what the papers' corpora would cost, from the measured rates."""
    measured, lines = load("scale"), ["| corpus | model | core hours | written | shards | a shard takes |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for key, rate in measured["tokens_per_cpu_s"].items():
        model, precision = key.split("/")
        for corpus, cost in scale.costs(rate["median"], {"mini": 384, "t5-base": 768}[model]).items():
            lines.append(
                f"| {corpus} | {model}, `{precision}` | {cost['core_hours']:,.0f} | {cost['written_gb']:,.0f} GB "
                f"| {cost['shards']:,.0f} | {cost['shard_minutes']:.1f} min |"
            )
    return "\n" + "\n".join(lines) + "\n"


def scale_note() -> str:
    """Return what the costs are computed from."""
    measured = load("scale")
    rates = [
        f"{key.replace('/', ' in `')}` {rate['median']:,.0f} ({rate['min']:,.0f} to {rate['max']:,.0f})"
        for key, rate in measured["tokens_per_cpu_s"].items()
    ]
    return (
        f"\nTokens per second of processor time of one thread: {'; '.join(rates)}. "
        f"Measured with `{measured['command']}` on {measured['date']}, "
        f"on {measured['machine']}, which had other work at the same time.\n"
    )


def scale_measured() -> str:
    """Return what Ray costs."""
    measured = load("scale")
    lines = ["| what | measured |", "|---|---|"]
    shard, rounds = measured["texts"]["shard_texts"], measured["ratios"]["mini/one_worker_cpu"]["rounds"]
    for name, label in (("one_worker", "one worker"), ("two_workers", "two workers")):
        ratio = measured["ratios"][f"mini/{name}_cpu"]["median"]
        lines.append(
            f"| texts per second of processor time, all processes of {label} over `embed` without Ray "
            f"(shards of {shard:,} texts, {rounds} round) | {ratio:.2f} |"
        )
    lines += [
        f"| the driver, {run['shards']:,} shards, workers that do nothing "
        f"| {run['shards_per_s']:,.0f} shards per second |"
        for run in measured["drivers"].values()
    ]
    planned = measured["planned"]
    lines.append(
        f"| the plan of {planned['shards']:,} shards "
        f"| {planned['gb']:.2f} GB, {planned['cpu_seconds']:.1f} s of processor time |"
    )
    lines += [
        f"| a survey of {run['lines']:,} lines | {run['lines_per_s']:,.0f} lines per second |"
        for run in measured["surveys"]
    ]
    return "\n" + "\n".join(lines) + "\n"


TEXTS = {
    "scale.costs": scale_costs,
    "scale.note": scale_note,
    "scale.measured": scale_measured,
    "models.table": models_table,
    "models.note": models_note,
    "mini.ratio": mini_ratio,
    "mini.speed": mini_speed,
    "install.table": install_table,
}


def text_of(name: str, page: Path) -> str:
    """Return what stands in a place of a page; no picture as long as the speeds were not measured."""
    if name == "models.picture":
        return models_picture(page) if has_speeds() else ""
    return TEXTS[name]()


def main() -> None:
    """Draw, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing; end with 1 where a page is not as it should be"
    )
    options = parser.parse_args()
    stale = []
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = PLACE.sub(lambda place, page=page: place[1] + text_of(place[2], page) + place[3], before)
        if after != before:
            stale.append(page)
            if not options.check:
                page.write_text(after, encoding="utf-8")
    if not options.check:
        for theme in THEMES if has_speeds() else ():
            draw_models(theme)
    for page in stale:
        print(f"{page.relative_to(ROOT)}: {'is not what was measured' if options.check else 'written'}")
    if stale and options.check:
        sys.exit(1)


if __name__ == "__main__":
    main()
