// Vectors from pasted text and uploaded files. Every error names what is accepted.

const LARGEST_TEXT = 32 * 2 ** 20;
const LONGEST_QUOTE = 40;
const NOT_THE_VECTOR = new Set(["id", "label", "image", "text"]);

function checked(values) {
  values.forEach((value, place) => {
    if (typeof value !== "number" || !Number.isFinite(value)) {
      const got = JSON.stringify(value) ?? String(value);
      throw new TypeError(`Entry ${place + 1} must be a finite number. Got ${got.slice(0, LONGEST_QUOTE)} instead.`);
    }
  });
  return values;
}

function rowsOfJson(found) {
  if (found !== null && typeof found === "object" && !Array.isArray(found)) {
    return rowsOfJson(found.vector ?? found.embedding ?? found.vectors ?? found.embeddings ?? null);
  }
  if (!Array.isArray(found) || found.length === 0) {
    throw new TypeError('Give a list of numbers, such as [0.1, 0.7, 0.2] or {"vector": [0.1, 0.7, 0.2]}.');
  }
  return typeof found[0] === "number" ? [checked(found)] : found.flatMap((row) => rowsOfJson(row));
}

function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new TypeError("This begins like JSON but is not valid. Give a list of numbers, such as [0.1, 0.7, 0.2].");
  }
}

function words(text) {
  return text.split(/[\s,;]+/).filter((word) => word !== "");
}

function numbers(found) {
  return checked(found.map((word) => (Number.isNaN(Number(word)) ? word : Number(word))));
}

function checkDimension(vector, dimension) {
  if (vector.length !== dimension) {
    throw new TypeError(`The gallery holds vectors of ${dimension} numbers. Got ${vector.length} instead.`);
  }
  return vector;
}

/** One pasted vector: a JSON list, or numbers between spaces, commas or line ends. */
export function pastedVector(text, dimension) {
  const trimmed = text.trim();
  if (trimmed === "") throw new TypeError(`Paste a vector of ${dimension} numbers first.`);
  if (!/^[[{]/.test(trimmed)) return checkDimension(numbers(words(trimmed)), dimension);
  const rows = rowsOfJson(parseJson(trimmed));
  if (rows.length > 1) throw new TypeError(`Give one vector. Got ${rows.length} instead.`);
  return checkDimension(rows[0], dimension);
}

const kept = (rows) => ({ count: rows.length, row: async (place) => rows[place] });

function rowsOfText(text, dimension) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  if (lines.length === 0) throw new TypeError("The file is empty.");
  if (/^[[{]/.test(lines[0].trim())) {
    try {
      return rowsOfJson(JSON.parse(text));
    } catch (problem) {
      if (lines.length === 1 || !(problem instanceof SyntaxError)) throw problem;
      return lines.flatMap((line) => rowsOfJson(parseJson(line)));
    }
  }
  const titles = lines[0].split(",").map((title) => title.trim().replace(/^"|"$/g, "").toLowerCase());
  const hasTitles = titles.some((title) => title !== "" && Number.isNaN(Number(title)));
  if (!hasTitles) {
    const whole = words(text);
    return whole.length === dimension ? [numbers(whole)] : lines.map((line) => numbers(words(line)));
  }
  const columns = titles.flatMap((title, place) => (NOT_THE_VECTOR.has(title) ? [] : [place]));
  if (columns.length === 0) throw new TypeError(`The file has no columns of numbers, but only ${titles.join(", ")}.`);
  return lines.slice(1).map((line) => {
    const cells = line.split(",").map((cell) => cell.trim());
    return numbers(columns.map((place) => cells[place] ?? ""));
  });
}

const READERS = {
  f4: [4, "getFloat32"], f8: [8, "getFloat64"], i1: [1, "getInt8"], u1: [1, "getUint8"],
  i2: [2, "getInt16"], u2: [2, "getUint16"], i4: [4, "getInt32"], u4: [4, "getUint32"],
};

/** The header of an .npy file; rows are read from the disk when they are asked for. */
async function rowsOfNpy(file) {
  const start = new DataView(await file.slice(0, 12).arrayBuffer());
  const magic = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];
  if (start.byteLength < 12 || magic.some((byte, place) => start.getUint8(place) !== byte)) {
    throw new TypeError("This is not an .npy file.");
  }
  const first = start.getUint8(6) === 1;
  const at = first ? 10 : 12;
  const data = at + (first ? start.getUint16(8, true) : start.getUint32(8, true));
  const header = await file.slice(at, Math.min(data, at + 65_536)).text();
  const kind = /'descr':\s*'([<>|=])(\w+)'/.exec(header);
  const shape = /'shape':\s*\(([^)]*)\)/.exec(header);
  const reader = kind === null ? undefined : READERS[kind[2]];
  if (reader === undefined || shape === null) {
    throw new TypeError("The .npy file must hold plain numbers, such as float32 or float64.");
  }
  const sizes = shape[1].split(",").filter((size) => size.trim() !== "").map(Number);
  if (sizes.length < 1 || sizes.length > 2 || sizes.some((size) => !(size > 0))) {
    throw new TypeError(`The .npy file must have the shape (d,) or (n, d). Got (${shape[1].trim()}) instead.`);
  }
  if (sizes.length === 2 && /'fortran_order':\s*True/.test(header)) {
    throw new TypeError("The .npy file is stored column by column; save numpy.ascontiguousarray(x) instead.");
  }
  const [bytes, get] = reader;
  const width = sizes.at(-1);
  return {
    count: sizes.length === 2 ? sizes[0] : 1,
    row: async (place) => {
      const from = data + place * width * bytes;
      const view = new DataView(await file.slice(from, from + width * bytes).arrayBuffer());
      if (view.byteLength !== width * bytes) throw new TypeError("The .npy file ends too early.");
      return checked(Array.from({ length: width }, (_, i) => view[get](i * bytes, kind[1] !== ">")));
    },
  };
}

/** Whether a file cannot be text: a picture, an archive, a document. */
async function isBinary(file) {
  if (/^(image|audio|video|font)\/|pdf|zip/.test(file.type)) return true;
  return /[\x00-\x08\x0e-\x1a]/.test(await file.slice(0, 4096).text());
}

/** {count, row(i)} of a .json, .jsonl, .csv, .txt or .npy file. */
export async function vectorsOfFile(file, dimension) {
  const rows = await (async () => {
    if (/\.npy$/i.test(file.name)) return rowsOfNpy(file);
    if (await isBinary(file)) {
      throw new TypeError(`${file.name} holds no vectors that can be read: choose a .npy, .json, .jsonl, .csv or .txt file.`);
    }
    if (file.size > LARGEST_TEXT) throw new TypeError("The file is larger than 32 MB; save it as .npy instead.");
    const found = rowsOfText(await file.text(), dimension);
    if (found.length === 0) throw new TypeError(`${file.name} has column titles, but no rows.`);
    return kept(found);
  })();
  return { count: rows.count, row: async (place) => checkDimension(await rows.row(place), dimension) };
}
