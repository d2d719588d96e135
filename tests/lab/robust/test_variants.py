"""Variants: what they must say of themselves."""

import pytest

from nearsure.errors import InvalidInputError
from nearsure.lab.robust.settings import CLEAN, Variant


def test_they_name_themselves() -> None:
    assert str(CLEAN) == "clean"
    assert str(Variant.corruption("fog", 5)) == "fog, severity 5"
    assert str(Variant.attack("bim", 0.3)) == "bim, epsilon 0.3"
    assert str(Variant.attack("pgd", 1 / 255)) == "pgd, epsilon 1/255"


@pytest.mark.parametrize("severity", [0, 6])
def test_severity_is_one_to_five(severity: int) -> None:
    with pytest.raises(InvalidInputError, match=f"must be one of .* Got {severity} instead"):
        Variant.corruption("fog", severity)


@pytest.mark.parametrize("epsilon", [0.0, -0.1, 8.0])
def test_epsilon_is_of_pixels_in_0_to_1(epsilon: float) -> None:
    with pytest.raises(InvalidInputError, match="'epsilon' parameter must lie in"):
        Variant.attack("pgd", epsilon)


def test_only_corruptions_have_severities_and_only_attacks_epsilons() -> None:
    with pytest.raises(InvalidInputError, match="severity"):
        Variant("attack", "pgd", severity=1, epsilon=0.1)
    with pytest.raises(InvalidInputError, match="epsilon"):
        Variant("corruption", "fog", severity=1, epsilon=0.1)
    with pytest.raises(InvalidInputError, match="severity"):
        Variant("corruption", "fog")
    with pytest.raises(InvalidInputError, match="epsilon"):
        Variant("attack", "pgd")
    with pytest.raises(InvalidInputError, match="'family'"):
        Variant("noise", "fog")  # type: ignore[arg-type]
