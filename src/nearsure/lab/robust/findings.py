"""What the numbers say, in sentences that are computed: also where NED loses."""

from collections.abc import Mapping

import numpy as np

from nearsure.comparison import TITLES
from nearsure.lab.protocols import ProtocolName
from nearsure.lab.robust.attack_tables import CONFIDENCE_ATTACK, AttackKey
from nearsure.lab.robust.cells import percent, points, stated
from nearsure.lab.robust.corruption_tables import mean_of_corruptions
from nearsure.lab.robust.methods import NED
from nearsure.lab.robust.outcomes import MethodResult, Outcome
from nearsure.lab.robust.robust_evaluation import RobustEvaluation
from nearsure.lab.robust.variants import epsilon_text
from nearsure.metrics import Interval

# The paper has mean ECEs of 0.9 to 3.0% on corrupted and 1.9 to 3.6% on attacked images.
CLAIMED_ECE = 0.04
ASKED: dict[ProtocolName, str] = {
    "all_against_others": "each changed image asks all other points, clean; its own clean image is "
    "left out",
    "gallery_and_queries": "changed images of one half of every class ask the other half, clean",
    "given_gallery": "changed images ask the data set's own gallery, clean",
}


def circumstances(evaluation: RobustEvaluation) -> str:
    """What was asked of whom, and what was left as it was."""
    fit = evaluation.temperature_fit
    unknown = (
        f" ({evaluation.n_unknown_queries:,} of a class that the gallery lacks)"
        if evaluation.n_unknown_queries
        else ""
    )
    return (
        f"**{evaluation.model}**: {ASKED[evaluation.protocol]}. {evaluation.n_queries:,} "
        f"queries{unknown}, {evaluation.n_gallery:,} points of {evaluation.n_classes:,} classes in "
        f"the gallery, k = {evaluation.k}. The gallery, T = {fit.temperature:.4g} and the "
        "calibrators are those of the clean images; no changed image had a part in them."
    )


def corruption_findings(evaluation: RobustEvaluation) -> list[str]:
    """Sentences about the corrupted queries of one model by one protocol."""
    mean = mean_of_corruptions(evaluation)
    ned, clean = mean.of(NED), evaluation.clean.of(NED)
    level = (
        f"NED's mean ECE over {mean.n_variants} variants is {stated(ned.ece)}, "
        f"{_against_claim(ned.ece)}; on the clean queries it is {stated(clean.ece)}. "
    )
    return [
        level + _floor(ned),
        _share_below(evaluation),
        _direction(evaluation.clean, mean),
        *_ranking(mean),
    ]


def attack_findings(evaluation: RobustEvaluation) -> list[str]:
    """Sentences about the attacked queries of one model by one protocol."""
    by_attack = {AttackKey.of(entry.variant): entry.outcome for entry in evaluation.attacks}
    neds = {attack: outcome.of(NED) for attack, outcome in by_attack.items()}
    below = sum(result.ece.estimate < CLAIMED_ECE for result in neds.values())
    worst = max(neds, key=lambda attack: neds[attack].ece.estimate)
    lowest = min(neds, key=lambda attack: neds[attack].accuracy.estimate)
    clean = evaluation.clean.of(NED)
    raw_best = sum(
        outcome.lowest_ece([r.method for r in outcome.results if r.method.calibration == "raw"])
        == outcome.of(NED)
        for outcome in by_attack.values()
    )
    best = sum(outcome.lowest_ece() == outcome.of(NED) for outcome in by_attack.values())
    clean_text = (
        f"Without an attack NED is right in {stated(clean.accuracy)} with an ECE of "
        f"{stated(clean.ece)}. {_floor(clean)}"
    )
    extremes = (
        f"Its accuracy is lowest under {_named(lowest)}, {stated(neds[lowest].accuracy)}; its "
        f"ECE is highest under {_named(worst)}, {stated(neds[worst].ece)}."
    )
    ranks = (
        f"Its ECE is below {_claim()} in {below} of {len(neds)} attacks. It is the lowest of the "
        f"five rules in {raw_best} of {len(neds)}, and of all methods, calibrated ones among "
        f"them, in {best}."
    )
    return [clean_text, extremes, ranks, *_confidence_attack(by_attack)]


def gradient_notes(evaluation: RobustEvaluation) -> list[str]:
    """A warning if attacks could not start on some images."""
    stuck = [
        f"{_named(AttackKey.of(entry.variant))}: {entry.variant.n_without_gradient:,}"
        for entry in evaluation.attacks
        if entry.variant.n_without_gradient
    ]
    if not stuck:
        return []
    note = (
        f"**Not attacked ({evaluation.model})**: of {evaluation.n_queries:,} images some had a "
        f"gradient of zero at every step ({'; '.join(stuck)}). These images were "
        "not attacked; that they are still right is no evidence of robustness."
    )
    return [note]


def _claim() -> str:
    return f"{100 * CLAIMED_ECE:g}%"


def _against_claim(ece: Interval) -> str:
    side = "below" if ece.estimate < CLAIMED_ECE else "not below"
    if ece.high < CLAIMED_ECE:
        where = "wholly below"
    elif ece.low >= CLAIMED_ECE:
        where = "wholly above"
    else:
        where = "on both sides of"
    return f"{side} {_claim()} (the interval, which takes chance's bias off, is {where} it)"


def _floor(result: MethodResult) -> str:
    excess = 100 * (result.ece.estimate - result.ece_floor)
    text = (
        "A perfectly calibrated forecaster with the same confidences would show "
        f"{100 * result.ece_floor:.2f}% by chance; NED's is {excess:+.2f} points from that."
    )
    if result.ece_floor >= CLAIMED_ECE:
        text += f" With so few queries NED cannot be expected below {_claim()}."
    return text


def _share_below(evaluation: RobustEvaluation) -> str:
    """In how many variants, and at which severities, the claim holds."""
    found = [(e.variant.severity, e.outcome.of(NED).ece) for e in evaluation.corruptions]
    below = [severity for severity, ece in found if ece.estimate < CLAIMED_ECE]
    above = sum(ece.low >= CLAIMED_ECE for _, ece in found)
    shares = ", ".join(
        f"{below.count(severity)} of {outcome.n_variants} at severity {severity}"
        for severity, outcome in evaluation.by_severity.items()
    )
    held = [s for s, o in evaluation.by_severity.items() if o.of(NED).ece.estimate < CLAIMED_ECE]
    where = f"at severity {_listed(held)}" if held else "at no severity"
    return (
        f"Its ECE is below {_claim()} in {len(below)} of {len(found)} variants ({shares}); in "
        f"{above} of them the whole interval is above. The mean over corruptions is below "
        f"{_claim()} {where}."
    )


def _direction(clean: Outcome, damaged: Outcome) -> str:
    """Whether NED claims too much or too little."""
    before, after = clean.of(NED), damaged.of(NED)
    word = _confident(after.overconfidence)
    return (
        f"On corrupted queries NED claims {stated(after.confidence)} in the mean and is right in "
        f"{stated(after.accuracy)}: {word}, {points(after.overconfidence)} points. On clean ones "
        f"it is {_confident(before.overconfidence)}, {points(before.overconfidence)} points."
    )


def _ranking(mean: Outcome) -> list[str]:
    """Which method is best at what, and whether NED's distance from it is more than chance."""
    best = mean.lowest_ece()
    constant = " It says the same of every query." if best.method.rule == "1nn" else ""
    floor = f"floor {100 * best.ece_floor:.2f}%"
    text = f"Lowest mean ECE: {best.method.title}, {stated(best.ece)}, {floor}"
    if best.method != NED:
        text += f", {points(best.ece_less_ned)} points from NED's, {_chance(best.ece_less_ned)}"
    brier = min(mean.results, key=lambda result: result.top_label_brier.estimate)
    right = max(mean.results, key=lambda result: result.accuracy.estimate)
    accuracy = f"Most often right: {TITLES[right.method.rule]}, {stated(right.accuracy)}"
    if right.method.rule != NED.rule:
        gain = right.accuracy_less_ned
        accuracy += f", {points(gain)} points from NED, {_chance(gain)}"
    squares = (
        f"Lowest top-label Brier score, times 100: {brier.method.title}, "
        f"{percent(brier.top_label_brier)}"
    )
    if brier.method != NED:
        squares += f"; NED has {percent(mean.of(NED).top_label_brier)}"
    return [f"{text}.{constant}", f"{squares}.", f"{accuracy}."]


def _confidence_attack(by_attack: Mapping[AttackKey, Outcome]) -> list[str]:
    """How the attack on the confidence compares with plain ones of the same size."""

    def share(attack: AttackKey) -> str:
        return f"{100 * by_attack[attack].of(NED).confidently_wrong.estimate:.2f}%"

    found = []
    for attack in by_attack:
        plain = [
            f"{other.title} {share(other)}"
            for other in by_attack
            if other.epsilon == attack.epsilon and other.name != CONFIDENCE_ATTACK
        ]
        if attack.name == CONFIDENCE_ATTACK and plain:
            others = ", ".join(plain)
            found.append(f"{share(attack)} at epsilon {epsilon_text(attack.epsilon)} ({others})")
    if not found:
        return []
    shares = "; ".join(found)
    return [f"The attack on the confidence makes NED confidently wrong in {shares}."]


def _named(attack: AttackKey) -> str:
    return f"{attack.title} with epsilon {epsilon_text(attack.epsilon)}"


def _confident(gap: Interval) -> str:
    if gap.low > 0:
        return "over-confident"
    return "under-confident" if gap.high < 0 else "neither over- nor under-confident for sure"


def _chance(difference: Interval) -> str:
    clear = difference.low > 0 or difference.high < 0
    return "more than chance explains" if clear else "which chance may explain"


def _listed(numbers: list[int]) -> str:
    texts = [str(int(number)) for number in np.sort(numbers)]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
