"""Texts from texts: written, judged, filtered, audited."""
