"""Files, locks, shards, the hub, progress and settings: what every room stands on, and nothing about texts."""
