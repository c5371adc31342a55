"""The same shards on Ray: workers that may die, and a driver that gives out work until all of it is done."""
