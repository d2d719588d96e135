// The report of the gallery as it is now, drawn by the same script as a report in a file.

import { confirmItem, relabelItem, removeItem } from "./changes.js";
import { attempt, byId } from "./elements.js";
import { picture } from "./pictures.js";
import { emit, loadReport, on, session } from "./session.js";
import { useThreshold } from "./threshold.js";

let drawn = null;

const visible = () => !byId("panel-report").hidden;

function draw() {
  if (session.report === null || drawn === session.report || !visible()) return;
  drawn = session.report;
  const options = { live: true, threshold: session.model.threshold, onAsk: (item) => emit("ask-item", item), pictureOf: (id) => picture(id) };
  if (session.model.writable) {
    options.onRelabel = (suspect, label) => relabelItem(suspect, label);
    options.onConfirm = (suspect) => confirmItem(suspect);
    options.onRemove = (suspect) => removeItem(suspect, null);
    options.onThreshold = (threshold) => attempt(() => useThreshold({ threshold }));
  }
  window.nearsureReport.render(byId("report"), session.report, options);
  note("");
}

function note(words, again = false) {
  byId("report-note").textContent = words;
  byId("report-again").hidden = !again;
}

/** Called when the tab opens: charts need a visible place, and an old report is updated. */
export function openReport() {
  if (session.reportIsOld) loadReport();
  draw();
}

export function startReport() {
  byId("report-again").addEventListener("click", () => loadReport());
  on("report-waiting", () => note(drawn === null ? "The report is being made…" : "The report is being updated…"));
  on("report-failed", (problem) => {
    if (problem.code === "not_fitted_yet") note("A report is made as soon as the gallery is fitted.");
    else note(problem.message, true);
  });
  on("report", draw);
  on("gallery", () => {
    if (drawn !== null) note("The gallery has changed since this report was made.", true);
  });
}
