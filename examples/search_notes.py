"""Search your notes by what they mean: the paragraphs of a Markdown file that are nearest to a question.

Usage: `python examples/search_notes.py [QUESTION] [FILE.md]`
"""

import sys
from pathlib import Path

import tercet

question = sys.argv[1] if len(sys.argv) > 1 else "which medicine must my father avoid"
file = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("notes.md")

paragraphs = [part.strip() for part in file.read_text(encoding="utf-8").split("\n\n")]
notes = [part for part in paragraphs if part and not part.startswith("#")]

print(f"{question}?")
for hit in tercet.search(question, notes, k=3):
    print(f"  {hit.score:.2f}  {hit.text}")
