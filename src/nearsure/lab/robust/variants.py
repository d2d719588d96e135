"""One way in which the queries were changed."""

from dataclasses import dataclass
from typing import Literal, get_args

from nearsure.errors import InvalidInputError
from nearsure.robustness.image_checks import SEVERITIES

Family = Literal["clean", "corruption", "attack"]
# From here on an attack is of the size of the paper's; below, it is hardly seen.
LARGE_EPSILON = 0.1


@dataclass(frozen=True)
class Variant:
    """How the queries differ from the clean ones; `corruption` and `attack` make it.

    Parameters
    ----------
    family : {"clean", "corruption", "attack"}
        What kind of change.
    name : str
        "gaussian_noise", "fgsm" and the like.
    severity : int, optional
        Of a corruption, 1 to 5.
    epsilon : float, optional
        Largest change of a pixel that an attack was allowed, of pixels in [0, 1].
    mean_distance, max_distance : float, optional
        Largest change of a pixel that it made in an image, the mean and the maximum over images.
    n_without_gradient : int, optional
        Images whose gradient was zero at every step: they were not attacked.
    """

    family: Family
    name: str
    severity: int | None = None
    epsilon: float | None = None
    mean_distance: float | None = None
    max_distance: float | None = None
    n_without_gradient: int | None = None

    def __post_init__(self) -> None:
        if self.family not in get_args(Family):
            raise InvalidInputError(
                f"The 'family' parameter must be one of {get_args(Family)}. "
                f"Got {self.family!r} instead."
            )
        if (self.family == "corruption") != (self.severity is not None):
            raise InvalidInputError(
                f"A corruption, and nothing else, must have a severity. Got severity "
                f"{self.severity} of family {self.family!r} instead."
            )
        if self.severity is not None and self.severity not in SEVERITIES:
            raise InvalidInputError(
                f"The 'severity' parameter must be one of {SEVERITIES}. Got {self.severity} "
                "instead: clean queries are no corruption of severity 0."
            )
        if (self.family == "attack") != (self.epsilon is not None):
            raise InvalidInputError(
                f"An attack, and nothing else, must have an epsilon. Got epsilon "
                f"{self.epsilon} of family {self.family!r} instead."
            )
        if self.epsilon is not None and not 0 < self.epsilon <= 1:
            raise InvalidInputError(
                "The 'epsilon' parameter must lie in (0, 1], as pixels lie in [0, 1]. "
                f"Got {self.epsilon} instead: divide levels by 255."
            )

    @classmethod
    def corruption(cls, name: str, severity: int) -> "Variant":
        """A common corruption.

        Examples
        --------
        >>> str(Variant.corruption("gaussian_noise", 3))
        'gaussian_noise, severity 3'
        """
        return cls("corruption", name, severity=severity)

    @classmethod
    def attack(
        cls,
        name: str,
        epsilon: float,
        *,
        mean_distance: float | None = None,
        max_distance: float | None = None,
        n_without_gradient: int | None = None,
    ) -> "Variant":
        """An attack.

        Examples
        --------
        >>> str(Variant.attack("pgd", 8 / 255))
        'pgd, epsilon 8/255'
        """
        return cls(
            "attack",
            name,
            epsilon=epsilon,
            mean_distance=mean_distance,
            max_distance=max_distance,
            n_without_gradient=n_without_gradient,
        )

    def __str__(self) -> str:
        if self.severity is not None:
            return f"{self.name}, severity {self.severity}"
        if self.epsilon is not None:
            return f"{self.name}, epsilon {epsilon_text(self.epsilon)}"
        return self.name


CLEAN = Variant("clean", "clean")


def epsilon_text(epsilon: float) -> str:
    """A distance between pixels as people write it: in levels of 255 if these are round.

    Examples
    --------
    >>> epsilon_text(2 / 255), epsilon_text(0.3 / 255), epsilon_text(0.3)
    ('2/255', '0.3/255', '0.3')
    """
    levels = epsilon * 255
    if abs(levels - round(levels)) < 1e-6:  # noqa: PLR2004
        return f"{round(levels)}/255"
    if levels < 1 and abs(10 * levels - round(10 * levels)) < 1e-6:  # noqa: PLR2004
        return f"{levels:.1f}/255"
    return f"{epsilon:g}"
