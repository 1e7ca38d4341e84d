// The console's only script. Pages can be read without it. With it they stay up to date, times are in the
// reader's own zone, keys go from page to page, and what cannot be undone asks once more.
//
// Live: while the tab is visible, the page is fetched again every two seconds, without its navigation
// (X-Fragment). Each element with data-live that has changed replaces the one with the same id. An element
// in which somebody writes or has opened something is left alone. 304: nothing has changed.
"use strict";

(() => {
  const EVERY_MS = 2000, PATIENCE_MS = 15000, KEY_MS = 1200;
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  // --- light and dark ---------------------------------------------------------------------------

  const THEME = "kumquat_theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // The cookie lets the server send the next page in the right colours at once.
  function switchTheme() {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    root.dataset.theme = next;
    document.cookie = `${THEME}=${next}; Path=/; SameSite=Strict; Max-Age=31536000`;
  }

  // --- times ------------------------------------------------------------------------------------

  const sameDay = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const otherDay = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  function distance(ms) {
    const seconds = Math.round(Math.abs(Date.now() - ms) / 1000);
    const [size, unit] = UNITS.find(([size]) => seconds >= size) || [1, "s"];
    const text = `${Math.floor(seconds / size)} ${unit}`;
    return ms > Date.now() ? `in ${text}` : `${text} ago`;
  }
  function showTimes(within) {
    const today = new Date().toDateString();
    for (const time of within.querySelectorAll("time[data-ms]")) {
      const ms = Number(time.dataset.ms), date = new Date(ms);
      if (Number.isNaN(date.getTime())) continue;
      time.title = time.getAttribute("datetime");
      const text = (date.toDateString() === today ? sameDay : otherDay).format(date);
      const shown = `${text} (${distance(ms)})`;
      if (time.textContent !== shown) time.textContent = shown;
    }
  }

  // --- live -------------------------------------------------------------------------------------

  const light = byId("live");
  let etag = null, timer = 0, busy = false;

  function say(state, text) {
    if (!light) return;
    light.className = `live ${state}`;
    light.title = text;
    light.lastElementChild.textContent = state === "on" ? "live" : state === "lost" ? "no answer" : "paused";
  }
  function inUse(element) {
    const focus = document.activeElement;
    const writes = focus && element.contains(focus) && focus.matches("input, textarea, select");
    const selection = getSelection();
    const selects = selection && !selection.isCollapsed && element.contains(selection.anchorNode);
    return writes || selects;
  }
  function replace(fresh) {
    for (const now of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(now.id);
      if (!next || inUse(now) || now.dataset.html === next.innerHTML) continue;
      const html = next.innerHTML;
      const focused = now.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      now.className = next.className;
      now.replaceChildren(...next.childNodes);
      now.dataset.html = html;
      showTimes(now);
      if (focused) now.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    }
  }
  async function refresh() {
    if (busy || document.hidden) return;
    busy = true;
    try {
      const headers = { "X-Fragment": "1" };
      if (etag) headers["If-None-Match"] = etag;
      const signal = AbortSignal.timeout(PATIENCE_MS);
      const answer = await fetch(location.href, { headers, signal, cache: "no-store", credentials: "same-origin" });
      if (answer.status === 200) {
        etag = answer.headers.get("ETag");
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      }
      if (answer.ok || answer.status === 304) say("on", "This page is up to date");
      else say("lost", `The broker answers ${answer.status}: load the page again`);
    } catch {
      say("lost", "The broker does not answer; trying again");
    } finally {
      busy = false;
      showTimes(document);
    }
  }
  function watch() {
    clearInterval(timer);
    timer = 0;
    if (document.hidden) return say("off", "Paused while the tab is hidden");
    say("on", "Up to date within two seconds");
    timer = setInterval(refresh, EVERY_MS);
    refresh();
  }

  // --- keys -------------------------------------------------------------------------------------

  let pressed = "", since = 0;

  function onKey(event) {
    const field = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && field) return field.blur();
    if (field || event.ctrlKey || event.metaKey || event.altKey || byId("sure").open) return;
    if (event.key === "/") {
      event.preventDefault();
      const find = byId("filter") || byId("find");
      find.focus();
      return find.select();
    }
    if (pressed === "g" && event.timeStamp - since < KEY_MS) {
      const link = document.querySelector(`.side a[data-key="${CSS.escape(event.key)}"]`);
      if (link) link.click();
    }
    pressed = event.key;
    since = event.timeStamp;
  }

  // --- what cannot be undone --------------------------------------------------------------------

  function askFirst(event) {
    const form = event.target, text = form.dataset?.sure;
    if (form.method !== "post") return;
    if (form.dataset.sent) return event.preventDefault();  // a double click: it is on its way
    if (!text || form.dataset.confirmed) {
      form.dataset.sent = "yes";
      return;
    }
    event.preventDefault();
    const dialog = byId("sure");
    byId("sure-text").textContent = text;
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "yes") return;
      form.dataset.confirmed = "yes";
      form.requestSubmit();
    }, { once: true });
    dialog.showModal();
  }

  // --- begin ------------------------------------------------------------------------------------

  document.addEventListener("keydown", onKey);
  document.addEventListener("submit", askFirst);
  addEventListener("pageshow", () => {  // also when somebody goes back to this page
    for (const form of document.forms) {
      delete form.dataset.sent;
      delete form.dataset.confirmed;
    }
  });
  const button = byId("theme");
  if (button) {
    button.hidden = false;
    button.addEventListener("click", switchTheme);
  }
  showTimes(document);
  if (document.querySelector("[data-live]") && light) {
    light.hidden = false;
    document.addEventListener("visibilitychange", watch);
    watch();
  }
})();
