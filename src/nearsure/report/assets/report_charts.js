// A chart on the page: its frame, its words for those who do not see it, its colours and its print.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, theme, percent } = parts;
  const PAPER = { half: { width: 440, height: 340 }, whole: { width: 700, height: 320 } };
  const PAPER_SHARPNESS = 2; // about 250 dots an inch

  function axis(palette, settings) {
    const { title, isPercent, ticks, ...rest } = settings;
    return {
      type: "linear",
      title: { display: Boolean(title), text: title, color: palette.muted },
      grid: { color: palette.line, tickColor: palette.line },
      border: { color: palette.line },
      ticks: {
        color: palette.muted,
        maxRotation: 0,
        includeBounds: false,
        ...(isPercent ? { callback: (value) => percentTick(value) } : {}),
        ...ticks,
      },
      ...rest,
    };
  }

  function percentTick(value) {
    const text = percent(value, 1);
    return text.replace(".0%", "%");
  }

  // Lines are not switched off by a click: what a chart says and what its table says stay the same.
  function legend(palette, filter) {
    return {
      position: "bottom",
      align: "start",
      onClick: () => undefined,
      labels: {
        color: palette.ink, usePointStyle: true, boxHeight: 7, padding: 14, ...(filter ? { filter } : {}),
      },
    };
  }

  function tooltip(palette, callbacks, filter) {
    return {
      backgroundColor: palette.ink,
      titleColor: palette.surface,
      bodyColor: palette.surface,
      padding: 10,
      cornerRadius: 6,
      displayColors: false,
      callbacks,
      ...(filter ? { filter } : {}),
    };
  }

  function baseOptions(palette, settings) {
    return {
      responsive: true,
      maintainAspectRatio: false,
      animation: false,
      color: palette.ink,
      font: { family: palette.font, size: 12 },
      interaction: { mode: "nearest", intersect: false, axis: "x" },
      layout: { padding: { top: 6, right: 10 } },
      ...settings,
      plugins: {
        legend: legend(palette),
        tooltip: tooltip(palette, {}),
        ...(settings.plugins || {}),
      },
    };
  }

  function forPaper(config) {
    config.options.responsive = false;
    config.options.devicePixelRatio = PAPER_SHARPNESS;
    return config;
  }

  // `configure(palette)` returns a new configuration: colours are part of it.
  function drawnOn(context, canvas, configure, paper) {
    let chart = null;
    function draw() {
      if (chart !== null) chart.destroy();
      canvas.removeAttribute("style");
      if (theme.printing()) {
        canvas.width = paper.width;
        canvas.height = paper.height;
        chart = new window.Chart(canvas, forPaper(configure(theme.palette())));
      } else {
        chart = new window.Chart(canvas, configure(theme.palette()));
      }
    }
    context.whenShown.push(draw);
    context.whenTakenDown.push(theme.onChange(draw), () => chart !== null && chart.destroy());
    return { update: () => chart !== null && chart.update("none"), redraw: () => chart !== null && draw() };
  }

  function figure(context, { name, description, caption, configure, table, control, isWhole }) {
    const canvas = element("canvas", { role: "img", "aria-label": description, class: "chart-canvas" });
    const handle = drawnOn(context, canvas, configure, isWhole ? PAPER.whole : PAPER.half);
    const made = element(
      "figure",
      { class: "chart chart-" + name },
      element("div", { class: "chart-frame" }, canvas),
      control,
      caption && element("figcaption", {}, caption),
      table && element("details", { class: "numbers" }, element("summary", {}, "Numbers"), table),
    );
    return { figure: made, update: handle.update, redraw: handle.redraw };
  }

  Object.assign(parts, { axis, baseOptions, legend, tooltip, chartFigure: figure });
})();
