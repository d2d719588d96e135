// Every class, worst first.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, section, nothing, label, bar, longTable } = parts;
  const { count, percent, withRange, missing } = parts;
  const PAGE = 25;

  function accuracyCell(row) {
    return element(
      "span", { class: "measured" }, bar(row.accuracy.value), element("span", {}, withRange(row.accuracy)),
    );
  }

  function confusedCell(row) {
    if (row.confused_with.length === 0) return parts.DASH;
    const shown = row.confused_with.slice(0, 3);
    const rest = row.confused_with.length - shown.length;
    return element(
      "ul",
      { class: "confused" },
      shown.map((each) => element("li", {}, label(each.label), " \u00d7 " + count(each.count))),
      rest > 0 && element("li", {}, "and " + count(rest) + " more"),
    );
  }

  function classCell(context, row) {
    const name = parts.classButton(context, row.label);
    return row.n_gallery === 0
      ? element("span", {}, name, element("span", { class: "tag" }, "not in the gallery"))
      : name;
  }

  const columnsOf = (context) => [
    { title: "Class", cell: (row) => classCell(context, row), key: (row) => String(row.label), heads: true },
    { title: "Right (95% interval)", cell: accuracyCell, key: (row) => row.accuracy.value },
    {
      title: "Mean confidence", numeric: true,
      cell: (row) => percent(row.mean_confidence), key: (row) => row.mean_confidence,
    },
    {
      title: "Queries", numeric: true, descendingFirst: true,
      cell: (row) => count(row.n_queries), key: (row) => row.n_queries,
    },
    { title: "In the gallery", cell: (row) => count(row.n_gallery), key: (row) => row.n_gallery, numeric: true },
    { title: "Taken for", cell: confusedCell, wide: true },
  ];

  function worstFirst(rows) {
    const rank = (row) => (missing(row.accuracy.value) ? 2 : row.accuracy.value);
    return [...rows].sort((one, other) => rank(one) - rank(other) || other.n_queries - one.n_queries);
  }

  function classes(context) {
    const rows = worstFirst(context.report.classes);
    return section(
      context,
      "classes",
      "Classes, worst first",
      "A class of few queries has a wide interval: read that before its percentage.",
      rows.length === 0
        ? nothing("There are no labelled queries, so single classes cannot be measured.")
        : longTable({
            caption: "Accuracy of each class", noun: "class", columns: columnsOf(context), rows, pageSize: PAGE,
            textOf: (row) => String(row.label),
          }),
    );
  }

  parts.classes = classes;
})();
