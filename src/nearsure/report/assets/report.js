// Puts the parts together: window.nearsureReport.render(root, document, options).
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element } = parts;
  const takenDown = new WeakMap();
  let rendered = 0;

  const SECTIONS = [
    ["headline", "Numbers"],
    ["decision", "When to act"],
    ["calibration", "Calibration"],
    ["methods", "Methods"],
    ["classes", "Classes"],
    ["confusion", "Confusion"],
    ["map", "Map"],
    ["mistakes", "Mistakes"],
    ["audit", "Gallery"],
    ["fit", "Fit"],
    ["notes", "Notes"],
  ];

  // The address of a live page is its own: going to a part must not change it.
  function goTo(event, id) {
    event.preventDefault();
    const target = document.getElementById(id);
    target.scrollIntoView({ block: "start" });
    target.focus({ preventScroll: true });
  }

  function contents(context) {
    return element(
      "nav",
      { class: "contents", "aria-label": "Parts of the report" },
      element(
        "ul",
        {},
        SECTIONS.map(([name, title]) => {
          const id = context.prefix + name;
          return element("li", {}, element("a", { href: "#" + id, onclick: (event) => goTo(event, id) }, title));
        }),
      ),
    );
  }

  function foot(context) {
    const { report } = context;
    return element(
      "footer",
      { class: "report-foot" },
      "Made by nearsure " + report.about.nearsure_version + ", report schema " + report.schema_version +
        ". Intervals are of 95%. Everything on this page comes from the one document that it holds.",
    );
  }

  function takeDown(root) {
    const earlier = takenDown.get(root);
    if (earlier) earlier.forEach((step) => step());
    takenDown.delete(root);
    root.replaceChildren();
  }

  /**
   * Draw a report.
   *
   * @param {Element} root whatever it held is replaced
   * @param {object} report the document, see document.py
   * @param {object} options live, onRelabel(suspect, suggested), onRemove(suspect), onConfirm(suspect), threshold,
   *   onThreshold(threshold), onAsk(item), pictureOf(id), asked (a query for the map), sections (these alone)
   * @returns {function} takes the report down again
   */
  function render(root, report, options) {
    takeDown(root);
    rendered += 1;
    const context = {
      root,
      report,
      options: options || {},
      prefix: "report-" + rendered + "-",
      whenShown: [],
      whenTakenDown: [],
    };
    root.classList.add("nearsure-report");
    root.classList.toggle("is-live", Boolean(context.options.live));
    const { sections } = context.options;
    root.append(...(sections
      ? sections.map((name) => parts[name](context))
      : [parts.head(context), contents(context), ...SECTIONS.map(([name]) => parts[name](context)), foot(context)]));
    context.whenShown.forEach((draw) => draw());
    takenDown.set(root, context.whenTakenDown);
    return () => takeDown(root);
  }

  const { breakable, shares, surprise } = parts;
  window.nearsureReport = { render, breakable, shares, surprise, theme: { toggle: parts.theme.toggle, button: parts.theme.button } };

  const held = document.getElementById("report-data");
  if (held !== null) render(document.getElementById("report"), JSON.parse(held.textContent), { live: false });
})();
