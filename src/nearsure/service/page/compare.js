// Two compared: items, pasted vectors, texts or images.

import { call } from "./api.js";
import { byId, confidencePercent, distance, element, meter } from "./elements.js";
import { on, session } from "./session.js";
import { pastedVector } from "./vectors.js";

const SIDES = ["first", "second"];
const LABELS = { item: "Id", vector: "Numbers", text: "Text", image: "Image" };

const kindOf = (side) => byId(`${side}-kind`).value;

function showKind(side) {
  const kind = kindOf(side);
  byId(`${side}-label`).textContent = LABELS[kind];
  byId(`${side}-label`).htmlFor = kind === "image" ? `${side}-file` : `${side}-content`;
  byId(`${side}-content`).hidden = kind === "image";
  byId(`${side}-file`).hidden = kind !== "image";
}

/** The content of a file in base64; a data: address holds it behind a comma. */
export const base64 = (file) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });

async function compared(side) {
  const kind = kindOf(side);
  if (kind === "image") {
    const [file] = byId(`${side}-file`).files;
    if (!file) throw new TypeError(`Choose the ${side} image.`);
    return { image: await base64(file) };
  }
  const content = byId(`${side}-content`).value.trim();
  if (content === "") throw new TypeError(`The ${side} of the two is missing.`);
  return { [kind]: kind === "vector" ? pastedVector(content, session.model.dimension) : content };
}

function showComparison(answer) {
  const verdict = { true: "Accepted as the same.", false: "Not accepted as the same." }[answer.accepted];
  byId("comparison").replaceChildren(
    element("p", {}, element("strong", {}, confidencePercent(answer.probability)), " probability that they are the same"),
    meter(answer.probability),
    element("p", { class: "note" }, `Squared distance ${distance(answer.sq_distance)}.`),
    element("p", { class: "note" }, verdict === undefined ? answer.sentence : `${verdict} ${answer.sentence}`),
  );
}

let current = null;

async function compareNow(event) {
  event.preventDefault();
  current?.abort();
  const mine = new AbortController();
  current = mine;
  byId("compare-problem").textContent = "";
  byId("comparison").setAttribute("aria-busy", "true");
  try {
    const [first, second] = await Promise.all(SIDES.map(compared));
    const json = { first, second, base_rate: Number(byId("base-rate").value) / 100 };
    const answer = await call("/v1/compare", { method: "POST", json, signal: mine.signal, patient: true });
    if (current === mine) showComparison(answer);
  } catch (problem) {
    if (problem.name === "AbortError" || current !== mine) return;
    byId("comparison").replaceChildren();
    byId("compare-problem").textContent = problem.message;
  } finally {
    if (current === mine) byId("comparison").removeAttribute("aria-busy");
  }
}

function offerKinds(model) {
  for (const side of SIDES) {
    for (const kind of ["text", "image"]) {
      const option = byId(`${side}-kind`).querySelector(`option[value="${kind}"]`);
      option.hidden = option.disabled = model.encoder !== kind;
    }
  }
}

export function startCompare() {
  byId("compare-form").addEventListener("submit", compareNow);
  for (const side of SIDES) byId(`${side}-kind`).addEventListener("change", () => showKind(side));
  on("model", offerKinds);
}
