// Thumbnails need the token, so they are fetched and shown as object addresses.

import { itemAddress, request } from "./api.js";
import { element } from "./elements.js";

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
    if (!blob.type.startsWith("image/")) throw new TypeError("no picture");
    found += 1;
    return URL.createObjectURL(blob);
  } catch {
    missing += 1;
    return null;
  }
}

// Until the first picture came, one is asked for at a time.
let probing = Promise.resolve();

function fetchInTurn(id) {
  if (found > 0) return fetchAddress(id);
  const turn = probing.then(() => fetchAddress(id));
  probing = found > 0 ? Promise.resolve() : turn;
  return turn;
}

export function forgetPicture(id) {
  const key = String(id);
  addresses.get(key)?.then((address) => address && URL.revokeObjectURL(address));
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

/** A place that fills when the picture comes, and goes away if there is none.
 *  A document that brings the picture along saves asking for it. */
export function picture(id, kind = "", brought = null) {
  const place = element("span", { class: `thumb ${kind}`.trim(), hidden: true });
  const coming = INLINE.test(brought ?? "") ? Promise.resolve(brought) : pictureAddress(id);
  coming.then((address) => {
    if (address === null) return;
    // The text beside it names the item, so the picture itself says nothing more.
    const image = element("img", { alt: "", src: address, decoding: "async" });
    image.addEventListener("error", () => place.remove());
    place.append(image);
    place.hidden = false;
  });
  return place;
}
