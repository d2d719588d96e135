"""What a caller says about the columns of a file."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

LabelsWanted: TypeAlias = Literal["required", "optional", "none"]


@dataclass(frozen=True)
class Keys:
    """The names of columns that were given, and whether labels are wanted from this file."""

    vectors: str | None = None
    labels: str | None = None
    ids: str | None = None
    pictures: str | None = None
    wanted: LabelsWanted = "optional"

    @property
    def need_labels(self) -> bool:
        """Whether labels must be there."""
        return self.wanted == "required"

    @property
    def take_labels(self) -> bool:
        """Whether labels are taken where they are."""
        return self.wanted != "none"
