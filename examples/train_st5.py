"""Train a Sentence-T5 on your own pairs: a recipe with one stage, and scores before and after.

The pairs are the first line and the rest of documentation strings of your own Python.

Usage: `python examples/train_st5.py FOLDER`
"""

import json
import sys
from pathlib import Path

import tercet
from own_python import docstrings

RECIPE = """
start: mini                     # any T5: t5-base, google/flan-t5-small, a folder
stages:
  - name: pairs
    contrast:
      rows: {pairs}
      batch: 64
      steps: 20
      temperature: 0.05
      learning_rate: 1.0e-4
      optimizer: adamw
      schedule: warmup-linear
      max_tokens: 48
      precision: auto             # bf16 where the CPU has it
      mask_duplicates: true
"""

folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
pairs = list(dict.fromkeys(docstrings()))
lines = [json.dumps({"anchor": first, "positive": rest, "negative": []}) for first, rest in pairs]
(folder / "pairs.jsonl").write_text("\n".join(lines[200:]), encoding="utf-8")
(folder / "held-out.jsonl").write_text("\n".join(lines[:200]), encoding="utf-8")
(folder / "recipe.yaml").write_text(RECIPE.replace("{pairs}", str(folder / "pairs.jsonl")), encoding="utf-8")

result = tercet.train(folder / "recipe.yaml", folder / "run")
task = f"triplets:{folder}/held-out.jsonl"
for name, model in (("before", "mini"), ("after", result.encoder)):
    score = tercet.evaluate(model, tasks=[task], cache=False)["tasks"][task]["score"]
    print(f"{name}: {score:.1f}% of held-out first lines are nearer to their own text than to another one")
