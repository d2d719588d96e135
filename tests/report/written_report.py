"""A report written by hand, with labels that would like to be markup."""

from nearsure.report import (
    About,
    Audit,
    ClassRow,
    ConfusablePair,
    Confused,
    Confusion,
    ConfusionCell,
    CurvePoint,
    DuplicatePair,
    Estimate,
    Example,
    Fit,
    GalleryMap,
    HistogramBin,
    Method,
    Metric,
    Mistake,
    OperatingPoint,
    Promise,
    PromiseCheck,
    ReliabilityBin,
    Report,
    SmallClass,
    SupportingNeighbor,
    Suspect,
)

HOSTILE = '<img src=x onerror="window.harmed=1">'
ALSO_HOSTILE = "</script><script>window.harmed=1</script>"
DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"  # one pixel
N_QUERIES = 1000
BROKEN = "The promise of 99% is not kept: 75.0% instead of 99%."


def about(notes: tuple[str, ...] = ()) -> About:
    return About(
        title=f"Birds {HOSTILE}",
        queries="held-out",
        n_queries=N_QUERIES,
        n_gallery=2000,
        n_classes=60,
        dimension=64,
        k=50,
        rule="adaptive",
        calibration="shrunk",
        metric="euclidean",
        engine="exact",
        unknown_share=None,
        nearsure_version="0.1.0",
        notes=notes,
    )


def operating_points() -> tuple[OperatingPoint, ...]:
    points = [
        OperatingPoint(
            threshold=0.0251 * place,
            accepted=N_QUERIES - 20 * place,
            coverage=1 - 0.02 * place,
            precision=Estimate(0.9 + place / 500, 0.88 + place / 500, 0.91 + place / 500),
        )
        for place in range(40)
    ]
    points[35] = OperatingPoint(0.8712345, 830, 0.83, Estimate(0.9904, 0.98601, 0.9931))
    certain = OperatingPoint(0.9987, 40, 0.04, Estimate(1.0, 0.912, 1.0))
    nobody = OperatingPoint(1.0, 0, 0.0, Estimate(None))
    return (nobody, *points, certain)  # in no order: the page sorts them


PROMISES = (
    Promise(0.95, 0.502, 0.6, "At least 95% right from 0.502 on."),
    Promise(0.99, 0.8712345, 0.83, "At least 99% right from 0.8712345 on."),
    Promise(0.999, None, None, f"Nothing can promise 99.9% {HOSTILE}."),
)


def class_rows() -> tuple[ClassRow, ...]:
    usual = [
        ClassRow(
            f"class-{place:02d}",
            n_gallery=30,
            n_queries=20 + place,
            accuracy=Estimate(0.4 + place / 100, 0.3, 0.99),
            mean_confidence=0.8,
            confused_with=(Confused(HOSTILE, 2), Confused("class-01", 1)),
        )
        for place in range(58)
    ]
    return (
        *usual,
        ClassRow(HOSTILE, 0, 5, Estimate(0.0, 0.0, 0.52), 0.4, ()),
        ClassRow(7, 30, 3, Estimate(None), 0.9, ()),
    )


def mistakes() -> tuple[Mistake, ...]:
    return tuple(
        Mistake(
            id=f"query {place} {HOSTILE}",
            label=HOSTILE,
            truth=ALSO_HOSTILE,
            confidence=0.99 - place / 100,
            neighbors=tuple(
                SupportingNeighbor(
                    rank, HOSTILE if rank and place != 2 else 7, 0.5 + rank, 0.25 - rank / 40, DOT
                )
                for rank in range(7)
            ),
            picture="https://example.invalid/tracker.png" if place == 1 else DOT,
            # Neighbours alone, both, none of the class, a class that came after the fit.
            p_neighbors=(None, 0.62, 0.0, 0.3)[place % 4],
            p_head=(None, 0.91, 0.88, None)[place % 4],
        )
        for place in range(8)
    )


def audit() -> Audit:
    suspects = tuple(
        Suspect(place, HOSTILE, ALSO_HOSTILE if place else None, 0.01, 0.9, 0.02, DOT)
        for place in range(10)
    )
    return Audit(
        n_points=2000,
        n_wrong=15,
        n_wrong_low=8,
        n_wrong_high=25,
        n_suspects=25,
        n_duplicates=1,
        n_small=1,
        suspects=suspects,
        duplicates=(DuplicatePair(1, 2, HOSTILE, "a", 0.0),),
        confusable=(ConfusablePair(HOSTILE, "a", 0.25),),
        small=(SmallClass(HOSTILE, 1, 1, None),),
    )


def methods() -> tuple[Method, ...]:
    line = tuple(CurvePoint((place + 1) / 20, place / 200) for place in range(20))
    return (
        Method("1nn", "1NN", Estimate(0.9), Estimate(0.1), Estimate(0.2), 0.0, line[-1:]),
        Method(
            "knn",
            "kNN",
            Estimate(0.8, 0.754, 0.841),
            Estimate(0.2),
            Estimate(0.3, 0.262, 0.341),
            0.01,
            line,
            Estimate(0.19, 0.158, 0.231),
        ),
        Method("nearsure", "nearsure", Estimate(0.9002), Estimate(0.01), Estimate(0.1), None, line),
    )


def whole_report() -> Report:
    accuracy = Estimate(0.9, 0.88, 0.92)
    return Report(
        about=about((f"Beware {HOSTILE}",)),
        metrics=(
            Metric("accuracy", "Accuracy", accuracy, False, True, "Share that is right."),  # noqa: FBT003
            Metric("ece", "ECE", Estimate(0.012, -0.001, 0.02), True, True, "Gap.", 0.01),  # noqa: FBT003
            Metric("brier", "Brier", Estimate(None), True, False, "Error."),  # noqa: FBT003
        ),
        reliability=(
            ReliabilityBin(0.4, 0.6, 50, 0.5, Estimate(0.8, 0.7, 0.9)),
            ReliabilityBin(0.8, 1.0, 950, 0.9, Estimate(0.912, 0.895, 0.93)),
        ),
        histogram=(
            HistogramBin(0.0, 0.5, 10, 20),
            HistogramBin(0.5, 1.0, 890, 80),
        ),
        operating_points=operating_points(),
        promises=PROMISES,
        methods=methods(),
        classes=class_rows(),
        mistakes=mistakes(),
        audit=audit(),
        fit=Fit(
            temperature=0.2,
            ned_temperature=0.1,
            standard_error=0.01,
            status="interior",
            objective="nll",
            n_points=2000,
            n_missed=20,
            miss_fraction=0.01,
            curve=tuple(CurvePoint(10.0**place, (place + 1) ** 2 + 1.0) for place in range(-4, 3)),
            parameters={"gamma": 1.5},
            head="means",
            head_choice="Class means are used beside the neighbours.",
        ),
        checks=(PromiseCheck(0.99, 0.8, 80, Estimate(0.75, 0.64, 0.84), "not kept", BROKEN),),
        confusion=Confusion(
            labels=(HOSTILE, "class-01"),
            cells=(
                ConfusionCell(0, 0, 3),
                ConfusionCell(0, 1, 2, (Example(HOSTILE, 0.8, DOT), Example(7, 0.6, text=HOSTILE))),
                ConfusionCell(1, 1, 9),
            ),
            n_confused=5,
            n_wrong=40,
            n_shown=2,
        ),
        map=GalleryMap(
            n_points=2000,
            explained=(0.3, 0.1),
            labels=(HOSTILE, "class-01"),
            ids=(0, 1, 2, 3),
            codes=(0, 0, 1, 1),
            x=(-1.0, -0.5, 0.5, 1.0),
            y=(0.1, 0.2, 0.3, -0.4),
            queries=(CurvePoint(0.0, 0.0), CurvePoint(0.1, 0.1)),
        ),
    )


def empty_report() -> Report:
    return Report(
        about=about(),
        metrics=(),
        reliability=(),
        histogram=(),
        operating_points=(),
        promises=(),
        methods=(),
        classes=(),
        mistakes=(),
        audit=None,
        fit=None,
    )
