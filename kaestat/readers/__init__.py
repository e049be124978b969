"""Readers of the reward logs that people have, one format per file."""

from kaestat.readers.formats import FORMATS, Format, read

__all__ = ["FORMATS", "Format", "read"]
