"""The document as JSON text."""

import json
from math import isfinite
from typing import Any

from nearsure.report.document import Report


def report_json(report: Report) -> str:
    """One line of JSON in ASCII: the same that the HTML page holds.

    What is not finite becomes null, as JSON has neither NaN nor infinity.
    """
    return json.dumps(
        _without_nan(report.to_dict()), allow_nan=False, separators=(",", ":"), ensure_ascii=True
    )


def _without_nan(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
