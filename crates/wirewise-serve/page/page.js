// SPDX-License-Identifier: Apache-2.0
// Shows what happens, each second anew.

import { $, Refused, ask, change, end, left, login, make, number, read, row, short } from "./common.js";
import { begin, why } from "./details.js";

const EACH_MS = 1000;
const KEPT_SECONDS = 120;
const KEPT_EVENTS = 200;
const HITS = ["drop", "would-drop", "limited", "would-limit", "ban", "would-ban", "acted", "would-act"];

const history = new Map();
let lastEvent = "";

// Packets since the reading before, a second: all, and those that were dropped, limited or sent elsewhere, or would be.
function note(key, classes, seconds) {
  const totals = classes.map((row) => ({
    name: row.name,
    packets: row.packets,
    bytes: row.bytes,
    hits: HITS.reduce((sum, outcome) => sum + (row.outcomes[outcome]?.packets ?? 0), 0),
  }));
  const known = history.get(key) ?? { points: [], totals: null };
  const rates = totals.map((now) => {
    const before = known.totals?.find((it) => it.name === now.name);
    // Counters that begin again have no rate yet.
    if (!before || now.packets < before.packets || !seconds) return { ...now, rate: null, bits: null, hitRate: 0 };
    return {
      ...now,
      rate: (now.packets - before.packets) / seconds,
      bits: (8 * (now.bytes - before.bytes)) / seconds,
      hitRate: (now.hits - before.hits) / seconds,
    };
  });
  if (known.totals) {
    const sum = (name) => rates.reduce((total, it) => total + (it[name] ?? 0), 0);
    known.points = [...known.points, { all: sum("rate"), hits: sum("hitRate") }].slice(-KEPT_SECONDS);
  }
  known.totals = totals;
  history.set(key, known);
  return rates;
}

function chart(points, name) {
  const most = Math.max(1, ...points.map((point) => point.all));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const last = points.at(-1) ?? { all: 0, hits: 0 };
  svg.setAttribute("viewBox", `0 0 ${KEPT_SECONDS - 1} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${name}: ${short(last.all)} packets a second, of which ${short(last.hits)} do not simply pass`);
  for (const [kind, style] of [["all", "pass"], ["hits", "hit"]]) {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    const start = KEPT_SECONDS - points.length;
    line.setAttribute("points", points.map((point, i) => `${start + i},${98 - (96 * point[kind]) / most}`).join(" "));
    line.setAttribute("class", style);
    svg.append(line);
  }
  return svg;
}

const places = new Map();

// Events name the interface only.
const placeOf = (name) => [...places.values()].map(({ place }) => place).find((place) => place.interface === name) ?? { interface: name };

// The mode of the interface, or of a class, for some minutes: the data path itself counts them.
function forAWhile(key, where) {
  const option = (value, text) => make("option", { value }, text);
  const classes = make("select", {}, option("", "the interface"));
  const mode = make("select", {}, option("observe", "observe"), option("enforce", "enforce"));
  const minutes = make("input", { type: "number", min: 1, max: 43200, value: 10, required: "" });
  const form = make("form", { class: "fields" }, make("label", {}, "Of ", classes), make("label", {}, "Mode ", mode),
    make("label", {}, "Minutes ", minutes), make("button", { "aria-label": `Change the mode on ${key} for a while` }, "For a while"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const other = mode.value === "observe" ? "enforce" : "observe";
    const query = new URLSearchParams({ mode: mode.value, seconds: 60 * Number(minutes.value), ...(classes.value ? { class: classes.value } : {}) });
    change(`api/v1/mode?${where}&${query}`,
      `Have ${classes.value ? `${classes.value} on ${key}` : key} ${mode.value} for ${minutes.value} minutes, and ${other} after that?`);
  });
  return { form, classes };
}

// What a mode is called, with the time that it has left.
const modeText = (mode, seconds) => (typeof seconds === "number" ? `${mode}, ${left(seconds)} left` : mode);

// One card per interface. Buttons stay as they are, so that a key press between two readings finds its button.
function card(key, place) {
  if (!places.has(key)) {
    const title = make("h3", {}, key);
    const mode = make("span", { class: "badge" });
    const body = make("div");
    const buttons = make("div", { class: "buttons" });
    const where = new URLSearchParams({ interface: place.interface, ...(place.netns ? { netns: place.netns } : {}) });
    for (const [text, path, question] of [
      ["Observe", `api/v1/mode?${where}&mode=observe`, `Let every packet of ${key} pass, until the configuration is read again?`],
      ["Enforce", `api/v1/mode?${where}&mode=enforce`, `Drop packets of ${key} as the policy says, until the configuration is read again?`],
      ["Roll back", `api/v1/rollback?${where}`, `Let ${key} go back to what ran before the last swap?`],
    ]) {
      const button = make("button", { "aria-label": `${text} ${key}` }, text);
      button.addEventListener("click", () => change(path, question));
      buttons.append(button);
    }
    const whileForm = forAWhile(key, where);
    const article = make("article", {}, make("header", {}, title, mode), body, buttons, whileForm.form);
    places.set(key, { place, article, mode, body, classes: whileForm.classes });
    $("interfaces").append(article);
  }
  return places.get(key);
}

let readAt = null;

async function now() {
  const [{ attachments }, { attachments: statuses }] = await Promise.all([read("api/v1/stats"), read("api/v1/status")]);
  const at = performance.now();
  const seconds = readAt === null ? null : (at - readAt) / 1000;
  readAt = at;
  const seen = new Set();
  for (const [index, stats] of attachments.entries()) {
    const status = statuses.find((it) => it.pins === statuses[index]?.pins && it.interface === stats.interface) ?? statuses.find((it) => it.interface === stats.interface);
    const netns = status?.network_namespace?.netns ?? null;
    const key = netns ? `${stats.interface} in ${netns}` : stats.interface;
    seen.add(key);
    const shown = card(key, { interface: stats.interface, netns });
    const rates = note(key, stats.classes, seconds);
    shown.mode.textContent = modeText(status?.mode ?? stats.mode, status?.enforce_remaining_seconds ?? status?.observe_remaining_seconds);
    const modes = new Map((status?.classes ?? []).map(({ name, mode, asked }) => [name, asked && asked.mode !== mode ? `${mode} (asked: ${modeText(asked.mode, asked.remaining_seconds)})` : modeText(mode, asked?.remaining_seconds)]));
    for (const { name } of stats.classes) {
      if (![...shown.classes.options].some(({ value }) => value === name)) shown.classes.append(make("option", { value: name }, name));
    }
    shown.mode.className = `badge ${stats.mode.startsWith("enforce") ? "bad" : "good"}`;
    const table = make("table", {},
      make("thead", {}, make("tr", {}, ...["Class", "Action", "Mode"].map((text) => make("th", {}, text)),
        ...["Packets/s", "bit/s", "Packets", "Not passed"].map((text) => make("th", { class: "number" }, text)))),
      make("tbody", {}, ...rates.map((it, i) => row(it.name, make("td", { class: "wrap" }, stats.classes[i].action), modes.get(it.name), number(short(it.rate)),
        number(short(it.bits)), number(it.packets.toLocaleString("en")), number(it.hits.toLocaleString("en"))))));
    shown.body.replaceChildren(
      make("p", { class: "faint" }, `${stats.bundle ?? "unknown bundle"} on ${status?.plane_obtained ?? "nothing any more"}, since ${status?.since ?? "?"}`),
      chart(history.get(key).points, key),
      make("p", { class: "legend" }, make("span", {}, "all packets"), make("span", { class: "is-hit" }, "dropped or acted on, or would be"),
        make("b", {}, `top: ${short(Math.max(0, ...history.get(key).points.map((point) => point.all)))} packets/s`)),
      make("div", { class: "scroll" }, table),
      ...(stats.shadow ? [make("p", {}, `Shadow: disagrees on ${stats.shadow.disagree.toLocaleString("en")} of ${stats.shadow.packets.toLocaleString("en")} packets`)] : []),
    );
  }
  for (const [key, { article }] of places) {
    if (!seen.has(key)) {
      article.remove();
      places.delete(key);
      history.delete(key);
    }
  }
  if (!seen.size) $("interfaces").replaceChildren(make("p", { class: "note" }, "Nothing is attached."));
  else for (const node of [...$("interfaces").children]) if (node.tagName === "P") node.remove();
}

const PROTOCOLS = { 1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP" };

async function flows() {
  const { attachments } = await read("api/v1/flows?sort=packets&limit=10");
  const all = attachments.flatMap(({ interface: name, flows }) => flows.map((flow) => ({ name, ...flow })));
  all.sort((one, other) => other.packets - one.packets);
  $("flows").replaceChildren(...all.slice(0, 20).map((flow) => row(
    number(flow.packets.toLocaleString("en")), flow.class ?? "no verdict yet", end(flow.source, flow.source_port),
    end(flow.destination, flow.destination_port), PROTOCOLS[flow.protocol] ?? flow.protocol, flow.name,
    number(`${flow.age_seconds.toFixed(1)} s ago`))));
}

async function service() {
  const state = await read("api/v1/state");
  const bad = [
    ...(state.refused ? [`The configuration that was read last is not in force: ${state.refused}`] : []),
    ...state.places.filter((place) => place.error).map((place) => `${place.interface}: ${place.error}`),
    ...state.missing.map((place) => `${place.interface}${place.netns ? ` in ${place.netns}` : ""} is not there`),
    ...state.places.filter((place) => place.outages).map((place) => `${place.interface}: its carrier ended ${place.outages} times, ${place.outage_seconds.toFixed(1)} s in all`),
  ];
  const count = state.places.length;
  const well = count === 1 ? "1 interface, as configured" : count ? `${count} interfaces, all as configured` : "no interface to keep yet";
  $("health").textContent = bad.length ? `${bad.length} to look at` : well;
  $("health").className = bad.length ? "bad" : "good";
  $("service").replaceChildren(...(bad.length ? bad : ["Everything runs as configured."]).map((text) => make("li", {}, text)));
}

function eventRow(event) {
  const button = make("button", { class: "small", "aria-label": `Why ${event.wirewise.class} from ${event.src_ip ?? "this flow"}` }, "Why");
  button.addEventListener("click", () => why(event, placeOf(event.in_iface)));
  return row(make("td", {}, button),
    make("td", { title: event.timestamp }, new Date(event.timestamp).toLocaleTimeString("en-GB")), event.wirewise.class,
    event.wirewise.outcome, end(event.src_ip, event.src_port), end(event.dest_ip, event.dest_port), event.in_iface,
    number(event.wirewise.packets));
}

// What is shown already stays as it is, so that a key press finds its button.
function showEvents(heard) {
  const table = $("events");
  for (const event of heard.slice(-KEPT_EVENTS)) table.prepend(eventRow(event));
  while (table.children.length > KEPT_EVENTS) table.lastChild.remove();
}

function heard(text) {
  const event = JSON.parse(text);
  if (event.event_type === "missed") {
    $("events-note").textContent = "Newest first; there were more than could be read.";
    return [];
  }
  lastEvent = event.timestamp > lastEvent ? event.timestamp : lastEvent;
  return [event];
}

// Server-sent events, by a request that can carry the token. The service ends it after a while; then the next begins where it ended.
async function listen() {
  for (;;) {
    try {
      const response = await ask(`api/v1/events?since=${encodeURIComponent(lastEvent)}`);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        showEvents(parts.filter((part) => part.startsWith("data: ")).flatMap((part) => heard(part.slice(6))));
      }
    } catch (error) {
      if (error instanceof Refused) return;
    }
    await new Promise((resolve) => setTimeout(resolve, EACH_MS));
  }
}

async function main() {
  $("reload").addEventListener("click", () => change("api/v1/reload", "Read the configuration again, and apply it?"));
  begin(() => [...places].map(([key, { place }]) => ({ key, ...place })));
  let listens = false;
  // An address may bring its token behind a #, which browsers send to nobody.
  const brought = new URLSearchParams(location.hash.slice(1)).get("token");
  if (brought) {
    sessionStorage.setItem("token", brought);
    window.history.replaceState(null, "", location.pathname);
  }
  if (!sessionStorage.getItem("token")) await login("");
  for (let round = 0; ; round += 1) {
    try {
      // Alone at first: a wrong token counts as one failure, and the service allows few.
      await service();
      await Promise.all([now(), ...(round % 3 ? [] : [flows()])]);
      if (!listens) listen().finally(() => { listens = false; });
      listens = true;
    } catch (error) {
      if (error instanceof Refused) {
        await login(error.message);
        continue;
      }
      $("health").textContent = `no answer: ${error.message}`;
      $("health").className = "bad";
    }
    await new Promise((resolve) => setTimeout(resolve, EACH_MS));
  }
}

main();
