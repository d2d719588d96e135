// The matrix of confused classes, and a window for a cell of it or a class.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, section, heading, nothing, label, picture } = parts;
  const { count, plural, percent, withRange } = parts;

  function itemName(context, id, itemLabel) {
    const { onAsk } = context.options;
    if (!onAsk) return label(id);
    const ask = () => {
      context.window.close();
      onAsk({ id, label: itemLabel });
    };
    return element("button", { type: "button", class: "plain-button", onclick: ask }, label(id));
  }

  function examples(context, all, itemLabel) {
    const { pictureOf } = context.options;
    return element("ul", { class: "examples" }, all.map((each) =>
      element("li", {},
        picture(each.picture, "Item " + each.id, "", each.text) || (pictureOf && pictureOf(each.id)),
        element("p", { class: "fine" }, itemName(context, each.id, itemLabel)),
        element("p", { class: "fine" }, each.words || percent(each.confidence, 0) + " sure"))));
  }

  function open(context, title, ...content) {
    if (!context.window) {
      context.window = element("dialog", { class: "report-window" });
      context.root.append(context.window);
    }
    const id = context.prefix + "window";
    context.window.setAttribute("aria-labelledby", id);
    context.window.replaceChildren(
      element("div", { class: "window-head" }, heading(context, 3, title, id),
        element("button", { type: "button", class: "button", onclick: () => context.window.close() }, "Close")),
      ...content.flat().filter(Boolean),
    );
    context.window.showModal();
  }

  function openCell(context, cell) {
    const { labels } = context.report.confusion;
    const [truth, answer] = [labels[cell.truth], labels[cell.answer]];
    const rest = cell.count - cell.examples.length;
    open(context, truth + " taken for " + answer,
      element("p", {}, plural(cell.count, "query", "queries") + ", most confident first."),
      examples(context, cell.examples, truth),
      rest > 0 && element("p", { class: "fine" }, "and " + count(rest) + " more"));
  }

  function block(context, title, content) {
    return content && element("div", {}, heading(context, 4, title), content);
  }

  function names(all) {
    return all.length > 0 && element("ul", { class: "confused" }, all.map(([name, number]) =>
      element("li", {}, label(name), " \u00d7 " + count(number))));
  }

  // A class by itself: its size, how well it does, what it is confused with, its suspects.
  function openClass(context, name) {
    const { classes, audit } = context.report;
    const row = classes.find((each) => each.label === name);
    const takenFor = row.confused_with.map((each) => [each.label, each.count]);
    const taken = classes.flatMap((each) => each.confused_with.filter((one) => one.label === name).map((one) => [each.label, one.count]));
    const suspects = (audit ? audit.suspects : []).filter((each) => each.label === name || each.suggested === name).map((each) => ({
      ...each, words: each.label === name ? ["looks like ", label(each.suggested)] : ["labelled ", label(each.label)],
    }));
    const facts = [
      ["in the gallery", count(row.n_gallery)],
      ["asked about", count(row.n_queries)],
      ["right", withRange(row.accuracy)],
      ["mean confidence", percent(row.mean_confidence)],
    ];
    open(context, String(name),
      element("dl", { class: "facts" }, facts.map(([title, value]) => element("div", {}, element("dt", {}, title), element("dd", {}, value)))),
      block(context, "Taken for", names(takenFor)),
      block(context, "Others taken for it", names(taken.sort((one, other) => other[1] - one[1]))),
      block(context, "Suspect labels", suspects.length > 0 && examples(context, suspects, name)),
      block(context, "Examples", row.examples && row.examples.length > 0 && examples(context, row.examples, name)));
  }

  function classButton(context, name) {
    return element("button", { type: "button", class: "plain-button", onclick: () => openClass(context, name) }, label(name));
  }

  function cellOf(context, cell, most) {
    if (cell === undefined) return element("td");
    if (cell.truth === cell.answer) return element("td", { class: "matrix-right" }, count(cell.count));
    const { labels } = context.report.confusion;
    const made = element("td", { class: "matrix-wrong" }, element("button",
      { type: "button", class: "plain-button", "aria-label": cell.count + " of " + labels[cell.truth] + " taken for " + labels[cell.answer], onclick: () => openCell(context, cell) },
      count(cell.count)));
    made.style.setProperty("--part", Math.round(12 + 33 * (cell.count / most)) + "%");
    return made;
  }

  function confusion(context) {
    const found = context.report.confusion;
    const title = "Which classes are confused?";
    if (!found) return section(context, "confusion", title, null, nothing("No class was taken for another."));
    const { labels, cells } = found;
    const at = new Map(cells.map((cell) => [cell.truth + " " + cell.answer, cell]));
    const most = Math.max(1, ...cells.filter((cell) => cell.truth !== cell.answer).map((cell) => cell.count));
    const rest = found.n_confused - labels.length;
    const head = labels.map((name) => element("th", { scope: "col" }, element("span", { class: "matrix-head" }, label(name))));
    const body = labels.map((name, row) => element("tr", {},
      element("th", { scope: "row" }, classButton(context, name)),
      labels.map((_, column) => cellOf(context, at.get(row + " " + column), most))));
    return section(
      context, "confusion", title,
      "Rows are the true classes, columns the answers; only classes that are confused are shown" +
        (rest > 0 ? ", and " + plural(rest, "less confused class", "less confused classes") + " left out" : "") +
        ". They hold " + count(found.n_shown) + " of " + plural(found.n_wrong, "wrong answer") + ". A number opens the queries behind it, a name the class.",
      element("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": title },
        element("table", { class: "matrix" },
          element("caption", { class: "for-readers" }, title),
          element("thead", {}, element("tr", {}, element("td"), head)),
          element("tbody", {}, body))),
    );
  }

  Object.assign(parts, { confusion, classButton });
})();
