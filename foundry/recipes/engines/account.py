"""What Foundry did in a process, as plain values that recipes hand on as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foundry.report import Report


def account(report: Report | None) -> dict[str, Any]:
    """The report's figures; {"outcome": "none"} for an engine that had no session."""
    if report is None:
        return {"outcome": "none", "text": ""}
    return {
        "outcome": report.outcome,
        "reason": report.reason,
        "archive": report.archive,
        "saved": len(report.saved),
        "restored": len(report.restored),
        "left_out": report.left_out,
        "fell_back": report.fell_back,
        "reseated": len(report.reseated),
        "in_place": report.anchors_in_place,
        "mapped_bytes": report.mapped_bytes,
        "content_bytes": report.content_bytes,
        "archive_bytes": sum(report.bytes_by_file.values()),
        "milliseconds": report.milliseconds,
        "kernel_caches": report.kernel_caches,
        "warnings": report.warnings,
        "differences": report.differences,
        "golden": report.golden,
        "verdicts": {verdict.graph: verdict.verdict for verdict in report.verdicts},
        "text": str(report),
    }
