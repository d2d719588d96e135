"""Variants: what they must say of themselves."""

from nearsure.lab.robust.settings import Variant


def test_they_name_themselves() -> None:
    assert str(Variant("clean", "clean")) == "clean"
    assert str(Variant("corruption", "fog", 5)) == "fog, severity 5"
    assert str(Variant("attack", "bim", epsilon=0.3)) == "bim, epsilon 0.3"
    assert str(Variant("attack", "pgd", epsilon=1 / 255)) == "pgd, epsilon 1/255"
