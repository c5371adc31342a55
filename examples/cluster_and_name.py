"""Group texts that are about the same thing, and name each group by its telling words.

Usage: `python examples/cluster_and_name.py [FILE]`
"""

import sys
from pathlib import Path

import tercet

file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("town.txt")
found = tercet.cluster(file, threshold=0.35, min_size=6)

print(f"{found.num_clustered} of {found.num_texts} texts are in {len(found.clusters)} groups. The largest:")
for group in found.clusters[:5]:
    print(f"\n{group.name} ({len(group.texts)} texts)")
    for text in group.texts[:3]:
        print(f"  {text}")
