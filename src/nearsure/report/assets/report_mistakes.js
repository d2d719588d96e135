// The most confident mistakes, and the neighbours that support them.
(function () {
  "use strict";
  const parts = window.nearsureReportParts;
  const { element, section, nothing, label, picture, bar, breakable } = parts;
  const { missing, count, percent, significant, shares, surprise } = parts;
  const AT_FIRST = 6;
  const NEIGHBORS = 5;

  function roleOf(mistake, neighbor) {
    if (neighbor.label === mistake.label) return ["for-answer", "for the answer"];
    if (neighbor.label === mistake.truth) return ["for-truth", "for the truth"];
    return ["for-other", "for another"];
  }

  function supporter(mistake, neighbor, share) {
    const [role, words] = roleOf(mistake, neighbor);
    return element(
      "li",
      { class: "supporter " + role },
      picture(neighbor.picture, "Neighbour " + neighbor.id, "picture-small", neighbor.text),
      element(
        "div",
        { class: "supporter-words" },
        element("span", { class: "supporter-name" }, label(neighbor.label)),
        bar(neighbor.share),
        element(
          "span",
          { class: "fine" },
          words + ", item ",
          label(neighbor.id),
          ", distance\u00b2\u00a0" + significant(neighbor.sq_distance),
        ),
      ),
      element("span", { class: "supporter-share" }, percent(share)),
    );
  }

  // What the answer rests on, where neighbours and a head have answered together.
  function supportOf(mistake) {
    if (missing(mistake.p_neighbors)) return null;
    const none = mistake.p_neighbors === 0 && mistake.neighbors.every((each) => each.label !== mistake.label);
    const neighbors = none ? "no neighbour is of this class" : "neighbours " + percent(mistake.p_neighbors, 0);
    const whole = missing(mistake.p_head) ? "a class newer than the fit" : "class as a whole " + percent(mistake.p_head, 0);
    return element("p", { class: "fine mistake-support" }, "support: " + neighbors + ", " + whole);
  }

  function card(context, mistake) {
    const ordered = [...mistake.neighbors].sort((one, other) => other.share - one.share);
    const shown = ordered.slice(0, NEIGHBORS);
    const written = shares(ordered.map((neighbor) => neighbor.share));
    const restShare = 1 - written.slice(0, NEIGHBORS).reduce((sum, share) => sum + share, 0);
    const why = surprise(shown);
    return element(
      "li",
      { class: "mistake" },
      element(
        "div",
        { class: "mistake-head" },
        picture(mistake.picture, "Query " + mistake.id, "", mistake.text),
        element(
          "div",
          {},
          element(
            "p",
            { class: "mistake-called" },
            "taken for ",
            label(mistake.label, "called"),
            ", " + percent(mistake.confidence) + " sure",
          ),
          element("p", { class: "mistake-truth" }, "is ", label(mistake.truth, "truth")),
          supportOf(mistake),
          element("p", { class: "fine" }, "query ", label(mistake.id)),
        ),
      ),
      shown.length === 0
        ? element("p", { class: "fine" }, "Its neighbours were not kept.")
        : element(
            "ol",
            { class: "supporters", "aria-label": "Neighbours by their share of the vote" },
            shown.map((each, place) => supporter(mistake, each, written[place])),
          ),
      shown.length > 0 && restShare > 0.0005 &&
        element("p", { class: "fine" }, "All other neighbours have " + percent(restShare) + " of the vote."),
      why && element("p", { class: "fine" }, breakable(why)),
    );
  }

  function cards(context, all) {
    const list = element("ol", { class: "mistakes" }, all.slice(0, AT_FIRST).map((each) => card(context, each)));
    const hidden = all.slice(AT_FIRST);
    const more =
      hidden.length > 0 &&
      element(
        "button",
        {
          type: "button", class: "button",
          onclick: (event) => {
            const added = hidden.map((each) => card(context, each));
            list.append(...added);
            added[0].setAttribute("tabindex", "-1");
            added[0].focus();
            event.target.remove();
          },
        },
        "Show " + count(hidden.length) + " more",
      );
    return element("div", { class: "stack" }, list, more);
  }

  function mistakes(context) {
    const all = context.report.mistakes;
    return section(
      context,
      "mistakes",
      "Most confident mistakes",
      "Bars are each neighbour's share of the vote. Look twice: sometimes it is the label that is wrong, not the answer.",
      all.length === 0 ? nothing("No answer was wrong.") : cards(context, all),
    );
  }

  parts.mistakes = mistakes;
})();
