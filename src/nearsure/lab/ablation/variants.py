"""What is compared, by name: a base that scores neighbours, and a step that follows it."""

from dataclasses import dataclass
from typing import Self

from nearsure.comparison import TITLES
from nearsure.errors import InvalidInputError

RAW = "raw"
CALIBRATOR_STEPS = ("isotonic", "platt", "shrunk", "beta", "histogram", "bbq")
TEMPERATURE = "temperature"
MISSED_SHARE = "missed share"
MISSED_BY_CONFIDENCE = "missed by confidence"

UNCORRECTED = ", uncorrected"
CLASS_VARIANCE = "class variance"
DIAGONAL = "class covariance, diagonal"
FULL = "class covariance, full"

BASE_TITLES: dict[str, str] = {
    **dict(TITLES.items()),
    "sharpened": "Sharpened",
    f"sharpened{UNCORRECTED}": "Sharpened, uncorrected",
    "adaptive": "Adaptive",
    f"adaptive{UNCORRECTED}": "Adaptive, uncorrected",
    CLASS_VARIANCE: "Class variance",
    DIAGONAL: "Class covariance, diagonal",
    FULL: "Class covariance, full",
}
STEP_TITLES = {
    RAW: "",
    **{step: step for step in CALIBRATOR_STEPS},
    "platt": "Platt",
    "bbq": "BBQ",
    TEMPERATURE: "temperature",
    MISSED_SHARE: "missed share",
    MISSED_BY_CONFIDENCE: "missed by confidence",
}


@dataclass(frozen=True)
class Variant:
    """One competitor.

    Parameters
    ----------
    base : str
        What makes a posterior of neighbours; a key of `BASE_TITLES`.
    step : str
        What is done to the posterior, fitted on leave-one-out scores; a key of `STEP_TITLES`.

    Examples
    --------
    >>> Variant("gou", "platt").title
    'WkNN (Gou) + Platt'
    >>> Variant.from_name("gou + platt") == Variant("gou", "platt")
    True
    """

    base: str
    step: str = RAW

    def __post_init__(self) -> None:
        for name, allowed in (("base", BASE_TITLES), ("step", STEP_TITLES)):
            if getattr(self, name) not in allowed:
                raise InvalidInputError(
                    f"The '{name}' of a variant must be one of {list(allowed)}. "
                    f"Got {getattr(self, name)!r} instead."
                )

    @property
    def name(self) -> str:
        """For files."""
        return self.base if self.step == RAW else f"{self.base} + {self.step}"

    @property
    def title(self) -> str:
        """For tables."""
        title, step = BASE_TITLES[self.base], STEP_TITLES[self.step]
        return f"{title} + {step}" if step else title

    @classmethod
    def from_name(cls, name: str) -> Self:
        """The inverse of `name`."""
        base, _, step = name.partition(" + ")
        return cls(base, step or RAW)


def _forms(name: str) -> tuple[Variant, ...]:
    steps = (RAW, "shrunk", "platt", "isotonic", "beta")
    return (Variant(f"{name}{UNCORRECTED}"), *(Variant(name, step) for step in steps))


BASELINE_RULES = ("1nn", "knn", "dudani", "gou")
RAW_BASELINES = tuple(map(Variant, BASELINE_RULES))
# Without 1NN: its confidence is always 1, and calibrated it is the base rate, the same number for
# every query. The ECE of that is about 0, and says nothing.
CALIBRATED_BASELINES = tuple(
    Variant(rule, step) for rule in BASELINE_RULES[1:] for step in (*CALIBRATOR_STEPS, TEMPERATURE)
)
NED = Variant("ned")
# What NEDClassifier does if nothing is said.
DEFAULT = Variant("adaptive", "shrunk")
VARIANTS = (
    *RAW_BASELINES,
    *CALIBRATED_BASELINES,
    NED,
    *(Variant("ned", step) for step in (*CALIBRATOR_STEPS, TEMPERATURE)),
    Variant("ned", MISSED_SHARE),
    Variant("ned", MISSED_BY_CONFIDENCE),
    *_forms("sharpened"),
    *_forms("adaptive"),
    Variant(CLASS_VARIANCE),
    Variant(DIAGONAL),
)
# Minutes where the others take seconds; measured on fewer splits.
SLOW_VARIANTS = (Variant(FULL),)
# What the default is put together from, one part at a time.
LADDER = (
    NED,
    Variant(f"sharpened{UNCORRECTED}"),
    Variant(f"adaptive{UNCORRECTED}"),
    Variant("adaptive"),
    DEFAULT,
)
# What is said about every condition.
MAIN_VARIANTS = (
    *RAW_BASELINES,
    NED,
    Variant("gou", "isotonic"),
    Variant("gou", "platt"),
    Variant("ned", "platt"),
    Variant("sharpened"),
    Variant("sharpened", "shrunk"),
    Variant("adaptive"),
    DEFAULT,
)
