// Set the formulas that arithmatex has marked, with the KaTeX that lies beside this file.
for (const element of document.querySelectorAll(".arithmatex")) {
  const text = element.textContent.trim();
  katex.render(text.slice(2, -2), element, { displayMode: text.startsWith("\\[") });
}
