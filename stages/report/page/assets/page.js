// The behaviour of the report page: sorted tables, the browser of sentences, and the current section in the navigation.
// Without it the page is complete but for the sentences that are no samples.
"use strict";

// Sorted tables

function sortable(table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const order = nextOrder(head, rows, column);
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (order) head.setAttribute("aria-sort", order);
      body.append(...(order ? sorted(rows, column, order) : rows));
    });
  });
}

// The better values come first, then the worse ones, then the order of the report.
function nextOrder(head, rows, column) {
  const text = rows.every((row) => valueOf(row.cells[column]) === null || typeof valueOf(row.cells[column]) === "string");
  const first = text || head.dataset.better === "low" ? "ascending" : "descending";
  const second = first === "ascending" ? "descending" : "ascending";
  const current = head.getAttribute("aria-sort");
  return current === null ? first : current === first ? second : null;
}

// A number, a text in lower case, or null for an empty cell.
function valueOf(cell) {
  const text = (cell.dataset.value ?? cell.textContent).trim();
  if (text === "" || text === "–" || text === "-") return null;
  const number = Number(text.replace(/[,×%+]/g, "").replace("−", "-").trim());
  return Number.isNaN(number) ? text.toLowerCase() : number;
}

function sorted(rows, column, order) {
  const sign = order === "ascending" ? 1 : -1;
  const known = rows.filter((row) => valueOf(row.cells[column]) !== null);
  const missing = rows.filter((row) => valueOf(row.cells[column]) === null);
  known.sort((one, other) => sign * compare(valueOf(one.cells[column]), valueOf(other.cells[column])));
  return [...known, ...missing];
}

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other));
}

// The browser of sentences

const PAGE = 10;

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function choice(name, label, options, chosen) {
  const select = make("select", { name });
  for (const [value, text] of options) select.append(make("option", { value }, text));
  select.value = chosen;
  return make("label", {}, label, select);
}

function check(name, label) {
  return make("label", { class: "check" }, make("input", { type: "checkbox", name }), label);
}

const ORDERS = [
  ["text", "as in the text"], ["difference", "largest difference first"], ["gain", "largest gain of the second first"],
  ["loss", "largest loss of the second first"], ["score", "lowest score of the second first"], ["length", "longest source first"],
];

function browser(data, form, found, list) {
  const names = data.tests.map((test, index) => [index, test.test]);
  const state = { shown: PAGE };
  if (data.tests.length > 1) form.append(choice("test", "Test set", names, 0));
  const first = data.tests[0];
  const second = first.entries.find((entry) => entry !== first.baseline) ?? first.baseline;
  form.append(
    choice("one", "First", first.entries.map((entry) => [entry, entry]), first.baseline),
    choice("other", "Second", first.entries.map((entry) => [entry, entry]), second),
    choice("order", "Order", ORDERS, "text"),
    make("label", {}, "Words from", make("input", { type: "number", name: "min", min: 0 })),
    make("label", {}, "to", make("input", { type: "number", name: "max", min: 0 })),
    make("label", {}, "Containing", make("input", { type: "search", name: "text" })),
    check("differ", "only where they differ"), check("repeated", "only with repeated words"), check("all", "show all searches"),
  );
  form.hidden = false;
  const update = () => {
    state.shown = PAGE;
    show(data, form, found, list, state);
  };
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
}

function show(data, form, found, list, state) {
  const test = data.tests[form.elements.test?.value ?? 0];
  const rows = selected(test, form);
  const pair = [form.elements.one.value, form.elements.other.value];
  const entries = form.elements.all.checked ? test.entries : [...new Set(pair)];
  found.textContent = `${rows.length.toLocaleString("en")} of ${test.rows.length.toLocaleString("en")} ${data.unit}s`;
  const cards = rows.slice(0, state.shown).map((row) => card(test, row, entries, data.colours));
  list.replaceChildren(...cards);
  if (rows.length <= state.shown) return;
  const more = make("button", { type: "button", class: "more" }, `Show ${Math.min(PAGE, rows.length - state.shown)} more`);
  more.addEventListener("click", () => {
    state.shown += PAGE;
    show(data, form, found, list, state);
  });
  list.append(more);
}

// The rows of a test set that the controls select, in the chosen order. A row is [source, references, texts, scores, indices].
function selected(test, form) {
  const { one, other, order, min, max, text, differ, repeated, all } = form.elements;
  const [a, b] = [test.entries.indexOf(one.value), test.entries.indexOf(other.value)];
  const shown = all.checked ? test.entries.map((_, index) => index) : [a, b];
  const [least, most] = [Number(min.value || 0), Number(max.value || Infinity)];
  const wanted = text.value.trim().toLowerCase();
  const rows = test.rows.filter((row) => {
    const length = words(row[0]).length;
    if (length < least || length > most) return false;
    if (differ.checked && row[4][a] === row[4][b]) return false;
    if (wanted && ![row[0], ...row[1], ...shown.map((index) => row[2][row[4][index]])].some((t) => t.toLowerCase().includes(wanted))) return false;
    return !repeated.checked || shown.some((index) => repeats(row[2][row[4][index]], row[1]));
  });
  const score = (row, entry) => row[3][row[4][entry]];
  const gain = (row) => score(row, b) - score(row, a);
  const keys = {
    difference: (row) => -Math.abs(gain(row)), gain: (row) => -gain(row), loss: gain, score: (row) => score(row, b),
    length: (row) => -words(row[0]).length,
  };
  const key = keys[order.value];
  return key ? rows.map((row) => [key(row), row]).sort((x, y) => x[0] - y[0]).map((pair) => pair[1]) : rows;
}

function words(text) {
  return text.split(/\s+/).filter(Boolean);
}

function bare(word) {
  return word.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
}

// Words that a text writes twice in a row, by the number of times.
function repetitions(text) {
  const found = words(text).map(bare).filter(Boolean);
  return found.filter((word, index) => index && word === found[index - 1]).length;
}

function repeats(text, references) {
  const count = repetitions(text);
  return count > 0 && references.every((reference) => count > repetitions(reference));
}

function card(test, row, entries, colours) {
  const [source, references, texts, scores, indices] = row;
  const given = make("dl", { class: "given" }, make("dt", {}, "source"), make("dd", {}, source));
  for (const reference of references) given.append(make("dt", {}, "reference"), make("dd", {}, reference));
  const known = new Set(references.flatMap((reference) => words(reference).map(bare)));
  const made = make("dl");
  for (const entry of entries) {
    const index = indices[test.entries.indexOf(entry)];
    const colour = colours[entry.split("/")[0]];
    const dot = make("span", { class: "dot", style: `background:${colour}`, "aria-hidden": "true" });
    const score = make("span", { class: "score" }, scores[index].toFixed(1));
    made.append(make("dt", {}, dot, entry), make("dd", {}, ...marked(texts[index], known), score));
  }
  return make("div", { class: "sample" }, given, made);
}

// The words of a text; those that are in no reference are marked.
function marked(text, known) {
  if (!text.trim()) return [make("span", { class: "faint" }, "(nothing)")];
  const found = words(text);
  if (found.length === 1 && known.size === 1) return [text]; // a language without spaces
  return found.flatMap((word, index) => {
    const shown = bare(word) && !known.has(bare(word)) ? make("mark", {}, word) : word;
    return index ? [" ", shown] : [shown];
  });
}

// The current section

function follow(links) {
  const sections = links.map((link) => document.querySelector(link.getAttribute("href")));
  const update = () => {
    const passed = sections.filter((section) => section.getBoundingClientRect().top < 120).length;
    links.forEach((link, index) => {
      if (index === passed - 1) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  };
  document.addEventListener("scroll", update, { passive: true });
  update();
}

document.querySelectorAll("table.sortable").forEach(sortable);
follow([...document.querySelectorAll("nav a")]);
browser(
  JSON.parse(document.getElementById("data").textContent),
  document.getElementById("controls"), document.getElementById("found"), document.getElementById("sentences"),
);
