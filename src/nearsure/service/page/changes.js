// Changes of the gallery, each of which can be undone; relabelling and removal have dialogs.

import { confirm, relabel, remove, restore, unconfirm } from "./api.js";
import { attempt, breakable, byId, notify, shortName } from "./elements.js";
import { forgetPicture, picture } from "./pictures.js";
import { galleryChanged, rememberLabels } from "./session.js";

/** Opens a dialog; true if it was confirmed. The browser restores the focus. */
function confirmed(dialog, form) {
  return new Promise((resolve) => {
    let yes = false;
    const submit = (event) => {
      event.preventDefault();
      yes = true;
      dialog.close();
    };
    form.addEventListener("submit", submit);
    dialog.addEventListener("close", () => {
      form.removeEventListener("submit", submit);
      resolve(yes);
    }, { once: true });
    dialog.showModal();
  });
}

// What can be undone, the last at the end.
const done = [];

const undoLast = () => (done.length === 0 ? null : done.at(-1));

/** Makes a change and remembers how it is undone; resolves to whether it was made. */
async function make(change, work, { words, back, wordsBack }, button) {
  const made = await attempt(async () => {
    await work();
    done.push(() => undo(change, back, wordsBack));
    notify(words, undoLast());
    await galleryChanged(change);
    return true;
  }, button);
  return made === true;
}

function undo({ id, before }, back, words) {
  return attempt(async () => {
    await back();
    done.pop();
    notify(words, undoLast());
    await galleryChanged({ kind: "undo", id, label: before });
    focusItem(id);
  }, byId("status-undo"));
}

/** Relabels at once. */
export function relabelItem(item, label, button = null) {
  const [id, before] = [item.id, String(item.label)];
  rememberLabels([label]);
  return make({ kind: "relabel", id, label: String(label), before }, () => relabel(id, label), {
    words: `Item ${shortName(id)} is now labelled “${shortName(label)}”; it was “${shortName(before)}”.`,
    back: () => relabel(id, before),
    wordsBack: `Item ${shortName(id)} is labelled “${shortName(before)}” again.`,
  }, button);
}

/** Says that a label is right. */
export function confirmItem(item, button = null) {
  const [id, label] = [item.id, String(item.label)];
  return make({ kind: "confirm", id, label, before: label }, () => confirm(id, label), {
    words: `Item ${shortName(id)} is correctly labelled “${shortName(label)}”.`,
    back: () => unconfirm(id),
    wordsBack: `Item ${shortName(id)} is to be reviewed again.`,
  }, button);
}

/** The button that was pressed is hidden: the focus moves to the item that came back. */
function focusItem(id) {
  if (!document.activeElement?.matches('body, [role="tab"]')) return;
  const name = CSS.escape(String(id));
  const places = document.querySelectorAll(`.suspect[data-id="${name}"] .actions button, #items tr[data-id="${name}"] button`);
  [...places].find((place) => place.checkVisibility())?.focus();
}

const TEXT_FIELDS = 'input:not([type="radio"], [type="range"], [type="file"]), textarea, dialog';

/** Ctrl+Z everywhere but in text fields, which have their own undo. */
function undoByKey(event) {
  const pressed = (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "z";
  if (!pressed || byId("status-undo").hidden || event.target.closest(TEXT_FIELDS)) return;
  event.preventDefault();
  byId("status-undo").click();
}

const look = (item) => picture(item.id, "whole", null, item.text);

/** Relabels with a label from a dialog. */
export async function askForLabel(item, button) {
  const field = byId("relabel-label");
  byId("relabel-heading").replaceChildren(...breakable(`Item ${item.id} is labelled “${item.label}”`));
  byId("relabel-look").replaceChildren(look(item));
  field.value = "";
  if (!(await confirmed(byId("relabel-dialog"), byId("relabel-form")))) return false;
  const label = field.value.trim();
  return label === "" ? false : relabelItem(item, label, button);
}

/** Removes, after confirmation where that is asked for. */
export async function removeItem(item, button, asks = true) {
  const [id, before] = [item.id, String(item.label)];
  byId("remove-heading").replaceChildren(...breakable(`Remove item ${id}, labelled “${before}”?`));
  byId("remove-look").replaceChildren(look(item));
  if (asks && !(await confirmed(byId("remove-dialog"), byId("remove-form")))) return false;
  return make({ kind: "remove", id, before }, () => remove(id).then(() => forgetPicture(id)), {
    words: `Item ${shortName(id)} is removed.`,
    back: () => restore(id),
    wordsBack: `Item ${shortName(id)} is back.`,
  }, button);
}

export function startChanges() {
  document.addEventListener("keydown", undoByKey);
  for (const button of document.querySelectorAll("dialog [data-close]")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
}
