// From which confidence on may one act? A slider over thresholds that were really measured.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, section, nothing, chartFigure, plainTable, axis, baseOptions, legend, tooltip, guides } = parts;
  const { missing, count, percent, threshold, range, withRange } = parts;

  function sentence(point) {
    const interval = range(point.precision);
    return (
      "accept above " + threshold(point.threshold) + ": " + percent(point.coverage, 0) + " of queries, " +
      percent(point.precision.value) + " right" + (interval === null ? "" : " (" + interval + ")")
    );
  }

  function riskOf(point) {
    return missing(point.precision.value) ? null : 1 - point.precision.value;
  }

  // Few accepted answers have intervals up to 100%: they must not flatten the rest.
  function highestRisk(points) {
    const lowest = ({ low, value }) => (missing(low) ? value : low);
    const highs = points.filter((point) => point.coverage >= 0.15).map((point) => 1 - lowest(point.precision));
    const risks = points.filter((point) => point.coverage >= 0.02).map(riskOf);
    return Math.min(1, 1.1 * Math.max(0.01, ...highs, ...risks));
  }

  function riskChart(context, points, state, move) {
    const drawn = points.filter((point) => riskOf(point) !== null);
    const at = (point, value) => ({ x: point.coverage, y: missing(value) ? null : 1 - value });
    const top = highestRisk(drawn);
    const here = () => {
      const point = points[state.place];
      const risk = riskOf(point);
      return risk === null ? null : { x: point.coverage, y: risk };
    };
    const columns = [
      { title: "Accept above", cell: (point) => point.threshold.toFixed(6), heads: true },
      { title: "Accepted", cell: (point) => count(point.accepted), numeric: true },
      { title: "Share of queries", cell: (point) => percent(point.coverage), numeric: true },
      { title: "Right among them (95% interval)", cell: (point) => withRange(point.precision), numeric: true },
    ];
    return chartFigure(context, {
      name: "risk",
      description:
        "Line chart: share of accepted answers that are wrong, against the share of queries that are accepted. " +
        "The table below it has the numbers.",
      caption:
        "Stricter to the left, laxer to the right. The band is each point's own 95% interval.",
      table: plainTable("What each threshold accepts", columns, points),
      configure: (palette) => ({
        type: "line",
        data: {
          datasets: [
            {
              label: "accepted here",
              data: [here()].filter(Boolean),
              pointStyle: "rectRot",
              pointRadius: 9,
              pointHoverRadius: 9,
              backgroundColor: palette.marker,
              borderColor: palette.surface,
              pointBorderWidth: 2,
              showLine: false,
              clip: false,
              order: 0,
            },
            {
              label: "wrong among accepted",
              data: drawn.map((point) => at(point, point.precision.value)),
              borderColor: palette.right,
              backgroundColor: palette.right,
              borderWidth: 2.5,
              pointRadius: drawn.length === 1 ? 4 : 0,
              pointHoverRadius: 4,
              pointStyle: "line",
              order: 1,
            },
            {
              label: "95% interval",
              data: drawn.map((point) => at(point, point.precision.low)),
              borderWidth: 0,
              pointRadius: 0,
              pointHoverRadius: 0,
              pointStyle: "rect",
              backgroundColor: palette.band,
              fill: "+1",
              order: 2,
            },
            {
              label: "",
              data: drawn.map((point) => at(point, point.precision.high)),
              borderWidth: 0,
              pointRadius: 0,
              pointHoverRadius: 0,
              order: 3,
            },
          ],
        },
        options: baseOptions(palette, {
          scales: {
            x: axis(palette, { title: "accepted, share of queries", min: 0, max: 1, isPercent: true }),
            y: axis(palette, { title: "wrong among accepted", min: 0, max: top, isPercent: true }),
          },
          onClick: (event, active, chart) => move(chart.scales.x.getValueForPixel(event.x)),
          plugins: {
            legend: legend(palette, (item) => item.text !== ""),
            tooltip: tooltip(
              palette,
              { title: () => "", label: (item) => sentence(drawn[item.dataIndex]) },
              (item) => item.datasetIndex === 1,
            ),
          },
        }),
        plugins: [guides(here, palette.marker), {
          id: "follow",
          beforeUpdate: (chart) => {
            chart.data.datasets[0].data = [here()].filter(Boolean);
          },
        }],
      }),
    });
  }

  function shareBar() {
    const pieces = ["right", "wrong", "left"].map((name) => element("span", { class: "split-" + name }));
    const names = ["accepted and right", "accepted but wrong", "left for a person"];
    const values = names.map(() => element("strong"));
    const legend = element(
      "ul",
      { class: "split-legend" },
      names.map((name, place) =>
        element("li", { class: "split-key-" + ["right", "wrong", "left"][place] }, values[place], " " + name),
      ),
    );
    return {
      bar: element(
        "div",
        { class: "split" },
        element("div", { class: "split-bar", "aria-hidden": "true" }, pieces),
        legend,
      ),
      show(point, total) {
        const right = missing(point.precision.value) ? 0 : Math.round(point.accepted * point.precision.value);
        const numbers = [right, point.accepted - right, Math.max(0, total - point.accepted)];
        numbers.forEach((number, place) => {
          pieces[place].style.flexGrow = String(number);
          values[place].textContent = count(number);
        });
      },
    };
  }

  function promiseButtons(promises, choose) {
    return promises.map((promise) => {
      const target = percent(promise.precision).replace(".0%", "%");
      return element(
        "button",
        {
          type: "button", class: "button promise", "aria-pressed": "false",
          "aria-disabled": missing(promise.threshold) ? "true" : null,
          onclick: () => choose(promise),
        },
        "promise " + target,
      );
    });
  }

  // The least strict point that is at least as strict as was asked for.
  function placeOf(points, wanted) {
    const place = points.findIndex((point) => point.threshold >= wanted - 1e-12);
    return place === -1 ? points.length - 1 : place;
  }

  function firstPlace(context, points) {
    const { threshold: inUse } = context.options;
    if (!missing(inUse)) return placeOf(points, inUse);
    const kept = context.report.promises.filter((promise) => !missing(promise.threshold));
    const promise = kept.find((each) => each.precision === 0.99) || kept[kept.length - 1];
    return promise ? placeOf(points, promise.threshold) : Math.floor(points.length / 2);
  }

  function panel(context, points) {
    const { report, options } = context;
    const state = { place: firstPlace(context, points) };
    const id = context.prefix + "threshold";
    const spoken = element("p", { class: "sentence", id: id + "-sentence" });
    const exact = element("p", { class: "exact" });
    const promised = element("p", { class: "promised", role: "status" });
    const split = shareBar();
    const slider = element("input", {
      type: "range", id: id, class: "slider", min: 0, max: points.length - 1, step: 1, value: state.place,
      oninput: () => go(Number(slider.value)),
    });
    const chart = riskChart(context, points, state, (coverage) => {
      const gaps = points.map((point) => Math.abs(point.coverage - coverage));
      go(gaps.indexOf(Math.min(...gaps)));
    });
    // Also strangers that the gallery rehearsed, which are no queries of the report.
    const total = Math.max(...points.map((point) => point.accepted));
    const buttons = promiseButtons(report.promises, choose);

    function go(place, promise) {
      state.place = place;
      const point = points[place];
      slider.value = String(place);
      slider.setAttribute("aria-valuetext", sentence(point));
      spoken.textContent = sentence(point);
      exact.textContent =
        "Exactly: confidence of at least " + point.threshold.toFixed(6) + ", which " + count(point.accepted) + " of " +
        count(total) + " answers reach.";
      split.show(point, total);
      const isKept = (each) => !missing(each.threshold) && placeOf(points, each.threshold) === place;
      const kept = report.promises.filter(isKept);
      buttons.forEach((button, number) => {
        button.setAttribute("aria-pressed", String(kept.includes(report.promises[number])));
      });
      promised.textContent =
        kept.length > 0
          ? (promise || kept[kept.length - 1]).sentence
          : "The interval is of this threshold alone. If you picked it by looking at many, take a promised one instead.";
      chart.update();
    }

    function choose(promise) {
      if (missing(promise.threshold)) promised.textContent = promise.sentence;
      else go(placeOf(points, promise.threshold), promise);
    }

    go(state.place);
    return element(
      "div",
      { class: "decision" },
      element(
        "div",
        { class: "decision-controls" },
        spoken,
        element("label", { for: id, class: "slider-name" }, "Threshold of confidence"),
        slider,
        element(
          "div",
          { class: "slider-ends", "aria-hidden": "true" },
          element("span", {}, "accept more"),
          element("span", {}, "accept less"),
        ),
        split.bar,
        exact,
        buttons.length > 0 &&
          element(
            "div",
            { class: "promises", role: "group", "aria-label": "Thresholds that keep a promise" },
            buttons,
          ),
        promised,
        options.onThreshold &&
          element(
            "button",
            {
              type: "button",
              class: "button button-main",
              onclick: () => options.onThreshold(points[state.place].threshold),
            },
            "Use this threshold",
          ),
      ),
      chart.figure,
    );
  }

  function decision(context) {
    const points = [...context.report.operating_points].sort((one, other) => one.threshold - other.threshold);
    return section(
      context,
      "decision",
      "When may I act on a match?",
      "Choose how sure a match must be. Answers below the threshold go to a person, or are queried again.",
      points.length === 0 ? nothing("There are no answers among which to choose a threshold.") : panel(context, points),
    );
  }

  parts.decision = decision;
})();
