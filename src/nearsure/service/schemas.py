"""What requests and answers look like; the OpenAPI document is made of these."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat

from nearsure.report.document import LARGEST_INTEGER as LARGEST_COUNTED

# An id or a label. Beyond what a browser counts exactly, integers travel as text.
Label = Annotated[
    str | Annotated[int, Field(ge=-LARGEST_COUNTED, le=LARGEST_COUNTED)],
    Field(
        description="Text, or an integer; one beyond +-(2^53 - 1), which JSON readers such as "
        "browsers would round, as text. Send either as text."
    ),
]
# What an item may be called: printable, so that it can stand in an address and in a log.
ItemId = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
LabelText = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
# Lists stop at the first thing that is wrong: millions of mistakes would take gigabytes to tell.
LARGEST_VECTOR = 65_536
Vector = Annotated[
    list[FiniteFloat], Field(min_length=1, max_length=LARGEST_VECTOR, fail_fast=True)
]


def _whole(value: object) -> object:
    """2.0 is an integer to JSON Schema, though not to a strict reader."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, BeforeValidator(_whole)]


class Message(BaseModel):
    """Base of everything that comes or goes; unknown fields are refused, not ignored."""

    model_config = ConfigDict(extra="forbid")


class Problem(Message):
    """Every answer that is no success: what was wrong, and what to do."""

    error: str
    message: str


class Query(Message):
    """Exactly one of vector, item and text."""

    vector: Vector | None = Field(None, examples=[[0.1, 0.7, 0.2]])
    item: ItemId | None = Field(
        None, description="An item of the gallery, which leaves itself out."
    )
    text: Annotated[str, Field(min_length=1, max_length=10_000)] | None = Field(
        None, description="Where a text encoder is configured."
    )
    neighbors: Count = Field(10, ge=0, le=1000, description="How many neighbours to show at most.")
    classes: Count = Field(5, ge=1, le=1000, description="How many classes to show at most.")


class BatchQuery(Message):
    """Several vectors at once."""

    vectors: Annotated[list[Vector], Field(min_length=1, fail_fast=True)]
    neighbors: Count = Field(0, ge=0, le=1000)
    classes: Count = Field(1, ge=1, le=1000)


class ClassShare(Message):
    """A class and its probability."""

    label: Label
    probability: float


class NeighborShown(Message):
    """A gallery item that vouches for the answer, and its share of the vote in [0, 1]."""

    id: Label
    label: Label
    sq_distance: float
    share: float


class Answer(Message):
    """What a query is taken for, how sure that is, and why."""

    label: Label
    confidence: float = Field(description="Probability that the label is right, in [0, 1].")
    accepted: bool | None = Field(
        description="Whether confidence reaches the threshold in use; null if none is set."
    )
    verdict: Literal["known", "ambiguous", "unknown"] | None = Field(
        description="null unless unknown queries are expected."
    )
    p_known: float | None
    classes: list[ClassShare]
    neighbors: list[NeighborShown]
    model: int = Field(description="Number of the fit that answered; it grows with each refit.")


class BatchAnswer(Message):
    """One answer for each vector."""

    answers: list[Answer]


class Neighborhood(Message):
    """The gallery items nearest to a query."""

    neighbors: list[NeighborShown]


class NewItem(Message):
    """A labelled vector; without an id it is given one."""

    id: ItemId | None = None
    label: LabelText
    vector: Vector


class NewItems(Message):
    """Added all or none."""

    items: Annotated[list[NewItem], Field(min_length=1, fail_fast=True)]


class Added(Message):
    """The ids of the new items, in their order."""

    ids: list[Label]


class Item(Message):
    """An item of the gallery."""

    id: Label
    label: Label
    vector: list[float] | None = None


class ItemPage(Message):
    """Some items in the order of their ids; `next` continues."""

    items: list[Item]
    next: str | None
    total: int


class NewLabel(Message):
    """What an item shall be called from now on."""

    label: LabelText


class Relabelling(Message):
    """Several items at once, all or none."""

    ids: Annotated[list[ItemId], Field(min_length=1, fail_fast=True)]
    label: LabelText


class Removal(Message):
    """Several items at once, all or none."""

    ids: Annotated[list[ItemId], Field(min_length=1, fail_fast=True)]


class Changed(Message):
    """How many items a change touched."""

    changed: int


class Model(Message):
    """The fit that answers."""

    model: int
    size: int
    n_classes: int
    dimension: int
    k: int
    rule: str
    metric: str
    temperature: float | None
    unknown_share: float | None
    engine: dict[str, str | int | float | bool | None]
    share_changed: float = Field(description="Share of the gallery that changed since the fit.")
    encoder: Literal["image", "text"] | None
    threshold: float | None
    writable: bool = Field(description="Whether the token of this request may change anything.")


class RefitState(Message):
    """Whether a fit is under way, and how the last one ended."""

    state: Literal["idle", "running", "failed"]
    model: int
    message: str | None = None


class Threshold(Message):
    """From which confidence answers are accepted."""

    threshold: float | None = Field(description="null: nothing can be accepted at this target.")
    precision: float | None = Field(description="The target it was chosen for, if any.")
    sentence: str


class NewThreshold(Message):
    """Exactly one: a confidence, or the precision that is to be promised; neither: no threshold."""

    threshold: Annotated[FiniteFloat, Field(ge=0, le=1)] | None = None
    precision: Annotated[FiniteFloat, Field(gt=0, lt=1)] | None = None


class InTheMaking(Message):
    """What was asked for is being made; ask again after the seconds of Retry-After."""

    status: Literal["making"]


class Status(Message):
    """Alive or ready, or why not."""

    status: Literal["ok", "starting", "stopping", "unavailable"]
    reason: str | None = Field(None, description="Why the gallery is unavailable.")
