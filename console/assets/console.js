"use strict";
// What a page cannot do by itself: times in the viewer's zone, values under the pointer, the live part, checks as one
// types, tables as they are shown as CSV. Without this script pages are as of their moment, and all forms work.

// Moments are written in UTC by the controller.
function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.valueOf()) || time.title) continue;
    time.title = time.textContent;
    const isOfChart = time.parentElement.className === "times";
    time.textContent = isOfChart && Date.now() - moment < 86400000 ? moment.toLocaleTimeString() : moment.toLocaleString();
  }
}

// The column under the pointer, kept over the updates of a live chart.
let pointed = null;
function read(column) {
  const chart = column.closest(".chart");
  const [moment, values] = column.dataset.read.split(/\|(.*)/s);
  chart.querySelector(".readout").textContent = new Date(moment).toLocaleTimeString() + ": " + values;
}
document.addEventListener("pointerover", (event) => {
  const column = event.target.closest ? event.target.closest(".column") : null;
  pointed = column ? [...column.parentElement.querySelectorAll(".column")].indexOf(column) : null;
  if (column) read(column);
});

// What has the focus in the live part has it afterwards, and lists keep their place.
function put(live, markup) {
  const id = document.activeElement && live.contains(document.activeElement) ? document.activeElement.id : "";
  const label = id ? "" : document.activeElement?.getAttribute("aria-labelledby") || document.activeElement?.getAttribute("aria-label");
  const places = [...live.querySelectorAll(".scrolls")].map((list) => list.scrollLeft);
  live.innerHTML = markup;
  localise(live);
  live.querySelectorAll(".scrolls").forEach((list, at) => { list.scrollLeft = places[at] || 0; });
  const again = id ? document.getElementById(id)
    : label ? live.querySelector(`.scrolls[aria-labelledby="${CSS.escape(label)}"], .scrolls[aria-label="${CSS.escape(label)}"]`) : null;
  if (again) again.focus({ preventScroll: true });
  const column = pointed === null ? null : live.querySelectorAll(".column")[pointed];
  if (column) read(column);
  offer();
}

// A cell as console/src/csv.rs writes it: one that a spreadsheet would run as a formula is marked as text.
function cell(of) {
  const bar = of.querySelector("svg[aria-label]");
  let text = (of.innerText.trim() || (bar ? bar.getAttribute("aria-label") : "")).replace(/\s+/g, " ");
  if (/^[=+\-@]/.test(text) && !/^-?[0-9.]*$/.test(text)) text = "'" + text;
  return /[",]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

function save(table, name) {
  const lines = [...table.rows].map((row) => [...row.cells].map(cell).join(",") + "\r\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.join("")], { type: "text/csv" }));
  link.download = name.toLowerCase().replace(/[^a-z0-9]+/g, "-") + ".csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The tables of the page, each by its caption, the title of its part, or that of the page.
const tables = () => [...document.querySelectorAll("main table")];
function called(table) {
  const part = table.closest("[aria-labelledby], [aria-label]");
  const title = part && document.getElementById(part.getAttribute("aria-labelledby"));
  return (table.caption || title || document.querySelector("h1")).textContent;
}

// Buttons that save what is shown; those that are right stay, and with them the focus.
function offer() {
  const place = document.getElementById("as-csv");
  const names = tables().map(called);
  if (place.dataset.names === String(names)) return;
  place.dataset.names = String(names);
  place.hidden = names.length === 0;
  place.replaceChildren("As CSV:", ...names.map((name, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => save(tables()[at], name));
    return button;
  }));
}

function follow(live) {
  const age = document.getElementById("age");
  const pause = document.getElementById("pause");
  let heard = Date.now();
  let source = null;
  let isPaused = false;
  // A text that somebody has marked is not taken away under the mark.
  const isMarked = () => {
    const marked = document.getSelection();
    return marked && !marked.isCollapsed && live.contains(marked.anchorNode);
  };
  const open = () => {
    source = new EventSource(live.dataset.live);
    source.addEventListener("part", (event) => {
      heard = Date.now();
      if (!isPaused && !isMarked()) put(live, event.data);
    });
    // Nothing has changed.
    source.addEventListener("same", () => { heard = Date.now(); });
    // Who is no longer logged in, or follows a group that is gone, finds out why on the page itself.
    source.addEventListener("gone", () => { source.close(); source = null; heard = 0; gone = true; });
  };
  let gone = false;
  open();
  setInterval(() => {
    const seconds = Math.round((Date.now() - heard) / 1000);
    // The browser gives up on a stream whose answer is an error.
    if (!gone && source && source.readyState === EventSource.CLOSED && seconds % 3 === 0) { source.close(); open(); }
    let text = "Live";
    if (gone) text = "Ended: load the page again";
    else if (isPaused) text = "Paused";
    else if (seconds > 3) text = `No news for ${seconds} s; trying again`;
    if (age.textContent !== text) age.textContent = text;
    age.className = gone || (!isPaused && seconds > 3) ? "old" : "";
  }, 1000);
  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
  });
}

// Sends what stands in a form, and puts the answer into its place unless something newer was asked.
async function ask(form, address, place, isNewest, failed) {
  try {
    const answer = await fetch(address, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    const text = await answer.text();
    if (!isNewest()) return;
    if (answer.ok) { place.innerHTML = text; localise(place); }
    else if (answer.status === 401) place.textContent = "You are no longer logged in: log in in another tab, and go on here; what you typed is still here.";
    else place.textContent = failed;
  } catch {
    if (isNewest()) place.textContent = "The controller does not answer; what you typed is still here.";
  }
}

// What saving a form would do, as one types.
function check(form) {
  const effect = document.getElementById("effect");
  let timer = 0;
  let asked = 0;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const mine = ++asked;
      ask(form, form.dataset.check, effect, () => mine === asked, "It could not be checked; what you typed is still here.");
    }, 300);
  });
}

// What recorded demand would have met, when it is asked for: a replay takes the controller a while, so one at a time.
function replay(form) {
  const shown = document.getElementById("what-if");
  const button = document.getElementById("ask-what-if");
  if (!button) return;
  let isAsking = false;
  let typed = 0;
  const old = (isOld) => { for (const note of shown.querySelectorAll(".old")) note.hidden = !isOld; };
  form.addEventListener("input", () => { typed += 1; old(true); });
  button.addEventListener("click", async (event) => {
    event.preventDefault();
    if (isAsking) return;
    isAsking = true;
    const before = typed;
    shown.textContent = "Replaying…";
    await ask(form, form.dataset.replay, shown, () => true, "It could not be replayed; what you typed is still here.");
    old(typed !== before);
    isAsking = false;
  });
}

localise(document);
offer();
const live = document.getElementById("live");
if (live) follow(live);
const form = document.querySelector("form[data-check]");
if (form) { check(form); replay(form); }
