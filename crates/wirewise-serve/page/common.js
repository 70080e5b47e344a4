// SPDX-License-Identifier: Apache-2.0
// What all parts of the page use. Whatever the API answers is text, and is put in as text.

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

export function row(...cells) {
  return make("tr", {}, ...cells.map((cell) => (cell instanceof Node ? cell : make("td", {}, cell ?? ""))));
}

export const number = (value) => make("td", { class: "number" }, value);

export function short(value) {
  if (value === null || value === undefined) return "";
  const units = ["", "k", "M", "G", "T"];
  let unit = 0;
  while (value >= 10000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)}${units[unit]}`;
}

// A time that is left.
export const left = (seconds) => (seconds < 120 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`);

export class Refused extends Error {}

export async function ask(path, method = "GET") {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { method, headers, cache: "no-store" });
  if (response.status === 401) throw new Refused("this token is not known");
  return response;
}

export async function read(path) {
  const response = await ask(path);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error.message);
  return body;
}

// Shows a dialog until it is closed. An event of the one before may still be on its way when it opens.
export function closed(dialog) {
  return new Promise((resolve) => {
    const onClose = () => {
      if (dialog.open) return;
      dialog.removeEventListener("close", onClose);
      resolve(dialog.returnValue);
    };
    dialog.addEventListener("close", onClose);
    dialog.returnValue = "";
    dialog.showModal();
  });
}

export async function login(why) {
  $("login-error").textContent = why;
  await closed($("login"));
  sessionStorage.setItem("token", $("token").value.trim());
  $("token").value = "";
}

export async function confirmed(text) {
  $("confirm-text").textContent = text;
  return (await closed($("confirm"))) === "yes";
}

export async function change(path, text) {
  if (!(await confirmed(text))) return;
  $("answer").textContent = "";
  const response = await ask(path, "POST");
  const body = await response.json();
  const said = response.ok ? body.changes.join("; ") || "nothing to change" : body.error.message;
  $("answer").textContent = said;
  $("answer").className = response.ok ? "good" : "bad";
}

export const end = (address, port) => (address ? (port === undefined || port === null ? address : `${address.includes(":") ? `[${address}]` : address}:${port}`) : "");
