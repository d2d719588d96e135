// The only way in which the report makes elements: text is always text, never markup.
(function () {
  "use strict";
  const parts = (window.nearsureReportParts = window.nearsureReportParts || {});

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "onclick" || name === "oninput" || name === "onchange") {
        made.addEventListener(name.slice(2), value);
      } else {
        made.setAttribute(name, value === true ? "" : String(value));
      }
    }
    for (const child of children.flat()) {
      if (child === null || child === undefined || child === false) continue;
      made.append(child instanceof Node ? child : String(child));
    }
    return made;
  }

  // Names of files and classes may break behind their separators, and only then anywhere.
  function breakable(text) {
    return text.split(/(?<=[_/:-])(?=.)/).flatMap((piece, place) => (place === 0 ? [piece] : [element("wbr"), piece]));
  }

  // <bdi> keeps a label written from right to left from turning its sentence around.
  function label(value, className) {
    const text = String(value);
    const empty = text.trim() === "";
    return element(
      "bdi",
      { class: ["label", className, empty && "label-empty"].filter(Boolean).join(" ") },
      empty ? "(empty)" : breakable(text),
    );
  }

  // A document may come from anywhere: pictures are shown only if they need no network.
  // Without a picture, the text that the item was made of stands in its place.
  function picture(address, alternative, className, text) {
    if (typeof address !== "string" || !/^(data:image\/(png|jpeg|webp|gif)[;,]|blob:)/.test(address)) {
      return text ? element("q", { class: "item-text" }, breakable(text)) : null;
    }
    return element("img", {
      class: "picture " + (className || ""),
      src: address,
      alt: alternative,
      decoding: "async",
    });
  }

  function bar(share, className) {
    const filled = element("span", { class: "bar-filled" });
    filled.style.width = 100 * Math.min(1, Math.max(0, share || 0)) + "%";
    return element("span", { class: "bar " + (className || ""), "aria-hidden": "true" }, filled);
  }

  function heading(context, depth, text, id) {
    return element("h" + Math.min(6, depth + (context.options.live ? 1 : 0)), { id: id }, text);
  }

  function section(context, name, title, lead, ...children) {
    const id = context.prefix + name;
    return element(
      "section",
      { class: "part part-" + name, id: id, "aria-labelledby": id + "-title", tabindex: "-1" },
      element(
        "div",
        { class: "part-head" },
        heading(context, 2, title, id + "-title"),
        lead && element("p", { class: "lead" }, lead),
      ),
      ...children,
    );
  }

  function nothing(sentence) {
    return element("p", { class: "nothing" }, sentence);
  }

  Object.assign(parts, { element, breakable, label, picture, bar, heading, section, nothing });
})();
