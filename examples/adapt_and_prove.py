"""Adapt an encoder to texts without labels, and judge it by rows that it has not seen.

The texts are documentation strings of your own Python. What judges is how well the first line of a string finds the
rest of it, for strings that nothing is learned from.

Usage: `python examples/adapt_and_prove.py FOLDER`
"""

import sys
from pathlib import Path

import tercet
from own_python import docstrings

folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
pairs = list(dict.fromkeys(docstrings()))
judging, learning = pairs[:200], pairs[200:600]

(folder / "texts.txt").write_text("\n".join(f"{first} {rest}" for first, rest in learning), encoding="utf-8")
rows = ["query\tcandidate\tlabel"]
for place, (first, _) in enumerate(judging):
    others = [judging[(place + step) % len(judging)][1] for step in range(20)]
    rows += [f"{first}\t{other}\t{int(step == 0)}" for step, other in enumerate(others)]
(folder / "judge.tsv").write_text("\n".join(rows), encoding="utf-8")

texts, judge = folder / "texts.txt", f"rerank:{folder}/judge.tsv"
adapted = tercet.adapt(texts, folder / "adapted", plan="spans", evals=[judge], data=folder)
print(adapted.findings.verdict)
for measure in adapted.findings.measures:
    before, after, difference, interval = measure.texts()
    print(f"  {measure.name.replace(judge, 'our searches')}: {before} before, {after} after ({difference}, {interval})")
