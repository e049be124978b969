"""Machine-readable output of the command line."""

import json
import math
from dataclasses import asdict, fields
from typing import Any

from kaestat.core.provenance import Provenance
from kaestat.report.analysis import Analysis
from kaestat.report.gradient import GradientAnalysis
from kaestat.report.headline import paste_lines
from kaestat.report.tables import records


def analysis_document(analysis: Analysis, provenance: Provenance) -> dict[str, Any]:
    """All results of `kaestat analyze`."""
    return {
        "facts": asdict(analysis.facts),
        "risk": None if analysis.risk_columns is None else records(analysis.risk_columns),
        "differences": records(analysis.difference_columns),
        "gradient": None if analysis.gradient is None else _gradient(analysis.gradient),
        "sampling": None if analysis.sampling is None else analysis.sampling.table.to_dict("records"),
        "bandwidth": analysis.path_table().to_dict("records") if analysis.paths else None,
        "recommendation": asdict(analysis.recommendation) | {"lines": dict(paste_lines(analysis))},
        "notes": analysis.notes,
        "provenance": asdict(provenance),
    }


def _gradient(gradient: GradientAnalysis) -> dict[str, Any]:
    return _fields(gradient) | {
        "noise": gradient.noise.to_dict("records"),
        "setting": asdict(gradient.setting),
        "law": None
        if gradient.law is None
        else _fields(gradient.law) | {"table": gradient.law.table.to_dict("records")},
    }


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass as they are."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def to_json(document: Any) -> str:
    """A document with the records of tables as JSON text, where NaN becomes null."""
    return json.dumps(_plain(document), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    """``value`` as plain data for JSON: NumPy scalars as Python's, NaN and infinity as None, objects as text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
