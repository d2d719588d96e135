// What all parts of the page share: the model, its report, and events.

import { call, callUntilMade } from "./api.js";

const events = new EventTarget();

export const session = {
  model: null,
  report: null,
  // From /v1/promise and /v1/threshold.
  promise: null,
  inUse: null,
  reportIsOld: false,
  labels: new Set(),
};

/** Names: "model", "promise", "answered", "report", "report-failed", "gallery" (items changed), "refitted", "labels". */
export const on = (name, listener) => events.addEventListener(name, (event) => listener(event.detail));

export const emit = (name, detail) => events.dispatchEvent(new CustomEvent(name, { detail }));

export async function loadModel() {
  session.model = await call("/v1/model");
  emit("model", session.model);
  return session.model;
}

let loading = null;

/** One report at a time, however many ask for it. */
export function loadReport() {
  loading ??= (async () => {
    try {
      session.reportIsOld = false;
      session.report = await callUntilMade("/v1/report", () => emit("report-waiting"));
      rememberLabels(session.report.classes.map((row) => row.label));
      emit("report", session.report);
    } catch (problem) {
      session.reportIsOld = true;
      emit("report-failed", problem);
    } finally {
      loading = null;
    }
  })();
  return loading;
}

/** Labels that the fields propose. */
export function rememberLabels(labels) {
  const before = session.labels.size;
  for (const label of labels) session.labels.add(String(label));
  if (session.labels.size !== before) emit("labels");
}

/** After any change of the gallery; done when all who show it have put their `work` behind them. */
export async function galleryChanged(change) {
  session.reportIsOld = true;
  const work = [];
  emit("gallery", { ...change, work });
  await loadModel();
  await Promise.all(work);
}
