// The top of the report: what was evaluated, the verdict, the headline numbers.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, heading, section, nothing, theme } = parts;
  const { missing, count, plural, percent, points, decimal, range, withRange } = parts;
  const ENOUGH = 20; // fewer answers than this say little about a claim
  const CLOSE_ENOUGH = 0.02; // a mean gap that hardly anybody would act upon

  function sureness(confidence) {
    return percent(confidence, confidence > 0.985 ? 1 : 0);
  }

  function isOff(bin) {
    const { low, high } = bin.accuracy;
    return !missing(low) && !missing(high) && (bin.confidence < low || bin.confidence > high);
  }

  // The claim that people ask about is 90%; without answers near it, the commonest claim.
  function tellingBin(bins) {
    const filled = bins.filter((bin) => bin.count > 0 && !missing(bin.accuracy.value));
    const distance = (bin) => Math.abs(bin.confidence - 0.9);
    const near = filled.filter((bin) => bin.count >= ENOUGH && distance(bin) <= 0.05);
    const nearest = (best, bin) => (distance(bin) < distance(best) ? bin : best);
    const commonest = (best, bin) => (bin.count > best.count ? bin : best);
    if (near.length > 0) return near.reduce(nearest);
    return filled.length > 0 ? filled.reduce(commonest) : null;
  }

  function judgement(report) {
    const ece = report.metrics.find((metric) => metric.key === "ece");
    const bins = report.reliability.filter((bin) => bin.count > 0);
    const total = bins.reduce((sum, bin) => sum + bin.count, 0);
    const surplus = bins.reduce((sum, bin) => sum + bin.count * (bin.confidence - bin.accuracy.value), 0) / total;
    const gap = ece && !missing(ece.estimate.value) ? ece.estimate.value : Math.abs(surplus);
    const byChance = ece && !missing(ece.floor) ? " (" + points(ece.floor) + " by chance alone)" : "";
    const size = "on average, confidence and accuracy differ by " + points(gap) + " points" + byChance;
    const fewOff = bins.filter(isOff).length <= Math.floor(0.1 * bins.length);
    if (gap <= CLOSE_ENOUGH) return ["The confidence is reliable", size];
    if (fewOff) return ["The confidence is reliable, as far as " + plural(total, "query", "queries") + " can show", size];
    return [surplus > 0 ? "The confidence is too high" : "The confidence is too low", size];
  }

  function verdict(report) {
    const bin = tellingBin(report.reliability);
    if (bin === null) return "There are no answers to judge.";
    const interval = range(bin.accuracy);
    const [judged, size] = judgement(report);
    return (
      "Of the matches with " + sureness(bin.confidence) + " confidence, " + sureness(bin.accuracy.value) +
      " were right" + (interval ? " (" + interval + ")" : "") + ". " + judged + ": " + size + "."
    );
  }

  function actable(report) {
    const kept = report.promises.filter((promise) => !missing(promise.threshold) && !missing(promise.coverage));
    if (kept.length === 0) return null;
    const best = kept.find((promise) => promise.precision === 0.99) || kept[kept.length - 1];
    const target = percent(best.precision).replace(".0%", "%");
    return (
      percent(best.coverage, 0) + " of the queries can be acted on without a second look if " + target +
      " of them must be right."
    );
  }

  // Whether the promise of the fit was kept: the first of the checks.
  function promiseCheck(report) {
    const [check] = report.checks || [];
    return check && element(
      "p", { class: "promise-check" + (check.verdict === "not kept" ? " promise-broken" : "") }, check.sentence,
    );
  }

  function evaluated(about) {
    const queries =
      about.queries === "leave-one-out"
        ? plural(about.n_queries, "point") + " of the gallery, each searched without itself,"
        : plural(about.n_queries, "held-out query", "held-out queries");
    return (
      queries + " against a gallery of " + plural(about.n_gallery, "point") + " in " +
      plural(about.n_classes, "class", "classes")
    );
  }

  function facts(about) {
    const pairs = [
      ["k", count(about.k)],
      ["dimension", count(about.dimension)],
      ["rule", about.rule],
      ["calibration", about.calibration],
      ["metric", about.metric],
      ["engine", about.engine],
      ["unknown expected", missing(about.unknown_share) ? "no" : percent(about.unknown_share)],
    ];
    return element(
      "dl",
      { class: "facts" },
      pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
    );
  }

  function head(context) {
    const { about } = context.report;
    const act = actable(context.report);
    const ownToggle = document.querySelector("[data-theme-toggle]") === null;
    return element(
      "header",
      { class: "report-head" },
      (ownToggle || !context.options.live) && element(
        "div",
        { class: "report-bar" },
        element("span", { class: "wordmark" }, "nearsure"),
        ownToggle && theme.button(context.whenTakenDown),
      ),
      heading(context, 1, about.title),
      element("p", { class: "evaluated" }, evaluated(about)),
      element(
        "div",
        { class: "verdict" },
        element("p", { class: "verdict-main" }, verdict(context.report)),
        act && element("p", { class: "verdict-act" }, act),
      ),
      promiseCheck(context.report),
      facts(about),
    );
  }

  // The calibration error has the interval of its debiased value, beside it.
  function rangeOf(metric, debiased) {
    if (metric.key === "ece" && debiased) return "debiased " + withRange(debiased.estimate) + ", 95% interval";
    const interval = range(metric.estimate, metric.percent);
    return interval === null ? "no interval" : interval + ", 95% interval";
  }

  function tile(metric, debiased) {
    const { estimate } = metric;
    const value = metric.percent ? percent(estimate.value) : decimal(estimate.value);
    const floor = metric.percent ? percent(metric.floor) : decimal(metric.floor);
    return element(
      "div",
      { class: "tile" },
      element("dt", { class: "tile-name" }, metric.title),
      element("dd", { class: "tile-value" }, value),
      element("dd", { class: "tile-range" }, rangeOf(metric, debiased)),
      !missing(metric.floor) &&
        element("dd", { class: "tile-range" }, floor + " would come by chance"),
      element("dd", { class: "tile-meaning" }, metric.meaning),
      metric.key !== "mean_confidence" && element(
        "dd",
        { class: "tile-better" },
        metric.lower_is_better ? "\u2193 lower is better" : "\u2191 higher is better",
      ),
    );
  }

  function headline(context) {
    const { metrics } = context.report;
    const debiased = metrics.find((metric) => metric.key === "debiased_ece");
    return section(
      context,
      "headline",
      "Headline numbers",
      null,
      metrics.length === 0
        ? nothing("There are no headline numbers.")
        : element("dl", { class: "tiles" }, metrics.filter((metric) => metric !== debiased).map((metric) => tile(metric, debiased))),
    );
  }

  function notes(context) {
    const { about } = context.report;
    return section(
      context,
      "notes",
      "Before you trust these numbers",
      null,
      about.notes.length === 0
        ? nothing("No warnings.")
        : element("ul", { class: "notes" }, about.notes.map((note) => element("li", {}, note))),
    );
  }

  Object.assign(parts, { head, headline, notes, verdict, isOff });
})();
