// How T was found, and how well the gallery determines it.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, section, nothing, chartFigure, plainTable, axis, baseOptions, guides } = parts;
  const { missing, count, percent, significant } = parts;

  const STATUS = {
    interior: "inside the range that was searched",
    low: "at its low end: only the nearest neighbour counts",
    high: "at its high end: all neighbours count alike",
    flat: "nowhere: the loss does not depend on T",
  };
  const OBJECTIVE = {
    nll: "mean negative log-likelihood",
    brier: "Brier score",
    top_label: "log-likelihood of the answer being right",
  };
  const PARAMETERS = {
    gamma: "Sharpness gamma (1 is the paper's formula, more is more confident)",
    beta: "Adaptivity beta (how far T follows the distances around a query: 0 not at all, 1 in proportion)",
    typical_sq_distance: "Squared distance at which T is the one above",
  };
  const objectiveName = (fit) => OBJECTIVE[fit.objective] || fit.objective;

  function facts(fit) {
    const hasError = !missing(fit.standard_error) && !missing(fit.ned_temperature);
    const error = hasError ? " \u00b1 " + significant(fit.standard_error, 2) : "";
    const pairs = [
      ["T of the rule in use", significant(fit.temperature)],
      ["T of NED (\u00b1 standard error)", significant(fit.ned_temperature) + error],
      ["Where the minimum lies", fit.status === null ? parts.DASH : STATUS[fit.status] || fit.status],
      ["Minimised", objectiveName(fit)],
      ["Points of the fit", count(fit.n_points)],
      ["Missed: no neighbour of their own class", count(fit.n_missed) + " (" + percent(fit.miss_fraction) + ")"],
      ...Object.entries(fit.parameters).map(([name, value]) => [PARAMETERS[name] || name.replace(/_/g, " "), significant(value)]),
    ];
    return element(
      "dl", { class: "fit-facts" },
      pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
    );
  }

  const isRound = (value) => ["1", "2", "5"].includes(value.toExponential().split("e")[0]);

  function nearest(curve, x) {
    return curve.reduce((best, point) =>
      Math.abs(Math.log(point.x / x)) < Math.abs(Math.log(best.x / x)) ? point : best,
    );
  }

  // At a tiny T the loss is enormous, at a huge one bounded: drawn whole, the valley would be pressed flat.
  function highestDrawn(curve) {
    const losses = curve.map((point) => point.y);
    const lowest = Math.min(...losses);
    const cut = lowest + 1.5 * (losses[losses.length - 1] - lowest);
    return cut > lowest && cut < Math.max(...losses) ? cut : undefined;
  }

  function curveChart(context, fit) {
    const curve = fit.curve.filter((point) => point.x > 0 && !missing(point.y));
    if (curve.length === 0) return nothing("The loss was not recorded against T.");
    const top = highestDrawn(curve);
    const marked = missing(fit.ned_temperature) ? null : { x: fit.ned_temperature };
    const columns = [
      { title: "T", cell: (point) => significant(point.x, 4), heads: true },
      { title: "Loss", cell: (point) => significant(point.y, 5), numeric: true },
    ];
    const where = marked ? " The minimum is at T = " + significant(marked.x) + "." : "";
    return chartFigure(context, {
      name: "fit",
      description: "Line chart: loss of NED against its temperature T on a logarithmic axis." + where,
      caption:
        "A deep valley: the gallery determines T well. A flat one: T hardly matters." +
        (marked ? " The dashed line is T = " + significant(marked.x) + "." : "") +
        (top === undefined ? "" : " Higher losses are cut off."),
      table: plainTable("Loss against T", columns, curve),
      configure: (palette) => ({
        type: "line",
        data: {
          datasets: [
            {
              label: "loss", data: curve, borderColor: palette.right, backgroundColor: palette.right, borderWidth: 2.5,
              pointRadius: 2.5, pointHoverRadius: 4, order: 1,
            },
            ...(marked
              ? [{
                  label: "T = " + significant(marked.x), data: [{ x: marked.x, y: nearest(curve, marked.x).y }],
                  backgroundColor: palette.marker, borderColor: palette.surface, pointBorderWidth: 2,
                  pointStyle: "rectRot", pointRadius: 8, pointHoverRadius: 8, showLine: false, order: 0,
                }]
              : []),
          ],
        },
        options: baseOptions(palette, {
          scales: {
            x: axis(palette, {
              type: "logarithmic", title: "T, logarithmic",
              min: Math.min(curve[0].x, marked ? marked.x : Infinity),
              max: Math.max(curve[curve.length - 1].x, marked ? marked.x : 0),
              ticks: {
                color: palette.muted, maxRotation: 0, autoSkip: true,
                callback: (value) => (isRound(value) ? significant(value, 1) : null),
              },
            }),
            y: axis(palette, { title: objectiveName(fit), max: top }),
          },
        }),
        plugins: [guides(() => marked, palette.marker)],
      }),
    }).figure;
  }

  function fit(context) {
    const found = context.report.fit;
    const title = "The fit";
    if (found === null || found === undefined) {
      return section(context, "fit", title, null, nothing("Nothing was fitted here."));
    }
    return section(
      context,
      "fit",
      title,
      "T says how quickly a neighbour's weight falls with its distance. It is fitted on the gallery alone.",
      found.head_choice && element("p", { class: "fit-head" }, found.head_choice),
      element("div", { class: "pair pair-fit" }, facts(found), curveChart(context, found)),
    );
  }

  parts.fit = fit;
})();
