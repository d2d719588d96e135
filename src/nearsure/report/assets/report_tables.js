// Tables: plain ones, and long ones that sort, filter and show one page at a time.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, count } = parts;

  // A column: {title, cell(row) -> text or element, numeric, heads (names its row), key(row) to sort by}.
  function bodyRow(columns, row) {
    return element(
      "tr",
      {},
      columns.map((column) =>
        element(
          column.heads ? "th" : "td",
          { class: column.numeric ? "numeric" : column.wide ? "wide" : null, scope: column.heads ? "row" : null },
          column.cell(row),
        ),
      ),
    );
  }

  function headCell(column, content) {
    return element("th", { scope: "col", class: column.numeric ? "numeric" : null }, content || column.title);
  }

  function framed(caption, head, body) {
    const table = element(
      "table",
      {},
      element("caption", { class: "for-readers" }, caption),
      element("thead", {}, element("tr", {}, head)),
      body,
    );
    return element("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": caption }, table);
  }

  function plainTable(caption, columns, rows) {
    return framed(
      caption,
      columns.map((column) => headCell(column)),
      element("tbody", {}, rows.map((row) => bodyRow(columns, row))),
    );
  }

  function compare(first, second) {
    if (first === second) return 0;
    if (parts.missing(first) && typeof first !== "string") return 1;
    if (parts.missing(second) && typeof second !== "string") return -1;
    if (typeof first === "number" && typeof second === "number") return first - second;
    return String(first).localeCompare(String(second), undefined, { numeric: true });
  }

  function sorted(rows, column, isDescending) {
    if (column === null) return rows;
    const keyed = rows.map((row) => [column.key(row), row]);
    keyed.sort((one, other) => (isDescending ? compare(other[0], one[0]) : compare(one[0], other[0])));
    return keyed.map((pair) => pair[1]);
  }

  function pager(move) {
    const back = element("button", { type: "button", class: "button", onclick: () => move(-1) }, "Previous");
    const on = element("button", { type: "button", class: "button", onclick: () => move(1) }, "Next");
    const where = element("span", { class: "pager-where", role: "status" });
    const bar = element("div", { class: "pager" }, back, where, on);
    return {
      bar,
      show(first, last, total, all, noun) {
        const found = total === all ? "" : " found among " + count(all);
        where.textContent =
          total === 0
            ? "No " + noun + " found among " + count(all)
            : count(first + 1) + " to " + count(last) + " of " + count(total) + found;
        const used = document.activeElement;
        back.disabled = first === 0;
        on.disabled = last >= total;
        // A button that can no longer be used would lose the keyboard's place.
        if (used === on && on.disabled) back.focus();
        if (used === back && back.disabled) on.focus();
        const isWhole = total <= last - first && total === all;
        bar.classList.toggle("pager-idle", isWhole);
      },
    };
  }

  // Rows are given in their first order; a head sorts by its column, and the other way when used again.
  function longTable({ caption, noun, columns, rows, pageSize, textOf }) {
    const texts = textOf ? new Map(rows.map((row) => [row, textOf(row).toLowerCase()])) : null;
    const state = { first: 0, column: null, isDescending: false, wanted: "", shown: rows };
    const body = element("tbody");
    const heads = columns.map((column) => {
      if (!column.key) return headCell(column);
      const made = headCell(
        column,
        element("button", { type: "button", class: "sort", onclick: () => sortBy(column) }, column.title),
      );
      return made;
    });
    const pages = pager((step) => {
      state.first += step * pageSize;
      show();
    });

    function show() {
      const last = Math.min(state.first + pageSize, state.shown.length);
      body.replaceChildren(...state.shown.slice(state.first, last).map((row) => bodyRow(columns, row)));
      pages.show(state.first, last, state.shown.length, rows.length, noun);
    }

    function choose() {
      const found = state.wanted === "" ? rows : rows.filter((row) => texts.get(row).includes(state.wanted));
      state.shown = sorted(found, state.column, state.isDescending);
      state.first = 0;
      show();
    }

    function sortBy(column) {
      const again = state.column === column;
      state.isDescending = again ? !state.isDescending : Boolean(column.descendingFirst);
      state.column = column;
      heads.forEach((head, place) => {
        if (columns[place] === column) {
          head.setAttribute("aria-sort", state.isDescending ? "descending" : "ascending");
        } else head.removeAttribute("aria-sort");
      });
      choose();
    }

    const search =
      texts &&
      element(
        "label",
        { class: "filter" },
        element("span", {}, "Filter"),
        element("input", {
          type: "search", autocomplete: "off", spellcheck: "false", placeholder: "part of a name",
          oninput: (event) => {
            state.wanted = event.target.value.trim().toLowerCase();
            choose();
          },
        }),
      );
    show();
    return element(
      "div", { class: "long-table" }, search, framed(caption, heads, body), pages.bar,
    );
  }

  Object.assign(parts, { plainTable, longTable, pager });
})();
