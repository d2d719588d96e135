// The gallery in two dimensions: its classes, suspect labels, and a query among its neighbours.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, section, nothing, label, chartFigure, axis, baseOptions, tooltip, theme } = parts;
  const { count, percent, decimal, significant, plainTable } = parts;
  const FEW = 10; // classes that have a legend
  const LISTED = 500;

  // Neighbouring numbers get far hues; dark grounds need light colours.
  function colourOf(place) {
    const light = theme.current() === "dark" && !theme.printing() ? 66 : 40;
    return "hsl(" + Math.round((place * 137.508) % 360) + " 65% " + (light + 7 * (place % 3)) + "%)";
  }

  // A path that goes back to the query after each neighbour.
  function rays(asked) {
    return asked.neighbors.flatMap((each) => [asked, each]);
  }

  function askedOf(report, place) {
    const { map, mistakes } = report;
    const rowOf = new Map(map.ids.map((id, row) => [String(id), row]));
    const mistake = mistakes[place];
    const rows = mistake.neighbors.map((each) => rowOf.get(String(each.id))).filter((row) => row !== undefined);
    return {
      words: mistake.truth + " taken for " + mistake.label + ", query " + mistake.id,
      ...map.queries[place],
      neighbors: rows.map((row) => ({ x: map.x[row], y: map.y[row] })),
    };
  }

  function datasets(palette, report, state) {
    const { map, audit } = report;
    const suspects = new Map((audit ? audit.suspects : []).map((each) => [String(each.id), each]));
    const points = map.ids.map((id, row) => ({
      x: map.x[row], y: map.y[row], id, label: map.labels[map.codes[row]], words: "item " + id + ", labelled " + map.labels[map.codes[row]],
    }));
    const isMuted = (row) => state.code !== null && map.codes[row] !== state.code;
    const colours = map.codes.map((code, row) => (isMuted(row) ? palette.line : colourOf(code)));
    const radius = points.length > 1500 ? 2.5 : 3.5;
    const doubted = points.filter((each) => suspects.has(String(each.id))).map((each) => ({
      ...each, words: each.words + ", looks like " + suspects.get(String(each.id)).suggested,
    }));
    const asked = state.asked;
    const mark = (label, data, rest) => ({ label, data, clip: false, ...rest });
    return [
      mark("query", asked ? [asked] : [], {
        pointStyle: "rectRot", pointRadius: 9, pointHoverRadius: 10, backgroundColor: palette.marker, borderColor: palette.surface, borderWidth: 2,
      }),
      mark("its neighbours", asked ? rays(asked) : [], {
        showLine: true, pointStyle: "line", pointRadius: 0, pointHoverRadius: 0, borderColor: palette.marker, borderWidth: 1.25,
      }),
      mark("confident mistakes", map.queries.map((at, place) => ({ ...at, words: askedOf(report, place).words })), {
        pointStyle: "crossRot", pointRadius: 6, pointHoverRadius: 8, borderColor: palette.marker, borderWidth: 2,
      }),
      mark("suspect labels", doubted, {
        pointStyle: "circle", pointRadius: 6.5, pointHoverRadius: 8, backgroundColor: "transparent", borderColor: palette.wrong, borderWidth: 2,
      }),
      mark("points", points, { pointRadius: radius, pointHoverRadius: radius + 2, backgroundColor: colours, borderWidth: 0 }),
    ].map((dataset, order) => ({ ...dataset, order }));
  }

  function choice(context, title, names, choose) {
    const id = context.prefix + "choice-" + names.length + title.length;
    const select = element("select", { id, onchange: () => choose(select.value === "" ? null : Number(select.value)) },
      names.map((name, place) => element("option", { value: place === 0 ? "" : place - 1 }, name)));
    return element("div", { class: "choice" }, element("label", { for: id }, title), select);
  }

  function legend(labels) {
    if (labels.length > FEW) return null;
    return element("ul", { class: "map-legend" }, labels.map((each, place) => {
      const dot = element("span", { class: "map-dot", "aria-hidden": "true" });
      dot.style.background = colourOf(place);
      return element("li", {}, dot, label(each));
    }));
  }

  // Where classes lie: the middle of each.
  function classTable(map) {
    const rows = map.labels.slice(0, LISTED).map((name) => ({ name, n: 0, x: 0, y: 0 }));
    map.codes.forEach((code, place) => {
      if (code >= rows.length) return;
      rows[code].n += 1;
      rows[code].x += map.x[place];
      rows[code].y += map.y[place];
    });
    return plainTable("Where classes lie on the map", [
      { title: "Class", cell: (row) => label(row.name), heads: true },
      { title: "Points", cell: (row) => count(row.n), numeric: true },
      { title: "Mean x", cell: (row) => decimal(row.x / row.n, 2), numeric: true },
      { title: "Mean y", cell: (row) => decimal(row.y / row.n, 2), numeric: true },
    ], rows);
  }

  function caption(map) {
    const part = map.ids.length < map.n_points
      ? count(map.ids.length) + " of " + count(map.n_points) + " points, drawn at random. "
      : "";
    return part + "The two directions in which vectors differ most hold " + percent(map.explained[0] + map.explained[1], 0) +
      " of their variance: points that are apart here are apart, points that lie together may not be.";
  }

  function map(context) {
    const { report, options } = context;
    const found = report.map;
    const title = "The gallery as a map";
    if (!found || found.ids.length === 0) return section(context, "map", title, null, nothing("There is no map of the gallery."));
    const state = { code: null, asked: options.asked || null };
    const change = (change) => {
      Object.assign(state, change);
      chart.redraw();
    };
    const component = (place) => ["first", "second"][place] + " component, " + significant(100 * found.explained[place], 2) + "% of the variance";
    const chart = chartFigure(context, {
      name: "map",
      isWhole: true,
      description:
        "Scatter plot of " + count(found.ids.length) + " points of the gallery, coloured by class. The table below it says where classes lie.",
      caption: caption(found),
      table: classTable(found),
      configure: (palette) => ({
        type: "scatter",
        data: { datasets: datasets(palette, report, state) },
        options: baseOptions(palette, {
          interaction: { mode: "nearest", intersect: true },
          onClick: (event, active) => {
            const point = active.length > 0 && active[0].element.$context.raw;
            if (point && point.id !== undefined && options.onAsk) options.onAsk({ id: point.id, label: point.label });
          },
          scales: {
            x: axis(palette, { title: component(0), ticks: { display: false }, grid: { display: false } }),
            y: axis(palette, { title: component(1), ticks: { display: false }, grid: { display: false } }),
          },
          plugins: {
            legend: parts.legend(palette, (item, data) => item.text !== "points" && data.datasets[item.datasetIndex].data.length > 0),
            tooltip: tooltip(palette, { label: (item) => item.raw.words }, (item, place) => place === 0 && Boolean(item.raw.words)),
          },
        }),
      }),
    });
    return section(
      context, "map", title, null,
      element("div", { class: "map-controls" },
        choice(context, "Class", ["all", ...found.labels], (code) => change({ code })),
        found.queries.length > 0 && choice(context, "A mistake and its neighbours", ["none", ...found.queries.map((_, place) => askedOf(report, place).words)],
          (place) => change({ asked: place === null ? options.asked || null : askedOf(report, place) }))),
      legend(found.labels),
      chart.figure,
    );
  }

  parts.map = map;
})();
