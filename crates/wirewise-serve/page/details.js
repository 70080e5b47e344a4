// SPDX-License-Identifier: Apache-2.0
// What is asked for when somebody wants to see it: why an event, who sends and receives the most, who is denied or banned, what is known of the models.

import { $, change, closed, left, make, number, read, row } from "./common.js";

const EACH_MS = 5000;
const SHOWN_TREES = 5;
const SHOWN_TALKERS = 10;

let interfaces = () => [];

const query = (place, more) => new URLSearchParams({ interface: place.interface, ...(place.netns ? { netns: place.netns } : {}), ...more });
const amount = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : value.toLocaleString("en", { maximumSignificantDigits: 5 }));
const percent = (share) => `${(100 * share).toFixed(1)} %`;

function table(head, rows) {
  const cells = head.map(([text, style]) => make("th", style ? { class: style } : {}, text));
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows)));
}

function denial(place, prefix, minutes) {
  const path = `api/v1/deny?${query(place, { prefix, seconds: 60 * minutes })}`;
  return change(path, `Have ${place.interface} drop all that ${prefix} sends, for ${minutes} minutes?`);
}

function allowance(place, prefix, minutes) {
  const path = `api/v1/allow?${query(place, { prefix, seconds: 60 * minutes })}`;
  return change(path, `Have ${place.interface} let all through that ${prefix} sends, for ${minutes} minutes, though it is denied or banned?`);
}

// ---- why

function tree({ says, tests }, index) {
  const steps = tests.map(({ feature, value, threshold, below }) =>
    make("li", {}, `${feature} = ${amount(value)} ${below ? "\u2264" : ">"} ${amount(threshold)}`));
  return make("div", {}, make("h4", {}, `Tree ${index}: ${says}`), make("ol", {}, ...steps));
}

// What a network would say with one feature at either end of what it tells apart is computed, not estimated; shares of a score would be made up.
function networkParts({ class: name, scores, inputs }, event) {
  const change = ({ value, class: other }) => (other === name ? "no change" : `${other} at ${amount(value)}`);
  const rows = inputs.map(({ feature, encoded, otherwise }) => row(feature, number(encoded === null ? "as bits" : amount(encoded)),
    ...(otherwise.length ? otherwise.map(change) : ["makes no difference", ""]).map((text) => make("td", { class: "wrap" }, text))));
  return [
    make("h4", {}, `Scores: ${name}`),
    table([["Class"], ["Score", "number"]], scores.map((it) => row(it.class, number(it.score.toLocaleString("en"))))),
    ...(scores.length === 1 ? [make("p", { class: "faint" }, "The class is this one if its score is above 0.")] : []),
    make("h4", {}, "If one feature alone were another"),
    table([["Feature"], ["Network gets", "number"], ["At its lowest"], ["At its highest"]], rows),
    ...(name !== event.wirewise.class ? [make("p", {}, `The event has another class: ${event.wirewise.class}.`)] : []),
  ];
}

async function explained(event, place) {
  const { features } = event.wirewise;
  if (!features) {
    return [make("p", {}, "This event has no features. Either its policy does not ask for them (events: {features: true}), or the model did not run on this packet, and the verdict of an earlier one holds.")];
  }
  const said = await read(`api/v1/explain?${new URLSearchParams({ interface: place.interface, features: JSON.stringify(features) })}`);
  const rows = said.features.map((it) => row(it.name, number(amount(it.value)), it.unit));
  const more = said.trees.length - SHOWN_TREES;
  return [
    make("p", { class: "faint" }, `${said.bundle}: ${said.model}`),
    table([["Feature"], ["Value", "number"], ["Unit"]], rows),
    ...said.outside.map((it) => make("p", {}, `${it.feature} = ${amount(it.value)} is outside what training saw (${amount(it.low)} to ${amount(it.high)}), so the class is unknown.`)),
    ...(said.network ? networkParts(said.network, event) : []),
    ...said.trees.slice(0, SHOWN_TREES).map(tree),
    ...(more > 0 ? [make("details", {}, make("summary", {}, `${more} more trees`), ...said.trees.slice(SHOWN_TREES).map((it, index) => tree(it, index + SHOWN_TREES)))] : []),
    ...(said.not_shown ? [make("p", {}, said.not_shown)] : []),
  ];
}

export async function why(event, place) {
  const { class: name, outcome, action, packets } = event.wirewise;
  $("why-title").textContent = `Why ${name}`;
  $("why-facts").textContent = `${event.src_ip ?? "?"} to ${event.dest_ip ?? "?"}, packet ${packets} of its flow: the policy says ${action}, outcome ${outcome}.`;
  $("why-text").replaceChildren(make("p", {}, "asking"));
  $("why-deny").hidden = !event.src_ip;
  $("why-deny").textContent = `Deny ${event.src_ip} for 10 minutes`;
  const answer = closed($("why"));
  try {
    $("why-text").replaceChildren(...(await explained(event, place)));
  } catch (error) {
    $("why-text").replaceChildren(make("p", { class: "bad" }, error.message));
  }
  if ((await answer) === "deny") await denial(place, event.src_ip, 10);
}

// ---- sources and targets

async function talkers() {
  const { attachments } = await read(`api/v1/talkers?limit=${SHOWN_TALKERS}`);
  const top = (title, kind) => {
    const all = attachments.flatMap((it) => it[kind].first.map((talker) => ({ name: it.interface, ...talker })));
    all.sort((one, other) => other.packets - one.packets);
    const rows = all.slice(0, SHOWN_TALKERS).map((it) => row(it.address, number(it.packets.toLocaleString("en")), number(it.flows.toLocaleString("en")), it.name));
    return make("div", {}, table([[title], ["Packets", "number"], ["Flows", "number"], ["Interface"]], rows));
  };
  const inexact = attachments.filter(({ sources, targets }) => !(sources.exact && targets.exact)).map((it) => it.interface);
  $("talkers-section").querySelector(".note").textContent = "Of the flows that are in the flow tables now."
    + (inexact.length ? ` At least so much on ${inexact.join(", ")}: there are too many addresses to count each.` : "");
  $("talkers").replaceChildren(top("Source", "sources"), top("Target", "targets"));
}

// ---- lists and bans

// list : what takes it off there; null: nothing here does.
function listed(place, prefix, by, seconds, list) {
  const button = (text, act) => {
    const made = make("button", { class: "small", "aria-label": `${text} ${prefix} on ${place.key}` }, text);
    made.addEventListener("click", async () => {
      await act();
      await lists();
    });
    return made;
  };
  const question = list === "allowed" ? `Allow ${prefix} on ${place.key} no longer?` : `Let ${prefix} in again on ${place.key}?`;
  const lift = () => change(`api/v1/lift?${query(place, { prefix, list })}`, question);
  const minutes = Number($("deny-minutes").value) || 10;
  return row(place.key, prefix, by, number(seconds === null ? "until removed" : left(seconds)), make("td", {},
    ...(by.startsWith("allowed") ? [] : [button(`Allow for ${minutes} min`, () => allowance(place, prefix, minutes)), " "]),
    ...(list === null ? [] : [button("Lift", lift)])));
}

async function lists() {
  const { attachments } = await read("api/v1/lists");
  const rows = [];
  const notes = [];
  for (const { interface: name, allowed, denied, banned } of attachments) {
    const place = interfaces().find((it) => it.interface === name) ?? { key: name, interface: name };
    for (const { prefix, allowed_by: who } of allowed.first) {
      for (const { origin, for_s: seconds } of who) rows.push(listed(place, prefix, `allowed: ${origin}`, seconds, origin === "hand" ? "allowed" : null));
    }
    for (const { prefix, denied_by: who } of denied?.first ?? []) {
      // What others deny, they lift.
      for (const { origin, for_s: seconds } of who) rows.push(listed(place, prefix, origin, seconds, origin === "hand" ? "denied" : null));
    }
    for (const { source, destination, for_ms: ms, would } of banned?.first ?? []) {
      const by = `ban${destination ? ` to ${destination}` : ""}${would ? ", observed only" : ""}`;
      rows.push(listed(place, source, by, Math.ceil(ms / 1000), "banned"));
    }
    for (const [list, what] of [[allowed, "allowed"], [denied, "denied"], [banned, "banned"]]) {
      if (list && list.count > list.first.length) notes.push(`${place.key}: ${list.count.toLocaleString("en")} ${what}, of which ${list.first.length} are shown.`);
    }
    if (!denied) notes.push(`${place.key}: its policy has no deny list (deny: {}).`);
  }
  // As they are, if nothing changed: a key press finds its button.
  const shown = $("listed");
  const text = (all) => all.map((it) => it.textContent).join("\n");
  if (text(rows) !== text([...shown.children])) shown.replaceChildren(...rows);
  $("listed-note").textContent = [...(rows.length ? [] : ["Nobody is allowed, denied or banned."]), ...notes].join(" ");
  const select = $("deny-where");
  const keys = interfaces().map(({ key }) => key);
  if (keys.join() !== [...select.options].map(({ value }) => value).join()) {
    select.replaceChildren(...keys.map((key) => make("option", { value: key }, key)));
  }
}

// ---- models

const plain = (value) => (typeof value === "number" ? amount(value) : typeof value === "object" && value !== null ? JSON.stringify(value) : value);

// Objects with the same keys.
function records(all) {
  const keys = Object.keys(all[0]);
  const cell = (value) => (typeof value === "number" ? number(plain(value)) : plain(value));
  return table(keys.map((key) => [key.replaceAll("_", " "), typeof all[0][key] === "number" ? "number" : ""]), all.map((it) => row(...keys.map((key) => cell(it[key])))));
}

// Facts in facts, as lines.
function facts(of, depth = 0) {
  return make("ul", {}, ...Object.entries(of).filter(([, value]) => value !== null).map(([key, value]) => {
    const label = key.replaceAll("_", " ");
    if (Array.isArray(value) && value[0] && typeof value[0] === "object" && !Array.isArray(value[0])) return make("li", {}, label, records(value));
    if (typeof value !== "object" || Array.isArray(value) || depth > 2) return make("li", {}, `${label}: ${plain(value)}`);
    return make("li", {}, label, facts(value, depth + 1));
  }));
}

function drifts({ verdict, compared }) {
  if (!compared) return [make("p", { class: "note" }, "The bundle was compiled without a table, so live flows cannot be compared with training.")];
  const rows = compared.features.map((it) => row(it.name, it.level.replaceAll("-", " "), number(it.psi.toFixed(3)), number(percent(it.outside)), number(`${amount(it.low)} to ${amount(it.high)}`), it.unit));
  return [
    make("p", {}, `${verdict ? verdict.replaceAll("-", " ") : "too few flows for a verdict"}; ${compared.flows.toLocaleString("en")} live flows, ${compared.training_flows.toLocaleString("en")} of training`),
    table([["Feature"], ["Live flows are"], ["PSI", "number"], ["Outside", "number"], ["Range of training", "number"], ["Unit"]], rows),
  ];
}

function shadows({ shadow }) {
  if (!shadow) return [make("p", { class: "note" }, "No shadow runs (wirewised swap --shadow).")];
  const share = shadow.packets ? percent(shadow.agree / shadow.packets) : "nothing yet";
  const rows = shadow.pairs.map(({ first, shadow: second, packets }) => row(first, second, number(packets.toLocaleString("en")), first === second ? "agree" : "differ"));
  return [
    make("p", {}, `${shadow.bundle?.name ?? "unknown bundle"} since ${shadow.since ?? "?"}: agrees on ${share} of ${shadow.packets.toLocaleString("en")} packets`),
    table([["Active"], ["Shadow"], ["Packets", "number"], [""]], rows),
  ];
}

const signature = (signer) => (!signer ? "unsigned" : signer.trusted_as ? `signed by ${signer.trusted_as}` : `signed by a key that this machine does not trust, ${signer.fingerprint}`);

function model(card, drift, stats) {
  const classes = card.classes.map((it) => row(it.name, it.action, it.mode));
  const features = card.features.map((it) => row(it.name, it.spec, it.unit));
  const part = (title, of) => (of ? [make("h4", {}, title), facts(of)] : []);
  const evaluated = card.accuracy || card.fidelity ? [] : [make("p", { class: "note" }, "The bundle says nothing of how good its model is: it was compiled without a training record.")];
  return make("article", {},
    make("h3", {}, `${card.name} on ${card.interface}`),
    make("p", {}, `${card.model}; flows by ${card.key}; compiled ${card.created}; ${signature(card.signer)}`),
    make("p", { class: "faint digest" }, `SHA-256 ${card.digest}`),
    table([["Class"], ["Action"], ["Mode"]], classes),
    make("details", {}, make("summary", {}, card.features.length === 1 ? "1 feature" : `${card.features.length} features`), table([["Feature"], ["Is"], ["Unit"]], features)),
    make("h4", {}, "Drift by feature"), ...drifts(drift),
    make("h4", {}, "Shadow against active"), ...shadows(stats),
    ...part("Accuracy", card.accuracy), ...part("Fidelity", card.fidelity), ...part("Training", card.training), ...evaluated);
}

// Details that are open stay open.
async function models() {
  const [cards, drift, stats] = await Promise.all(["card", "drift", "stats"].map((name) => read(`api/v1/${name}`)));
  const of = (all, name) => all.attachments.find((it) => it.interface === name) ?? {};
  const open = [...$("models").querySelectorAll("details")].map((it) => it.open);
  const articles = cards.attachments.map((card) => model(card, of(drift, card.interface), of(stats, card.interface)));
  $("models").replaceChildren(...(articles.length ? articles : [make("p", { class: "note" }, "No model can be shown.")]));
  $("models").querySelectorAll("details").forEach((it, index) => { it.open = open[index] ?? false; });
}

// Asks when a section is opened, and again while it is open.
function whileOpen(section, show) {
  const turn = async () => {
    if (!section.open) return;
    try {
      await show();
    } catch (error) {
      section.querySelector(".note").textContent = error.message;
    }
    setTimeout(turn, EACH_MS);
  };
  section.addEventListener("toggle", turn);
}

// where : the interfaces that are shown now.
export function begin(where) {
  interfaces = where;
  whileOpen($("talkers-section"), talkers);
  whileOpen($("lists-section"), lists);
  whileOpen($("models-section"), models);
  $("deny").addEventListener("submit", async (event) => {
    event.preventDefault();
    const place = interfaces().find(({ key }) => key === $("deny-where").value);
    if (!place) return;
    const ask = event.submitter?.value === "allow" ? allowance : denial;
    await ask(place, $("deny-prefix").value.trim(), Number($("deny-minutes").value));
    await lists();
  });
}
