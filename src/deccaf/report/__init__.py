"""Pages and pictures in one style.

- `page`: a `Report` is one self-contained HTML page of sections.
- `figures`, `calibration`, `people`, `plans`, `staffing`: pictures in one style; drawing needs the extra
  `report` (matplotlib).
"""

from typing import TYPE_CHECKING

from deccaf.optional import lazy_names

if TYPE_CHECKING:
    from deccaf.report.calibration import reliability_grid, reliability_picture
    from deccaf.report.figures import as_pdf, as_png, can_draw, canvas, finish, heatmap
    from deccaf.report.page import Report, Section
    from deccaf.report.people import people_picture, people_report
    from deccaf.report.plans import plan_picture
    from deccaf.report.staffing import staffing_picture

__all__ = [
    "Report",
    "Section",
    "as_pdf",
    "as_png",
    "can_draw",
    "canvas",
    "finish",
    "heatmap",
    "people_picture",
    "people_report",
    "plan_picture",
    "reliability_grid",
    "reliability_picture",
    "staffing_picture",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "deccaf.report.calibration": "reliability_grid reliability_picture",
        "deccaf.report.figures": "as_pdf as_png can_draw canvas finish heatmap",
        "deccaf.report.page": "Report Section",
        "deccaf.report.people": "people_picture people_report",
        "deccaf.report.plans": "plan_picture",
        "deccaf.report.staffing": "staffing_picture",
    },
)
