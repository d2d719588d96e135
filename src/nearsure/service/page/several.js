// Answers to several queries at once: a row each, the whole answer on a click, and a CSV file.

import { showAnswer } from "./answer.js";
import { breakable, byId, confidencePercent, element, plural, shortName } from "./elements.js";
import { emit } from "./session.js";

const COLUMNS = ["name", "label", "confidence", "accepted", "promise", "verdict", "p_known", "problem"];
let rows = [];
let running = null;

const cell = (content, kind = null) => element("td", { role: "cell", class: kind }, content);

function draw({ subject, name, answer, problem }) {
  const show = async () => {
    showAnswer(answer, subject);
    emit("answered", { answer, query: await subject.query() });
  };
  const accepted = answer?.accepted === true ? "accepted" : answer?.accepted === false ? "not accepted" : "";
  return element("tr", { role: "row" },
    element("th", { scope: "row", role: "rowheader" },
      answer ? element("button", { type: "button", class: "link clamped", title: name, on: { click: show } }, ...breakable(shortName(name, 60))) : shortName(name, 60)),
    ...(answer
      ? [cell(element("span", { class: "clamped" }, ...breakable(answer.label))), cell(confidencePercent(answer.confidence), "share-number"), cell(accepted)]
      : [element("td", { role: "cell", colspan: 3, class: "field-problem" }, problem)]));
}

/** Asks about all, a portion after the other; what failed is a row with the reason.
 *  A portion is {subjects: [{name, query, ...}], send: (signal) => answers}; query() is what the API takes. */
export async function askSeveral(portions) {
  running?.abort();
  const mine = new AbortController();
  running = mine;
  rows = [];
  const total = portions.reduce((sum, { subjects }) => sum + subjects.length, 0);
  byId("several").hidden = false;
  byId("several-rows").replaceChildren();
  const note = () => {
    byId("several-note").textContent = rows.length < total ? `${rows.length} of ${total} answered…` : `${plural(total, "answer")}. Choose one to see what it rests on.`;
  };
  note();
  for (const { subjects, send } of portions) {
    let answers = [];
    let problem = null;
    try {
      answers = await send(mine.signal);
    } catch (failure) {
      if (running !== mine) return;
      problem = failure.message;
    }
    if (running !== mine) return;
    const added = subjects.map((subject, place) => ({ subject, name: subject.name, answer: answers[place], problem }));
    rows.push(...added);
    byId("several-rows").append(...added.map(draw));
    note();
  }
}

/** Hides the list: one query is asked about. */
export function leaveSeveral() {
  running?.abort();
  running = null;
  byId("several").hidden = true;
}

/** As a spreadsheet reads it: text that it would compute begins with an apostrophe. */
function csvCell(value) {
  const text = String(value ?? "");
  return `"${(typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}

function download() {
  const lines = rows.map(({ name, problem, answer }) => COLUMNS.map((column) => csvCell({ ...answer, name, problem }[column])).join(","));
  const address = URL.createObjectURL(new Blob([[COLUMNS.join(","), ...lines, ""].join("\r\n")], { type: "text/csv" }));
  element("a", { href: address, download: "answers.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

export const startSeveral = () => byId("several-csv").addEventListener("click", download);
