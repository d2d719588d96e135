// Does confidence match accuracy, and is another rule better?
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, section, nothing, plainTable, chartFigure } = parts;
  const { axis, baseOptions, legend, tooltip, intervalBars, hatching } = parts;
  const { missing, count, percent, points, decimal, withRange, isOff } = parts;

  const binName = (bin) => points(bin.low, 0) + " to " + percent(bin.high, 0);

  const binWords = (bin) => [
    count(bin.count) + " answers with " + percent(bin.confidence) + " confidence",
    withRange(bin.accuracy) + " right",
  ];
  const riskWords = (point) => percent(point.x, 0) + " accepted, " + percent(point.y) + " of them wrong";

  function reliability(context) {
    const bins = context.report.reliability.filter((bin) => bin.count > 0 && !missing(bin.accuracy.value));
    if (bins.length === 0) return nothing("There are no answers to draw a reliability diagram of.");
    const most = Math.max(...bins.map((bin) => bin.count));
    const radius = (bin) => 4 + 9 * Math.sqrt(bin.count / most);
    const columns = [
      { title: "Confidence", cell: binName, heads: true },
      { title: "Answers", cell: (bin) => count(bin.count), numeric: true },
      { title: "Claimed", cell: (bin) => percent(bin.confidence), numeric: true },
      { title: "Right (95% interval)", cell: (bin) => withRange(bin.accuracy), numeric: true },
      { title: "Beyond chance", cell: (bin) => (isOff(bin) ? "yes" : "no") },
    ];
    const series = (palette, label, chosen, colour, pointStyle) => ({
      label,
      data: chosen.map((bin) => ({
        x: bin.confidence, y: bin.accuracy.value, low: bin.accuracy.low, high: bin.accuracy.high, colour, bin,
      })),
      intervals: true,
      pointStyle,
      pointRadius: chosen.map(radius),
      pointHoverRadius: chosen.map(radius),
      backgroundColor: colour,
      borderColor: palette.surface,
      borderWidth: 1.5,
      clip: false,
    });
    return chartFigure(context, {
      name: "reliability",
      description:
        "Reliability diagram: the share of answers that were right against their confidence, " +
        "for " + bins.length + " groups of answers. The table below it has the numbers.",
      caption:
        "On the diagonal, accuracy equals confidence. Above it answers were right more often, below it less often. " +
        "Larger marks stand for more answers.",
      table: plainTable("Confidence and accuracy", columns, bins),
      configure: (palette) => ({
        type: "scatter",
        data: {
          datasets: [
            series(palette, "within chance", bins.filter((bin) => !isOff(bin)), palette.right, "circle"),
            series(palette, "off by more than chance", bins.filter(isOff), palette.wrong, "triangle"),
            {
              type: "line", label: "confidence = accuracy", data: [{ x: 0, y: 0 }, { x: 1, y: 1 }],
              borderColor: palette.muted, borderDash: [5, 5], borderWidth: 1.5, pointRadius: 0, pointHoverRadius: 0,
              pointStyle: "line", order: 1,
            },
          ],
        },
        options: baseOptions(palette, {
          interaction: { mode: "nearest", intersect: true },
          scales: {
            x: axis(palette, { title: "confidence", min: 0, max: 1, isPercent: true }),
            y: axis(palette, { title: "share that was right", min: 0, max: 1, isPercent: true }),
          },
          plugins: {
            tooltip: tooltip(palette, { title: () => "", label: (item) => binWords(item.raw.bin) }, (item) => item.raw.bin),
            legend: legend(palette, (item) => item.text !== "off by more than chance" || bins.some(isOff)),
          },
        }),
        plugins: [intervalBars],
      }),
    }).figure;
  }

  function histogram(context) {
    const bins = context.report.histogram;
    if (!bins.some((bin) => bin.right + bin.wrong > 0)) return nothing("There are no answers to count.");
    const columns = [
      { title: "Confidence", cell: binName, heads: true },
      { title: "Right", cell: (bin) => count(bin.right), numeric: true },
      { title: "Wrong", cell: (bin) => count(bin.wrong), numeric: true },
    ];
    const heights = bins.map((bin) => bin.right + bin.wrong).sort((one, other) => other - one);
    const state = { isMagnified: false };
    const magnify = element("input", {
      type: "checkbox",
      onchange: () => {
        state.isMagnified = magnify.checked;
        chart.redraw();
      },
    });
    const isUneven = heights[1] > 0 && heights[0] > 3 * heights[1];
    const chart = chartFigure(context, {
      name: "histogram",
      control: isUneven && element("label", { class: "magnify" }, magnify, " Magnify the low bars, and cut the tallest"),
      description:
        "Histogram: how many answers there are of each confidence, right and wrong ones on top of each other. " +
        "The table below it has the numbers.",
      caption: "Most answers far to the right: most answers are confident. Wrong answers belong to the left.",
      table: plainTable("Answers by confidence", columns, bins),
      configure: (palette) => ({
        type: "bar",
        data: {
          labels: bins.map(binName),
          datasets: [
            { label: "right", data: bins.map((bin) => bin.right), backgroundColor: palette.right, pointStyle: "rect" },
            {
              label: "wrong", data: bins.map((bin) => bin.wrong), backgroundColor: hatching(palette.wrong, palette.surface),
              borderColor: palette.wrong, borderWidth: 1, pointStyle: "rect",
            },
          ].map((dataset) => ({ ...dataset, categoryPercentage: 1, barPercentage: 0.94, stack: "answers" })),
        },
        options: baseOptions(palette, {
          interaction: { mode: "index", intersect: false },
          scales: {
            x: axis(palette, {
              type: "category", title: "confidence", stacked: true, grid: { display: false },
              ticks: {
                color: palette.muted, maxRotation: 0, autoSkip: true, align: "center",
                callback: (value, place) => points(bins[place].low, 0) + "\u2013" + points(bins[place].high, 0),
              },
            }),
            y: axis(palette, {
              title: "answers", stacked: true, max: state.isMagnified ? 1.15 * heights[1] : undefined,
              ticks: { color: palette.muted, precision: 0, callback: (value) => count(value) },
            }),
          },
          plugins: {
            legend: legend(palette),
            tooltip: tooltip(palette, { label: (item) => count(item.raw) + " " + item.dataset.label }),
          },
        }),
      }),
    });
    return chart.figure;
  }

  function calibration(context) {
    return section(
      context,
      "calibration",
      "Does confidence match accuracy?",
      null,
      element("div", { class: "pair" }, reliability(context), histogram(context)),
    );
  }

  // Numbers that are written alike are equally good: the mark goes to all of them.
  function bestOf(methods, key, write, lowerIsBetter) {
    const values = methods.map((method) => method[key].value).filter((value) => !missing(value));
    if (values.length === 0) return () => false;
    const best = write(lowerIsBetter ? Math.min(...values) : Math.max(...values));
    return (method) => write(method[key].value) === best;
  }

  function methodColumns(methods) {
    const measured = (title, key, write, isPercent, lowerIsBetter) => {
      const isBest = bestOf(methods, key, write, lowerIsBetter);
      return {
        title,
        numeric: true,
        cell: (method) =>
          isBest(method)
            ? element(
                "span",
                { class: "best" },
                withRange(method[key], isPercent),
                element("span", { class: "best-mark" }, " best"),
              )
            : withRange(method[key], isPercent),
      };
    };
    return [
      { title: "Method", cell: (method) => method.title, heads: true },
      measured("Accuracy (95% interval)", "accuracy", percent, true, false),
      measured("Calibration error, ECE", "ece", percent, true, true),
      { title: "Debiased ECE (95% interval)", cell: (method) => withRange(method.debiased_ece), numeric: true },
      { title: "ECE by chance", cell: (method) => percent(method.ece_floor), numeric: true },
      measured("Brier score", "brier", decimal, false, true),
    ];
  }

  const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [12, 4], [1, 4], [14, 3, 5, 3]];
  const MARKS = ["circle", "triangle", "rect", "rectRot", "crossRot", "star", "cross", "rectRounded"];

  function methodLine(palette, method, place, isOwn) {
    const last = method.risk_coverage.length - 1;
    const marked = (at) => at === last || (at > 0 && at % 12 === (2 * place) % 12);
    const colour = palette.series[place % palette.series.length];
    return {
      label: method.title,
      data: method.risk_coverage,
      borderColor: colour,
      backgroundColor: colour,
      borderWidth: isOwn ? 3.5 : 2,
      borderDash: DASHES[place % DASHES.length],
      pointStyle: MARKS[place % MARKS.length],
      pointRadius: method.risk_coverage.map((point, at) => (marked(at) ? 4.5 : 0)),
      pointHoverRadius: 5,
      clip: false,
      order: isOwn ? 0 : 1,
    };
  }

  function methodsChart(context, methods) {
    const drawn = methods.filter((method) => method.risk_coverage.length > 0);
    if (drawn.length === 0) return null;
    // The classifier itself takes the first look; the others keep their order behind it.
    const ordered = [...drawn].sort((one, other) => (other.name === "nearsure") - (one.name === "nearsure"));
    const columns = [
      { title: "Method", cell: (row) => row.title, heads: true },
      { title: "Accepted", cell: (row) => percent(row.x), numeric: true },
      { title: "Wrong among them", cell: (row) => percent(row.y), numeric: true },
    ];
    const rows = ordered.flatMap((method) => method.risk_coverage.map((point) => ({ title: method.title, ...point })));
    return chartFigure(context, {
      name: "methods",
      description:
        "Line chart: share of accepted answers that are wrong against the share accepted, one line for each of " +
        ordered.map((method) => method.title).join(", ") + ". The table below it has the numbers.",
      isWhole: true,
      caption: "Lower is better: fewer wrong answers among as many accepted.",
      table: plainTable("Risk and coverage of each method", columns, rows),
      configure: (palette) => ({
        type: "line",
        data: { datasets: ordered.map((method, place) => methodLine(palette, method, place, method.name === "nearsure")) },
        options: baseOptions(palette, {
          scales: {
            x: axis(palette, { title: "accepted, share of queries", min: 0, max: 1, isPercent: true }),
            y: axis(palette, { title: "wrong among accepted", min: 0, isPercent: true }),
          },
          plugins: {
            tooltip: tooltip(palette, { title: () => "", label: (item) => item.dataset.label + ": " + riskWords(item.raw) }),
            legend: legend(palette),
          },
        }),
      }),
    }).figure;
  }

  function methods(context) {
    const all = context.report.methods;
    return section(
      context,
      "methods",
      "Methods side by side",
      "Each rule on the same neighbours of the same queries; class means and logistic regression on their vectors.",
      all.length === 0 && nothing("No other rules were compared."),
      all.length > 0 &&
        element(
          "div", { class: "stack" },
          plainTable("Accuracy and calibration of each method, 95% intervals", methodColumns(all), all),
          methodsChart(context, all),
        ),
    );
  }

  Object.assign(parts, { calibration, methods });
})();
