// What the gallery's own points say against it; on a live page, what one can do about it.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, section, heading, nothing, label, picture, bar, plainTable, pager } = parts;
  const { count, plural, percent, decimal, significant } = parts;
  const PAGE = 8;

  function labelShare(name, value, share, role) {
    return element(
      "div",
      { class: "label-share label-share-" + role },
      element("span", { class: "label-share-name" }, name, " ", value),
      bar(share),
      element("span", { class: "label-share-value" }, percent(share, 0)),
    );
  }

  // A refusal is shown where the button was pressed; `false` means that the person thought better of it.
  async function carryOut(state, redraw, action, done) {
    state.busy = true;
    state.problem = null;
    redraw();
    try {
      const answer = await action();
      if (answer !== false) state.done = done;
    } catch (error) {
      state.problem = error && error.message ? error.message : String(error);
    }
    state.busy = false;
    redraw();
  }

  function actions(context, suspect, state, redraw) {
    const { live, onConfirm, onRelabel, onRemove } = context.options;
    if (!live || !(onConfirm || onRelabel || onRemove)) return null;
    if (state.done) return element("p", { class: "done", role: "status" }, "\u2713 ", state.done());
    const relabelled = () => ["now labelled ", label(suspect.suggested)];
    const relabel = () => carryOut(state, redraw, () => onRelabel(suspect, suspect.suggested), relabelled);
    const confirm = () => carryOut(state, redraw, () => onConfirm(suspect), () => ["label confirmed"]);
    const remove = () => carryOut(state, redraw, () => onRemove(suspect), () => ["removed"]);
    const named = (verb) => ({ type: "button", class: "button", disabled: state.busy, "aria-label": verb });
    return element(
      "div",
      { class: "suspect-actions" },
      onConfirm && element("button", { ...named("Label of " + suspect.id + " is correct"), onclick: confirm }, "Correct"),
      onRelabel && suspect.suggested !== null &&
        element(
          "button",
          {
            ...named("Relabel " + suspect.id + " as " + suspect.suggested),
            onclick: relabel,
          },
          "Relabel",
        ),
      onRemove && element("button", { ...named("Remove " + suspect.id), onclick: remove }, "Remove"),
      state.problem && element("p", { class: "problem", role: "alert" }, state.problem),
    );
  }

  function suspectRow(context, suspect, state) {
    const row = element("li", { class: "suspect", tabindex: "-1" });
    function draw() {
      const hadFocus = row.contains(document.activeElement);
      row.classList.toggle("suspect-done", Boolean(state.done));
      const buttons = actions(context, suspect, state, draw);
      row.replaceChildren(
        ...[
          picture(suspect.picture, "Item " + suspect.id, "picture-small", suspect.text),
          element(
            "div",
            { class: "suspect-words" },
            element("p", { class: "fine" }, "item ", label(suspect.id), ", trust " + decimal(suspect.trust, 2)),
            labelShare("labelled", label(suspect.label), suspect.p_own, "own"),
            suspect.suggested === null
              ? element("p", { class: "fine" }, "No other class is more probable.")
              : labelShare("suggested", label(suspect.suggested), suspect.p_suggested, "suggested"),
          ),
          buttons,
        ].filter(Boolean),
      );
      // The pressed button is gone: whoever uses a keyboard stays in this row.
      if (hadFocus) (row.querySelector("button:enabled") || row).focus();
    }
    draw();
    return row;
  }

  function suspects(context, audit) {
    const states = new Map(audit.suspects.map((suspect) => [suspect, { busy: false, done: null, problem: null }]));
    const list = element("ul", { class: "suspects" });
    let first = 0;
    const pages = pager((step) => {
      first += step * PAGE;
      show();
    });
    function show() {
      const last = Math.min(first + PAGE, audit.suspects.length);
      list.replaceChildren(
        ...audit.suspects.slice(first, last).map((suspect) => suspectRow(context, suspect, states.get(suspect))),
      );
      pages.show(first, last, audit.suspects.length, audit.suspects.length, "suspects");
    }
    show();
    return element("div", {}, list, pages.bar);
  }

  function cut(shown, all) {
    return shown < all ? "The first " + count(shown) + " of " + count(all) + "." : null;
  }

  function block(context, title, lead, content) {
    return element(
      "div",
      { class: "audit-block" },
      heading(context, 3, title),
      lead && element("p", { class: "lead" }, lead),
      content,
    );
  }

  function labelledItem(itemLabel, id) {
    return element("span", {}, label(itemLabel), element("span", { class: "fine" }, label(id)));
  }

  function confusionCell(pair) {
    return element(
      "span", { class: "measured" }, bar(pair.confusion, "bar-wrong"), element("span", {}, percent(pair.confusion)),
    );
  }

  const DUPLICATES = [
    { title: "One", cell: (pair) => labelledItem(pair.first_label, pair.first_id), heads: true },
    { title: "The other", cell: (pair) => labelledItem(pair.second_label, pair.second_id) },
    { title: "Distance\u00b2", cell: (pair) => significant(pair.sq_distance), numeric: true },
  ];
  const CONFUSABLE = [
    { title: "One class", cell: (pair) => label(pair.first), heads: true },
    { title: "The other", cell: (pair) => label(pair.second) },
    { title: "Confusion", cell: confusionCell },
  ];
  const SMALL = [
    { title: "Class", cell: (small) => label(small.label), heads: true },
    { title: "Members", cell: (small) => count(small.n_members), numeric: true },
    { title: "Missed", cell: (small) => count(small.n_missed), numeric: true },
    { title: "Right", cell: (small) => percent(small.accuracy), numeric: true },
  ];

  function listed(caption, columns, rows, ifNone) {
    return rows.length === 0 ? nothing(ifNone) : plainTable(caption, columns, rows);
  }

  function summary(audit) {
    return (
      "About " + plural(audit.n_wrong, "label") + " of " + count(audit.n_points) + " may be wrong, between " +
      count(audit.n_wrong_low) + " and " + count(audit.n_wrong_high) + "; " +
      plural(audit.n_duplicates, "pair") + " of near duplicates with different labels, " +
      plural(audit.n_small, "class", "classes") + " too small to be reliable."
    );
  }

  function audit(context) {
    const found = context.report.audit;
    const title = "The gallery, audited by its own points";
    if (found === null || found === undefined) {
      return section(context, "audit", title, null, nothing("The gallery was not audited."));
    }
    return section(
      context,
      "audit",
      title,
      summary(found),
      block(
        context, "Possibly mislabelled", cut(found.suspects.length, found.n_suspects),
        found.suspects.length === 0 ? nothing("No label looks wrong.") : suspects(context, found),
      ),
      element(
        "div",
        { class: "audit-rest" },
        block(
          context, "Classes that are easily confused", null,
          listed("Confusable classes", CONFUSABLE, found.confusable, "No two classes are confused with each other."),
        ),
        element(
          "div",
          { class: "stack" },
          block(
            context, "Near duplicates with different labels", cut(found.duplicates.length, found.n_duplicates),
            listed("Near duplicates with different labels", DUPLICATES, found.duplicates, "There are none."),
          ),
          block(
            context, "Classes too small to be reliable", cut(found.small.length, found.n_small),
            listed("Small classes", SMALL, found.small, "There are none."),
          ),
        ),
      ),
    );
  }

  parts.audit = audit;
})();
