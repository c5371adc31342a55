"""Encoders in other tools: each module has what one of them calls, and needs its package."""
