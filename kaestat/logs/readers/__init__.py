"""Readers of common reward log formats, one format per file."""

from kaestat.logs.readers.formats import FORMATS, Format, read_log

__all__ = ["FORMATS", "Format", "read_log"]
