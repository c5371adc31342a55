
"use strict";
const at = (id) => document.getElementById(id);
const MAX_TEXTS = 5000, MAX_HEAT = 40, AT_ONCE = 128, NUM_HITS = 10, SVG = "http://www.w3.org/2000/svg";
const EXAMPLES = [
  "The chain squeaks when I pedal uphill.", "How do I fix a flat tyre?", "My brakes rub against the rim.",
  "The gears slip on the smallest sprocket.", "Do you rent bikes by the day?", "Can I bring my old helmet back?",
  "It rained all morning and cleared up at noon.", "A cold front brings snow to the hills.",
  "Tomorrow will be sunny with a light wind.", "She baked a loaf of sourdough bread.",
  "Stir the soup until the potatoes are soft.", "The recipe needs two eggs and some flour.",
];
const known = new Map();
let needsKey = false;

function element(name, attributes = {}, ...children) {
  const made = name === "svg" || ["circle", "line", "text"].includes(name)
    ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function texts() {
  const lines = at("texts").value.split("\n").map((line) => line.trim()).filter(Boolean);
  return [...new Set(lines)].slice(0, MAX_TEXTS);
}

function say(message) { at("status").textContent = message; }

async function request(path, body) {
  const headers = {};
  if (at("key").value) headers.authorization = `Bearer ${at("key").value}`;
  if (body) headers["content-type"] = "application/json";
  for (;;) {
    const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
    if (answer.status === 429) {
      const seconds = Number(answer.headers.get("retry-after")) || 1;
      say(`The server is busy. Waiting ${seconds} s …`);
      await new Promise((done) => setTimeout(done, 1000 * seconds));
      continue;
    }
    needsKey ||= answer.status === 401;
    const content = await answer.json().catch(() => null);
    if (!answer.ok) throw new Error(content?.error?.message ?? `The server answered ${answer.status}.`);
    return content;
  }
}

function decode(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer), vector = new Float32Array(bytes.length / 4);
  for (let i = 0; i < vector.length; i++) vector[i] = view.getFloat32(4 * i, true);
  const length = Math.sqrt(vector.reduce((sum, x) => sum + x * x, 0)) || 1;
  return vector.map((x) => x / length);
}

async function vectorsOf(wanted) {
  const model = at("model").value, name = (text) => `${model}\n${text}`;
  const missing = wanted.filter((text) => !known.has(name(text)));
  let truncated = 0;
  const start = performance.now();
  for (let i = 0; i < missing.length; i += AT_ONCE) {
    const part = missing.slice(i, i + AT_ONCE);
    say(`Embedding ${i} of ${missing.length} texts …`);
    const answer = await request("/v1/embeddings", { input: part, encoding_format: "base64", ...(model && { model }) });
    answer.data.forEach((each) => known.set(name(part[each.index]), decode(each.embedding)));
    truncated += answer.usage.truncated_texts;
  }
  const cut = truncated ? ` ${truncated} of them were longer than the model reads, and were cut.` : "";
  say(missing.length ? `${missing.length} texts embedded in ${((performance.now() - start) / 1000).toFixed(2)} s.${cut}` : "");
  return wanted.map((text) => known.get(name(text)));
}

const cosine = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

async function attempt(work) {
  const buttons = document.querySelectorAll("button.main");
  buttons.forEach((button) => { button.disabled = true; });
  at("problem").textContent = "";
  try { await work(); } catch (error) {
    say("");
    showCode();
    at("problem").textContent = error instanceof TypeError ? "The server cannot be reached." : error.message;
  } finally { buttons.forEach((button) => { button.disabled = false; }); }
}

function need(list, least) {
  if (list.length < least) throw new Error(least === 1 ? "There are no texts. Paste some first." : `At least ${least} texts are needed.`);
}

async function search() {
  const list = texts(), query = at("query").value.trim();
  need(list, 1);
  if (!query) throw new Error("There is no question. Write one first.");
  const [asked, ...vectors] = await vectorsOf([query, ...list]);
  const hits = list.map((text, i) => ({ text, score: cosine(asked, vectors[i]) }));
  hits.sort((a, b) => b.score - a.score);
  at("hits").replaceChildren(...hits.slice(0, NUM_HITS).map(({ text, score }) => {
    const fill = element("span");
    fill.style.width = `${Math.max(0, 100 * score)}%`;
    return element("li", {}, element("span", { class: "score" }, score.toFixed(3)),
      element("span", { class: "text" }, text), element("div", { class: "bar", "aria-hidden": "true" }, fill));
  }));
}

async function drawHeat() {
  const list = texts().slice(0, MAX_HEAT);
  need(list, 2);
  const vectors = await vectorsOf(list);
  const head = element("tr", {}, element("td"), ...list.map((text, i) => element("th", { scope: "col", title: text }, `${i + 1}`)));
  const rows = list.map((text, i) => element("tr", {}, element("th", { scope: "row", title: text }, `${i + 1}. ${text}`),
    ...list.map((other, j) => {
      const value = cosine(vectors[i], vectors[j]), shade = Math.max(0, Math.min(1, value)) ** 1.5;
      const cell = element("td", { title: `${text} – ${other}` }, value.toFixed(2));
      cell.style.backgroundColor = `rgba(var(--hot), ${(0.9 * shade).toFixed(2)})`;
      if (shade > 0.5) cell.style.color = "var(--on-accent)";
      return cell;
    })));
  at("heat-box").replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}

/* The two directions in which vectors differ most, by power iteration. */
function flatten(vectors) {
  const num = vectors.length, width = vectors[0].length;
  const mean = new Float64Array(width);
  vectors.forEach((vector) => vector.forEach((x, i) => { mean[i] += x / num; }));
  const centred = vectors.map((vector) => Float64Array.from(vector, (x, i) => x - mean[i]));
  const axes = [];
  for (let a = 0; a < 2; a++) {
    let axis = Float64Array.from({ length: width }, (_, i) => Math.sin(1 + i * (a + 1)));
    for (let step = 0; step < 60; step++) {
      const next = new Float64Array(width);
      for (const row of centred) {
        const along = cosine(row, axis);
        for (let i = 0; i < width; i++) next[i] += along * row[i];
      }
      for (const other of axes) {
        const along = cosine(next, other);
        for (let i = 0; i < width; i++) next[i] -= along * other[i];
      }
      const length = Math.sqrt(cosine(next, next)) || 1;
      axis = next.map((x) => x / length);
    }
    axes.push(axis);
  }
  return centred.map((row) => axes.map((axis) => cosine(row, axis)));
}

async function drawMap() {
  const list = texts();
  need(list, 3);
  const vectors = await vectorsOf(list), points = flatten(vectors);
  const width = Math.max(300, Math.min(720, at("map-box").clientWidth)), height = Math.max(320, width / 1.5), edge = 24;
  const scaled = [0, 1].map((a) => {
    const values = points.map((point) => point[a]), least = Math.min(...values), span = Math.max(...values) - least || 1;
    const size = [width, height][a];
    return values.map((value) => edge + ((value - least) / span) * (size - 2 * edge));
  });
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, tabindex: "0", role: "application",
    "aria-label": `A map of ${list.length} texts. The arrow keys go from one to the next.` });
  const lines = element("svg"), labels = element("svg");
  const dots = list.map((text, i) => element("circle", { cx: scaled[0][i], cy: scaled[1][i], r: list.length > 200 ? 4 : 7 }));
  svg.append(lines, ...dots, labels);
  const order = list.map((_, i) => i).sort((a, b) => scaled[0][a] - scaled[0][b]);
  let chosen = -1;
  const label = (i) => {
    const short = list[i].length > 30 ? `${list[i].slice(0, 29)}…` : list[i];
    const right = scaled[0][i] > width / 2;
    const made = element("text", { x: scaled[0][i] + (right ? -11 : 11), y: scaled[1][i] + 4, "text-anchor": right ? "end" : "start" }, short);
    labels.append(made);
  };
  const choose = (i) => {
    chosen = i;
    const near = list.map((_, j) => j).filter((j) => j !== i).sort((a, b) => cosine(vectors[i], vectors[b]) - cosine(vectors[i], vectors[a])).slice(0, 3);
    dots.forEach((dot, j) => dot.setAttribute("class", j === i ? "chosen" : near.includes(j) ? "near" : ""));
    lines.replaceChildren(...near.map((j) => element("line", { x1: scaled[0][i], y1: scaled[1][i], x2: scaled[0][j], y2: scaled[1][j] })));
    labels.replaceChildren();
    [i, ...near].forEach(label);
    at("about").replaceChildren(element("strong", {}, list[i]), element("br"),
      `Nearest: ${near.map((j) => `${list[j]} (${cosine(vectors[i], vectors[j]).toFixed(2)})`).join("; ")}`);
  };
  dots.forEach((dot, i) => {
    dot.append(document.createElementNS(SVG, "title"));
    dot.firstChild.textContent = list[i];
    dot.addEventListener("click", () => choose(i));
  });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const place = order.indexOf(chosen);
    choose(order[(place + step + (place < 0 && step < 0 ? 1 : 0) + order.length) % order.length]);
  });
  at("map-box").replaceChildren(svg);
  at("about").textContent = "";
  if (list.length <= 30) list.forEach((_, i) => label(i));
}

function showCode() {
  const model = at("model").value || "mini", origin = location.origin, key = needsKey ? "KEY" : "";
  const header = key ? ` \\\n  -H "Authorization: Bearer ${key}"` : "";
  at("curl").textContent = `curl ${origin}/v1/embeddings \\\n  -H "Content-Type: application/json"${header} \\\n  -d '{"model": "${model}", "input": ["How do I fix a flat tyre?"]}'`;
  at("python").textContent = `from openai import OpenAI\n\nclient = OpenAI(base_url="${origin}/v1", api_key="${key || "unused"}")\nanswer = client.embeddings.create(\n    model="${model}", input=["How do I fix a flat tyre?"]\n)\nprint(answer.data[0].embedding[:5])`;
}

async function loadModels() {
  const list = await request("/v1/models");
  at("model").replaceChildren(...list.data.map((each) => element("option", { value: each.id }, `${each.id} (${each.dimensions})`)));
  showCode();
}

function counted() {
  const num = at("texts").value.split("\n").filter((line) => line.trim()).length;
  at("number").textContent = `${num.toLocaleString("en")} ${num === 1 ? "text" : "texts"}${num > MAX_TEXTS ? `; the first ${MAX_TEXTS} are used` : ""}`;
}

async function read(file) {
  at("texts").value = (await file.text()).replaceAll("\r", "");
  counted();
}

function openTab(tab) {
  for (const each of document.querySelectorAll("[role=tab]")) {
    const open = each === tab;
    each.setAttribute("aria-selected", open);
    each.tabIndex = open ? 0 : -1;
    at(each.getAttribute("aria-controls")).hidden = !open;
  }
}

document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
  const tabs = [...document.querySelectorAll("[role=tab]")], place = tabs.indexOf(document.activeElement);
  const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (to === undefined || place < 0) return;
  event.preventDefault();
  const tab = tabs[(to + tabs.length) % tabs.length];
  tab.focus();
  openTab(tab);
});
document.querySelectorAll("[role=tab]").forEach((tab) => tab.addEventListener("click", () => openTab(tab)));
document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(at(button.dataset.copy).textContent);
    say("Copied.");
  } catch { say("The browser does not allow copying here. Select the text instead."); }
}));
at("ask").addEventListener("submit", (event) => { event.preventDefault(); attempt(search); });
at("draw-heat").addEventListener("click", () => attempt(drawHeat));
at("draw-map").addEventListener("click", () => attempt(drawMap));
at("open").addEventListener("click", () => at("file").click());
at("file").addEventListener("change", () => { if (at("file").files.length) read(at("file").files[0]); });
at("texts").addEventListener("input", counted);
at("texts").addEventListener("dragover", (event) => { event.preventDefault(); at("texts").classList.add("over"); });
at("texts").addEventListener("dragleave", () => at("texts").classList.remove("over"));
at("texts").addEventListener("drop", (event) => {
  at("texts").classList.remove("over");
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  read(event.dataTransfer.files[0]);
});
at("model").addEventListener("change", showCode);
at("key").addEventListener("change", () => attempt(loadModels));
at("texts").value = EXAMPLES.join("\n");
counted();
showCode();
attempt(loadModels);
