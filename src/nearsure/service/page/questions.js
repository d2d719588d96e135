// The query box: an item, a pasted vector, a file, an image or a text.

import { call, itemAddress } from "./api.js";
import { forgetFailure, showAnswer, showFailure, subjectOf } from "./answer.js";
import { base64 } from "./compare.js";
import { byId, element, linesOf, offerAgain, plural, showProblem } from "./elements.js";
import { picture } from "./pictures.js";
import { emit, on, rememberLabels, session } from "./session.js";
import { askSeveral, leaveSeveral } from "./several.js";
import { pastedVector, vectorsOfFile } from "./vectors.js";

const SHOWN = { neighbors: 12, classes: 6 };
// Queries of a request, and rows of a file that are asked about at once.
const PORTION = 32;
const MOST_ROWS = 1000;
const PAGE = 12;

let current = null;
let fileRows = null;
// The last query as it was sent: what the map asks to be placed.
let sent = null;

/** Sends a query; only the answer to the newest is shown. */
async function ask(subject, send) {
  current?.abort();
  const mine = new AbortController();
  current = mine;
  if (subject.kind !== "item") leaveSeveral();
  showProblem(null);
  byId("question-problem").textContent = "";
  byId("answer").setAttribute("aria-busy", "true");
  try {
    const answer = await send(mine.signal);
    if (current === mine) showAnswer(answer, subject);
    emit("answered", { answer, query: sent });
  } catch (problem) {
    if (problem.name === "AbortError" || current !== mine) return;
    byId("question-problem").textContent = problem.message;
    showFailure();
  } finally {
    if (current === mine) byId("answer").removeAttribute("aria-busy");
  }
}

const predict = (query) => (signal) => {
  sent = query;
  return call("/v1/predict", { method: "POST", json: { ...query, ...SHOWN }, signal, patient: true });
};

export function askAboutItem(item) {
  for (const button of byId("item-choices").querySelectorAll("button")) {
    button.setAttribute("aria-current", String(button.value === String(item.id)));
  }
  return ask({ kind: "item", item }, predict({ item: String(item.id) }));
}

const askers = {
  paste: () =>
    ask(subjectOf("the pasted vector"), (signal) =>
      predict({ vector: pastedVector(byId("vector").value, session.model.dimension) })(signal)),
  file: () =>
    ask(subjectOf(`row ${byId("row-number").value} of the file`), async (signal) => {
      if (fileRows === null) throw new TypeError("Choose a file first.");
      const row = Number(byId("row-number").value);
      if (!Number.isInteger(row) || row < 1 || row > fileRows.count) {
        throw new TypeError(`The row must be between 1 and ${fileRows.count}.`);
      }
      return predict({ vector: await fileRows.row(row - 1) })(signal);
    }),
  image: () => {
    const subjects = [...byId("image-file").files].map((file) => ({ ...subjectOf(file.name), name: file.name, file, query: async () => ({ image: await base64(file) }) }));
    if (subjects.length === 0) return undefined;
    if (subjects.length === 1) return ask(subjects[0], askImage(subjects[0].file));
    byId("question-problem").textContent = "";
    return askSeveral(subjects.map((subject) => ({
      subjects: [subject], send: async (signal) => [await askImage(subject.file)(signal)],
    })));
  },
  text: () => {
    const lines = byId("text-lines").checked ? linesOf(byId("text").value) : [];
    return lines.length > 1 ? askTexts(lines) : askText();
  },
  item: () => {
    const first = byId("item-choices").querySelector("button");
    first?.click();
  },
};

const askImage = (file) => async (signal) => {
  if (!file.type.startsWith("image/")) throw new TypeError("This file is not a picture.");
  sent = { image: await base64(file) };
  return call(`/v1/predict/image?${new URLSearchParams(SHOWN)}`, {
    method: "POST", body: file, type: file.type, signal, patient: true,
  });
};

const askText = () =>
  ask({ ...subjectOf("the text"), text: byId("text").value.trim() }, (signal) => {
    const text = byId("text").value.trim();
    if (text === "") throw new TypeError("Write a text first.");
    return predict({ text })(signal);
  });

/** Portions of queries, each of which takes a request. */
function inPortions(subjects, query) {
  const found = [];
  for (let start = 0; start < subjects.length; start += PORTION) {
    const part = subjects.slice(start, start + PORTION);
    const send = async (signal) => {
      const json = { ...(await query(part)), ...SHOWN };
      return (await call("/v1/predict/batch", { method: "POST", json, signal, patient: true })).answers;
    };
    found.push({ subjects: part, send });
  }
  return found;
}

const askTexts = (texts) =>
  askSeveral(inPortions(
    texts.map((text) => ({ ...subjectOf("the text"), name: text, text, query: async () => ({ text }) })),
    (part) => ({ texts: part.map(({ text }) => text) }),
  ));

function askRows() {
  const rowsNow = fileRows;
  const rows = Array.from({ length: Math.min(MOST_ROWS, fileRows.count) }, (_, row) => row);
  const subjects = rows.map((row) => ({ ...subjectOf(`row ${row + 1} of the file`), name: `row ${row + 1}`, row, query: async () => ({ vector: await rowsNow.row(row) }) }));
  return askSeveral(inPortions(subjects, async (part) => ({
    vectors: await Promise.all(part.map(({ row }) => rowsNow.row(row))), names: part.map(({ name }) => name),
  })));
}

const modeNow = () => document.querySelector('input[name="mode"]:checked').value;

function showMode() {
  const mode = modeNow();
  for (const part of document.querySelectorAll("[data-mode]")) part.hidden = part.dataset.mode !== mode;
  byId("question-problem").textContent = "";
}

async function openFile() {
  const [file] = byId("vector-file").files;
  fileRows = null;
  byId("row-choice").hidden = true;
  if (!file) return;
  try {
    fileRows = await vectorsOfFile(file, session.model.dimension);
  } catch (problem) {
    byId("question-problem").textContent = problem.message;
    return;
  }
  byId("row-number").value = "1";
  byId("row-number").max = String(fileRows.count);
  byId("row-count").textContent = `of ${fileRows.count}`;
  byId("row-choice").hidden = fileRows.count === 1;
  await askers.file();
}

// Dropping a file selects it; the field below remains for the keyboard.
function acceptDrops(place) {
  const field = byId(place.dataset.drop);
  const mark = (over) => (event) => {
    event.preventDefault();
    place.classList.toggle("over", over);
  };
  place.addEventListener("dragenter", mark(true));
  place.addEventListener("dragover", mark(true));
  place.addEventListener("dragleave", mark(false));
  place.addEventListener("drop", (event) => {
    mark(false)(event);
    if (event.dataTransfer.files.length === 0) return;
    field.files = event.dataTransfer.files;
    field.dispatchEvent(new Event("change"));
  });
}

function choice(item) {
  return element("li", {}, element(
    "button",
    { type: "button", class: "choice", value: item.id, on: { click: () => askAboutItem(item) } },
    picture(item.id, "", null, item.text),
    element("span", { class: "choice-words" },
      element("span", { class: "choice-label" }, String(item.label)),
      " ",
      element("span", { class: "choice-id", title: item.id }, String(item.id))),
  ));
}

let search = 0;
let searchFailed = false;
let continueAfter = null;

/** By label or start of the id; only then by the whole id, as a miss there is an error. */
async function itemsMatching(text) {
  if (text === "") return call(`/v1/items?limit=${PAGE}`);
  const [labelled, following] = await Promise.all([
    call(`/v1/items?${new URLSearchParams({ label: text, limit: PAGE })}`),
    // Ids are in order, so those that begin with the text come right behind it.
    call(`/v1/items?${new URLSearchParams({ after: text, limit: PAGE })}`).catch(() => ({ items: [] })),
  ]);
  const begin = following.items.filter((found) => String(found.id).startsWith(text));
  const found = new Map([...labelled.items, ...begin].map((item) => [item.id, item]));
  if (found.size > 0) return { items: [...found.values()], next: labelled.next };
  const exact = await call(itemAddress(text)).catch(() => null);
  return { items: exact === null ? [] : [exact], next: null };
}

function noItemText(text) {
  if (text !== "") return `No item has the id or label “${text}”.`;
  return `The gallery holds no items yet.${session.model.writable ? " Add some under Gallery." : ""}`;
}

async function searchItems() {
  const mine = ++search;
  const text = byId("item-search").value.trim();
  try {
    const page = await itemsMatching(text);
    if (mine !== search) return;
    continueAfter = page.next;
    byId("item-choices").replaceChildren(...page.items.map(choice));
    byId("item-found").textContent = page.items.length === 0 ? noItemText(text) : "";
    byId("item-more").hidden = page.next === null;
    rememberLabels(page.items.map((item) => item.label));
    searchFailed = false;
  } catch (problem) {
    if (mine !== search) return;
    byId("item-found").textContent = problem.message;
    searchFailed = true;
  }
  byId("items-found-again").hidden = !searchFailed;
}

async function moreItems() {
  const label = byId("item-search").value.trim();
  const query = { after: continueAfter, limit: PAGE, ...(label ? { label } : {}) };
  const page = await call(`/v1/items?${new URLSearchParams(query)}`);
  const made = page.items.map(choice);
  byId("item-choices").append(...made);
  continueAfter = page.next;
  byId("item-more").hidden = page.next === null;
  made[0]?.querySelector("button").focus();
}

function offerModes(model) {
  for (const kind of ["image", "text"]) {
    const radio = document.querySelector(`input[name="mode"][value="${kind}"]`);
    radio.parentElement.hidden = model.encoder !== kind;
  }
  byId("vector-note").textContent =
    `${plural(model.dimension, "number")}: a JSON list, or separated by spaces, commas or line breaks.`;
}

let opened = false;

function takeModel(model) {
  offerModes(model);
  byId("question-problem").textContent = "";
  forgetFailure();
  if (!opened) {
    opened = true;
    if (model.encoder !== null) document.querySelector(`input[name="mode"][value="${model.encoder}"]`).checked = true;
    showMode();
    searchItems();
  } else if (searchFailed) {
    searchItems();
  }
}

export function startQuestions() {
  byId("question").addEventListener("submit", (event) => {
    event.preventDefault();
    askers[modeNow()]();
  });
  for (const radio of document.querySelectorAll('input[name="mode"]')) radio.addEventListener("change", showMode);
  byId("vector-file").addEventListener("change", openFile);
  byId("image-file").addEventListener("change", askers.image);
  byId("all-rows").addEventListener("click", askRows);
  for (const place of document.querySelectorAll("[data-drop]")) acceptDrops(place);
  let typing = null;
  byId("item-search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(searchItems, 200);
  });
  byId("item-more").addEventListener("click", () => moreItems().catch(showProblem));
  offerAgain("items-found-again", searchItems, "item-search");
  on("model", takeModel);
  on("gallery", searchItems);
}
