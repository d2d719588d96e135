// Thumbnails need the token, so they are fetched and shown as object addresses.

import { itemAddress, request } from "./api.js";
import { byId, element } from "./elements.js";

const KEPT = 400;
const addresses = new Map();
let missing = 0;
let found = 0;

// A gallery without pictures is not asked for one again and again.
function mayHavePictures() {
  return found > 0 || missing < 3;
}

async function fetchAddress(id) {
  if (!mayHavePictures()) return null;
  try {
    const response = await request(`${itemAddress(id)}/picture`);
    const blob = await response.blob();
    if (!blob.type.startsWith("image/")) return null;
    found += 1;
    return URL.createObjectURL(blob);
  } catch (problem) {
    if (problem.status === 404) missing += 1;
    // It is there perhaps, and was only not to be had now.
    else addresses.delete(id);
    return null;
  }
}

// Until the first picture came, one is asked for at a time; later a few, so that the rest of the
// page never waits for them.
const AT_ONCE = 4;
const waiting = [];
let running = 0;

async function work() {
  running += 1;
  while (waiting.length > 0 && running <= (found > 0 ? AT_ONCE : 1)) {
    const { id, resolve } = waiting.shift();
    resolve(await fetchAddress(id));
    if (found > 0 && waiting.length > 0 && running < AT_ONCE) work();
  }
  running -= 1;
}

function fetchInTurn(id) {
  return new Promise((resolve) => {
    waiting.push({ id, resolve });
    if (running < (found > 0 ? AT_ONCE : 1)) work();
  });
}

export function forgetPicture(id) {
  const key = String(id);
  // Later: a place that has just got the address may still be loading it.
  addresses.get(key)?.then((address) => address && setTimeout(() => URL.revokeObjectURL(address), 60_000));
  addresses.delete(key);
}

function pictureAddress(id) {
  const key = String(id);
  if (!addresses.has(key)) {
    if (key === "." || key === ".." || !mayHavePictures()) return Promise.resolve(null);
    addresses.set(key, fetchInTurn(key));
    if (addresses.size > KEPT) forgetPicture(addresses.keys().next().value);
  }
  return addresses.get(key);
}

const INLINE = /^data:image\/(png|jpeg|webp|gif)[;,]/;

function enlarge(event) {
  if (event.currentTarget.closest("button")) return;
  byId("picture-large").src = event.currentTarget.src;
  byId("picture-dialog").showModal();
}

/** A place that fills when the picture comes, and goes away if there is none; a click shows it
 *  larger. A document that brings the picture along saves asking for it; a text is shown instead. */
export function picture(id, kind = "", brought = null, text = null) {
  if (text) return element("q", { class: `item-text clamped ${kind}`.trim(), title: text }, text);
  const place = element("span", { class: `thumb ${kind}`.trim(), hidden: true });
  const coming = INLINE.test(brought ?? "") ? Promise.resolve(brought) : pictureAddress(id);
  coming.then((address) => {
    if (address === null) return;
    // The text beside it names the item, so the picture needs no description.
    const image = element("img", { alt: "", src: address, decoding: "async", on: { click: enlarge } });
    image.addEventListener("error", () => place.remove());
    place.append(image);
    place.hidden = false;
  });
  return place;
}
