// Changes of the gallery: a dialog for relabelling, which can be undone, and one for removal.

import { relabel, remove } from "./api.js";
import { attempt, byId, notify, shortName } from "./elements.js";
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

/** Relabels at once; resolves to whether it was done. */
export async function relabelItem(item, label, button = null) {
  const before = String(item.label);
  const done = await attempt(async () => {
    await relabel(item.id, label);
    rememberLabels([label]);
    notify(`Item ${shortName(item.id)} is now labelled “${shortName(label)}”; it was “${shortName(before)}”.`, () => undo(item.id, before));
    await galleryChanged({ kind: "relabel", id: item.id, label: String(label) });
    return true;
  }, button);
  return done === true;
}

function undo(id, label) {
  return attempt(async () => {
    await relabel(id, label);
    notify(`Item ${shortName(id)} is labelled “${shortName(label)}” again.`);
    await galleryChanged({ kind: "undo", id, label });
    focusItem(id);
  }, byId("status-undo"));
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
  byId("relabel-heading").textContent = `Item ${item.id} is labelled “${item.label}”`;
  byId("relabel-look").replaceChildren(look(item));
  field.value = "";
  if (!(await confirmed(byId("relabel-dialog"), byId("relabel-form")))) return false;
  const label = field.value.trim();
  return label === "" ? false : relabelItem(item, label, button);
}

/** Removes after confirmation. */
export async function removeItem(item, button) {
  byId("remove-heading").textContent = `Remove item ${item.id}, labelled “${item.label}”?`;
  byId("remove-look").replaceChildren(look(item));
  if (!(await confirmed(byId("remove-dialog"), byId("remove-form")))) return false;
  const done = await attempt(async () => {
    await remove(item.id);
    forgetPicture(item.id);
    notify(`Item ${shortName(item.id)} is removed.`);
    await galleryChanged({ kind: "remove", id: item.id });
    return true;
  }, button);
  return done === true;
}

export function startChanges() {
  document.addEventListener("keydown", undoByKey);
  for (const button of document.querySelectorAll("dialog [data-close]")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
}
