// All items, page by page, and new ones.

import { call } from "./api.js";
import { askForLabel, removeItem } from "./changes.js";
import { base64 } from "./compare.js";
import { breakable, byId, count, element, linesOf, notify, offerAgain, plural, shortName } from "./elements.js";
import { picture } from "./pictures.js";
import { emit, galleryChanged, on, rememberLabels, session } from "./session.js";
import { pastedVector } from "./vectors.js";

const PAGE = 20;

// The starts of the pages on the way here; the last is the one that is shown.
let starts = [null];
let next = null;
let label = "";

function row(item) {
  const about = () => element("span", { class: "unseen" }, ` item ${item.id}`);
  const askIt = () => emit("ask-item", item);
  const on = (work) => ({ click: (event) => work(item, event.currentTarget) });
  return element("tr", { role: "row", "data-id": item.id },
    element("th", { scope: "row", role: "rowheader" }, element("span", { class: "item-name" }, picture(item.id, "", null, item.text), element("span", { class: "clamped", title: item.id }, ...breakable(item.id)))),
    element("td", { role: "cell" }, element("span", { class: "clamped", title: item.label }, ...breakable(item.label))),
    element("td", { role: "cell", class: "row-actions" }, element("span", { class: "actions" },
      element("button", { type: "button", class: "quiet", on: { click: askIt } }, "Ask", about()),
      session.model.writable ? element("button", { type: "button", class: "quiet", on: on(askForLabel) }, "Relabel…", about()) : null,
      session.model.writable ? element("button", { type: "button", class: "quiet danger-text", on: on(removeItem) }, "Remove…", about()) : null)));
}

function address() {
  const query = new URLSearchParams({ limit: PAGE });
  if (starts.at(-1) !== null) query.set("after", starts.at(-1));
  if (label !== "") query.set("label", label);
  return `/v1/items?${query}`;
}

/** Loads a page of items, or shows why it failed and a button to try again. */
export async function loadItems() {
  let page;
  try {
    page = await call(address());
  } catch (problem) {
    byId("items-place").textContent = problem.message;
    byId("items-again").hidden = false;
    byId("items-after").disabled = true;
    return;
  }
  byId("items-again").hidden = true;
  next = page.next;
  byId("items").replaceChildren(...page.items.map(row));
  rememberLabels(page.items.map((item) => item.label));
  const first = (starts.length - 1) * PAGE;
  byId("items-place").textContent = page.items.length === 0
    ? (label === "" ? "The gallery holds no items yet." : `No item is labelled “${label}”.`)
    : `${count(first + 1)} to ${count(first + page.items.length)} of ${plural(page.total, "item")}`;
  byId("items-before").disabled = starts.length === 1;
  byId("items-after").disabled = next === null;
}

function show(change) {
  change();
  return loadItems();
}

/** Keeps the focus on the same row, or moves it to the heading if that is gone. */
async function loadItemsKeepingFocus() {
  const held = document.activeElement?.closest("#items tr");
  const place = held ? [...byId("items").children].indexOf(held) : -1;
  const button = held ? [...held.querySelectorAll("button")].indexOf(document.activeElement) : 0;
  await loadItems();
  if (place < 0) return;
  const again = byId("items").children[Math.min(place, byId("items").children.length - 1)];
  (again?.querySelectorAll("button")[button] ?? byId("items-heading")).focus();
}

// Letters of a request; the service takes 8 MB by default.
const LARGEST_REQUEST = 6 * 2 ** 20;

/** Items in requests that are not too large; one that is too large alone is for the service to refuse. */
function portions(items) {
  const found = [];
  let size = LARGEST_REQUEST;
  for (const item of items) {
    const own = JSON.stringify(item).length;
    if (size + own > LARGEST_REQUEST || found.at(-1).items.length >= 100) {
      found.push({ items: [] });
      size = 0;
    }
    found.at(-1).items.push(item);
    size += own;
  }
  return found;
}

/** What the new items are made of: images, texts or a vector. */
async function newContents() {
  const files = [...byId("add-images").files];
  const texts = linesOf(byId("add-texts").value);
  const vector = byId("add-vector").value.trim();
  if ((files.length > 0) + (texts.length > 0) + (vector !== "") > 1) throw new TypeError("Give images, texts or a vector, not several of them.");
  if (files.length > 0) return Promise.all(files.map(async (file) => ({ image: await base64(file) })));
  if (texts.length > 0) return texts.map((text) => ({ text }));
  return [{ vector: pastedVector(vector, session.model.dimension) }];
}

async function add() {
  const text = byId("add-label").value.trim();
  const id = byId("add-id").value.trim();
  byId("add-problem").textContent = "";
  try {
    const contents = await newContents();
    if (contents.length > 1 && id) throw new TypeError("Several items get ids of their own: leave the id empty.");
    const items = contents.map((content) => ({ label: text, ...content, ...(id ? { id } : {}) }));
    const ids = [];
    for (const json of portions(items)) {
      ids.push(...(await call("/v1/items", { method: "POST", json })).ids);
      notify(`${plural(ids.length, "item")} of ${count(items.length)} added.`);
    }
    byId("add-form").reset();
    rememberLabels([text]);
    const what = ids.length === 1 ? `Item ${shortName(ids[0])} is` : `${plural(ids.length, "item")} are`;
    notify(`${what} added with the label “${shortName(text)}”.`);
    await galleryChanged({ kind: "add", id: ids[0], label: text });
    byId("add-label").focus();
  } catch (problem) {
    byId("add-problem").textContent = problem.message;
  }
}

function offerLabels() {
  const sorted = [...session.labels].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  byId("labels").replaceChildren(...sorted.map((one) => element("option", { value: one })));
}

export function startGallery() {
  byId("items-filter").addEventListener("submit", (event) => {
    event.preventDefault();
    show(() => {
      label = byId("items-label").value.trim();
      starts = [null];
    });
  });
  byId("items-after").addEventListener("click", () => show(() => starts.push(next)));
  byId("items-before").addEventListener("click", () => show(() => starts.pop()));
  byId("add-form").addEventListener("submit", (event) => {
    event.preventDefault();
    add();
  });
  on("labels", offerLabels);
  on("model", (model) => {
    byId("adding").hidden = !model.writable;
    for (const part of byId("add-form").querySelectorAll("[data-encoder]")) part.hidden = part.dataset.encoder !== model.encoder;
  });
  offerAgain("items-again", loadItems, "items-heading");
  on("gallery", ({ work }) => work.push(loadItemsKeepingFocus()));
}
