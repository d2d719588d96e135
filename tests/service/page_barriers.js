// What would keep somebody from using the page, as a list of sentences.
() => {
  const found = [];
  const name = (one) => one.outerHTML.slice(0, 90);
  const seen = (one) => one.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const all = (selector) => [...document.querySelectorAll(selector)];

  for (const field of all("input, textarea, select")) {
    if (!field.labels?.length && !field.getAttribute("aria-label")) found.push(`no label: ${name(field)}`);
  }
  for (const image of all("img")) if (!image.hasAttribute("alt")) found.push(`no alt: ${name(image)}`);
  for (const button of all("button, a[href]")) {
    if (seen(button) && !(button.textContent.trim() || button.getAttribute("aria-label"))) found.push(`no name: ${name(button)}`);
  }
  let before = 0;
  for (const heading of all("h1, h2, h3, h4, h5, h6").filter(seen)) {
    const level = Number(heading.tagName[1]);
    if (level > before + 1) found.push(`heading skips a level: ${name(heading)}`);
    before = level;
  }
  if (all("h1").filter(seen).length !== 1) found.push("there must be one h1");
  const ids = all("[id]").map((one) => one.id);
  for (const id of new Set(ids.filter((one, place) => ids.indexOf(one) !== place))) found.push(`id twice: ${id}`);
  for (const one of all("[aria-labelledby]")) {
    const label = one.getAttribute("aria-labelledby");
    if (one.parentElement.closest(`[aria-labelledby="${label}"]`)) found.push(`named like what holds it: ${name(one)}`);
  }
  for (const kind of ["aria-controls", "aria-labelledby", "aria-describedby", "for", "list"]) {
    for (const one of all(`[${kind}]`)) {
      for (const id of one.getAttribute(kind).split(/\s+/)) {
        if (!document.getElementById(id)) found.push(`${kind} leads nowhere: ${name(one)}`);
      }
    }
  }

  // Contrast of text against the nearest ground that is not see-through (WCAG 2.2, 1.4.3).
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const cache = new Map();
  const rgba = (colour) => {
    if (!cache.has(colour)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      cache.set(colour, [...canvas.getImageData(0, 0, 1, 1).data]);
    }
    return cache.get(colour);
  };
  const luminance = ([r, g, b]) => [r, g, b]
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const groundOf = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const ground = rgba(getComputedStyle(at).backgroundColor);
      if (ground[3] === 255) return ground;
    }
    return [255, 255, 255, 255];
  };
  for (const one of all("body *")) {
    const text = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!text || !seen(one) || one.closest("button:disabled, [aria-disabled=true], .unseen, .for-readers, script, noscript, .status")) continue;
    const style = getComputedStyle(one);
    const [dark, light] = [luminance(rgba(style.color)), luminance(groundOf(one))].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < (large ? 3 : 4.5)) found.push(`contrast ${contrast.toFixed(2)}: ${name(one)}`);
  }
  return found;
}
