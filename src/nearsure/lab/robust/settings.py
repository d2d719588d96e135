"""Settings of a robustness run, and the variants of its queries."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from nearsure.errors import ConfigError
from nearsure.lab.config import Settings, Share, apply_changes

if TYPE_CHECKING:
    from typing import Self

Family = Literal["clean", "corruption", "attack"]
# What the two models of a run are called.
CLEAN_TRAINED = "clean-trained"
ADVERSARIALLY_TRAINED = "adversarially trained"
# From here on an attack is of the size of the paper's; below, it is hardly seen.
LARGE_EPSILON = 0.1


@dataclass(frozen=True)
class Variant:
    """How the queries differ from the clean ones.

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

    Examples
    --------
    >>> str(Variant("corruption", "gaussian_noise", severity=3))
    'gaussian_noise, severity 3'
    >>> str(Variant("attack", "pgd", epsilon=8 / 255))
    'pgd, epsilon 8/255'
    """

    family: Family
    name: str
    severity: int | None = None
    epsilon: float | None = None
    mean_distance: float | None = None
    max_distance: float | None = None
    n_without_gradient: int | None = None

    def __str__(self) -> str:
        if self.severity is not None:
            return f"{self.name}, severity {self.severity}"
        if self.epsilon is not None:
            return f"{self.name}, epsilon {epsilon_text(self.epsilon)}"
        return self.name


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


Epsilon = Annotated[float, Field(gt=0, le=1)]
PIXEL = 1 / 255


class AdversarialTraining(Settings):
    """Training on attacked images, from where the training on clean ones ended.

    Parameters
    ----------
    epsilon, step, n_steps
        Of the PGD (random start) against the training loss and its proxies.
    ramp : float
        Share of the steps in which epsilon, and the step with it, rises from 0. An attack at full
        strength from the first step on drives a trained network to one point for all images.
    attacked_share : float
        Share of the images of every class of a batch that is attacked; the others stay clean.
    epochs, learning_rate, proxy_learning_rate
        As of `TrainingSettings`; batches and crops are those of the training on clean images.
    """

    epsilon: Epsilon = 2 * PIXEL
    step: float = Field(default=1.25 * PIXEL, gt=0, le=1)
    n_steps: int = Field(default=2, ge=1)
    ramp: float = Field(default=0.5, ge=0, le=1)
    attacked_share: Share = 0.5
    epochs: float = Field(default=2.0, gt=0)
    learning_rate: float = Field(default=1e-4, gt=0)
    proxy_learning_rate: float = Field(default=1e-3, gt=0)

    @model_validator(mode="after")
    def _reaches_its_ball(self) -> "Self":
        if self.step > 2 * self.epsilon:
            raise ValueError("step must not exceed the ball's width, 2 * epsilon")
        return self


class RobustSettings(Settings):
    """A robustness run.

    Parameters
    ----------
    corrupted_queries, attacked_queries : int, optional
        How many queries are damaged; None for all. Of corruptions the default has every query of
        the strict protocol of CUB-200 (2,962) and CARS196 (4,061), and is about 25 minutes of two
        cores at 224 pixels.
    epsilons : tuple of float
        Of the paper's Table 3: FGSM, BIM (10 steps of 0.02), PGD (40 steps of 0.01).
    small_epsilons : tuple of float
        Of the curves: PGD and the attack on the confidence, `small_steps` steps of a quarter of
        epsilon each. The first two are the paper's on the scale from 0 to 255, on which its
        accuracies would be less of a riddle.
    small_steps : int
        Steps of the latter.
    adversarial : AdversarialTraining
        Of the second model.
    """

    corrupted_queries: int | None = Field(default=4096, ge=1)
    attacked_queries: int | None = Field(default=1000, ge=1)
    epsilons: tuple[Epsilon, ...] = (0.1, 0.3)
    small_epsilons: tuple[Epsilon, ...] = tuple(levels * PIXEL for levels in (0.1, 0.3, 1, 2, 4, 8))
    small_steps: int = Field(default=6, ge=1)
    adversarial: AdversarialTraining = AdversarialTraining()

    @model_validator(mode="after")
    def _every_epsilon_once(self) -> "Self":
        # PGD has all of them, and results are distinguished by their text in a table.
        texts = [epsilon_text(epsilon) for epsilon in self.epsilons + self.small_epsilons]
        if len(set(texts)) < len(texts):
            raise ValueError(
                f"epsilons and small_epsilons must name every epsilon once, not {', '.join(texts)}"
            )
        # Tables tell them apart by size, and their steps differ.
        smallest, largest = min(self.epsilons, default=1), max(self.small_epsilons, default=0)
        if smallest < LARGE_EPSILON or largest >= LARGE_EPSILON:
            raise ValueError(
                f"epsilons must be {LARGE_EPSILON} or more, and small_epsilons less, as their "
                "attacks take other steps"
            )
        return self

    def for_queries(self, n: int) -> "Self":
        """The same with at most `n` queries, the number that a data set has."""
        fewer = {
            name: min(n, getattr(self, name) or n)
            for name in ("corrupted_queries", "attacked_queries")
        }
        return self.model_copy(update=fewer)


# Of data sets of photographs the default; how they were chosen: docs/adr/0010.
ROBUST: dict[str, RobustSettings] = {
    "glyphs": RobustSettings(
        corrupted_queries=None,
        attacked_queries=1000,
        adversarial=AdversarialTraining(
            epsilon=0.1,
            step=0.04,
            n_steps=4,
            epochs=4,
            learning_rate=1e-3,
            proxy_learning_rate=1e-2,
        ),
    )
}


def robust_settings(dataset: str, changes: object, *, source: str) -> RobustSettings:
    """The settings of a data set with nested changes, checked as a whole.

    Parameters
    ----------
    dataset : str
        Which.
    changes : dict
        Settings that replace the preset's.
    source : str
        What the changes are called in messages.
    """
    if not isinstance(changes, dict):
        raise ConfigError(f"{source}: robust must be a table of settings. Got {changes!r} instead.")
    preset = ROBUST.get(dataset, RobustSettings())
    return apply_changes(preset, changes, source=source)
