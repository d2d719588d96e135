"""Settings of a robustness run: presets, changes, and what is refused."""

import pytest

from nearsure.errors import ConfigError
from nearsure.lab.robust.settings import (
    ROBUST,
    AdversarialTraining,
    RobustSettings,
    Variant,
    robust_settings,
)


def test_changes_replace_what_they_name_and_nothing_else() -> None:
    changes = {"small_steps": 3, "adversarial": {"epochs": 7}}
    found = robust_settings("glyphs", changes, source="x")
    preset = ROBUST["glyphs"]
    adversarial = preset.adversarial.model_copy(update={"epochs": 7.0})
    assert found == preset.model_copy(update={"small_steps": 3, "adversarial": adversarial})
    assert robust_settings("glyphs", {}, source="x") == preset


def test_a_data_set_without_a_preset_has_the_defaults() -> None:
    assert robust_settings("class-folders", {}, source="x") == RobustSettings()


@pytest.mark.parametrize("settings", [RobustSettings(), *ROBUST.values()])
def test_every_preset_attacks_with_the_paper_s_epsilons(settings: RobustSettings) -> None:
    assert settings.epsilons == (0.1, 0.3)
    assert RobustSettings.model_validate_json(settings.model_dump_json()) == settings


def test_no_more_queries_than_there_are() -> None:
    settings = RobustSettings(corrupted_queries=1000, attacked_queries=300)
    few = settings.for_queries(500)
    assert (few.corrupted_queries, few.attacked_queries) == (500, 300)
    every = RobustSettings(corrupted_queries=None, attacked_queries=None).for_queries(500)
    assert (every.corrupted_queries, every.attacked_queries) == (500, 500)
    assert settings.corrupted_queries == 1000


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epsilon": 0.1}, "there is no setting 'epsilon'; allowed are corrupted_queries, "),
        ({"adversarial": {"eps": 1}}, "no setting 'adversarial.eps'; allowed are epsilon, step"),
        ({"epsilons": [0.0]}, r"epsilons.0: .* greater than 0"),
        ({"epsilons": [0.1, 2]}, r"epsilons.1: .* less than or equal to 1"),
        ({"epsilons": [float("nan")]}, r"epsilons.0: .* finite number"),
        ({"small_epsilons": [-0.1]}, r"small_epsilons.0: .* greater than 0"),
        ({"epsilons": 0.1}, "epsilons: .* tuple"),
        ({"epsilons": [0.1, 0.1]}, "every epsilon once, not 0.1, 0.1, 0.1/255"),
        ({"small_epsilons": [0.3]}, "every epsilon once, not 0.1, 0.3, 0.3"),
        ({"small_epsilons": [2 / 255, 0.00784313725]}, "once, not 0.1, 0.3, 2/255, 2/255"),
        ({"corrupted_queries": 0}, "corrupted_queries: .* greater than or equal to 1"),
        ({"attacked_queries": 1.5}, "attacked_queries: .* integer"),
        ({"small_steps": 0}, "small_steps: .* greater than or equal to 1"),
        ({"adversarial": {"epsilon": 0}}, "adversarial.epsilon: .* greater than 0"),
        ({"adversarial": {"step": 0.5}}, r"step must not exceed the ball's width, 2 \* epsilon"),
        ({"adversarial": {"attacked_share": 0}}, "attacked_share: .* greater than 0"),
        ({"adversarial": {"ramp": 1.5}}, "ramp: .* less than or equal to 1"),
        ({"adversarial": 3}, "adversarial: "),
        ([], r"must be a table of settings\. Got \[\] instead"),
    ],
)
def test_mistakes_are_named(changes: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^mine.toml: .*{sentence}"):
        robust_settings("glyphs", changes, source="mine.toml")


def test_an_empty_list_leaves_attacks_out() -> None:
    assert robust_settings("glyphs", {"epsilons": []}, source="x").epsilons == ()


def test_a_step_across_the_ball_is_allowed() -> None:
    assert AdversarialTraining(epsilon=0.1, step=0.2).step == 0.2


@pytest.mark.parametrize("epsilons", [{"epsilons": (0.05,)}, {"small_epsilons": (0.2,)}])
def test_attacks_of_other_steps_do_not_meet_in_a_table(epsilons: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"epsilons must be 0.1 or more, and small_epsilons less"):
        robust_settings("cub200", epsilons, source="x.toml")


def test_they_name_themselves() -> None:
    assert str(Variant("clean", "clean")) == "clean"
    assert str(Variant("corruption", "fog", 5)) == "fog, severity 5"
    assert str(Variant("attack", "bim", epsilon=0.3)) == "bim, epsilon 0.3"
    assert str(Variant("attack", "pgd", epsilon=1 / 255)) == "pgd, epsilon 1/255"
