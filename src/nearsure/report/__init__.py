"""Reports: one document of numbers, as JSON and as a page that needs no network."""

from nearsure.report.as_json import report_json
from nearsure.report.audit_part import audit_of
from nearsure.report.building import gallery_report, query_report
from nearsure.report.document import (
    About,
    Audit,
    ClassRow,
    ConfusablePair,
    Confused,
    CurvePoint,
    DuplicatePair,
    Estimate,
    Fit,
    HistogramBin,
    Label,
    Method,
    Metric,
    Mistake,
    OperatingPoint,
    Promise,
    ReliabilityBin,
    Report,
    SmallClass,
    Suspect,
    Vouching,
)
from nearsure.report.html import report_html

__all__ = [
    "About",
    "Audit",
    "ClassRow",
    "ConfusablePair",
    "Confused",
    "CurvePoint",
    "DuplicatePair",
    "Estimate",
    "Fit",
    "HistogramBin",
    "Label",
    "Method",
    "Metric",
    "Mistake",
    "OperatingPoint",
    "Promise",
    "ReliabilityBin",
    "Report",
    "SmallClass",
    "Suspect",
    "Vouching",
    "audit_of",
    "gallery_report",
    "query_report",
    "report_html",
    "report_json",
]
