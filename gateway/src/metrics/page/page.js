"use strict";
// Reads the counters every two seconds, and shows how fast they grow.

const INTERVAL = 2000; // ms
const KEPT = 150; // readings: five minutes
const PREFIX = "quicket_gateway_";
const WIDTH = 480, HEIGHT = 130, LEFT = 52, BOTTOM = 18;

// Without the name and the password that an address may have: they are sent all the same.
const SOURCE = new URL("metrics.json", location.origin + location.pathname);

const readings = [];

// --- The numbers.

/** One reading: series by name, each a list of {labels, value}. */
class Reading {
  constructor(json, at) {
    this.json = json;
    this.at = at;
  }
  series(name) {
    return this.json[PREFIX + name] ?? [];
  }
  /** The sum of the series that have these labels. */
  sum(name, labels = {}) {
    const fits = (entry) => Object.entries(labels).every(([key, value]) => entry.labels[key] === value);
    return this.series(name).filter(fits).reduce((sum, entry) => sum + entry.value, 0);
  }
  /** All values of a label. */
  values(name, label) {
    return [...new Set(this.series(name).map((entry) => entry.labels[label]))].sort();
  }
}

/** How fast a counter grew between two readings, in a second; 0 if it began again. */
function rate(now, before, name, labels) {
  const seconds = (now.at - before.at) / 1000;
  return seconds > 0 ? Math.max(0, now.sum(name, labels) - before.sum(name, labels)) / seconds : 0;
}

/** The bounds of a histogram, and how many came to each between two readings, or in all. */
function buckets(now, before, name, labels) {
  const bounds = new Map();
  for (const [reading, sign] of [[now, 1], [before, -1]]) {
    for (const entry of reading ? reading.series(name + "_bucket") : []) {
      if (Object.entries(labels).every(([key, value]) => entry.labels[key] === value)) {
        const bound = entry.labels.le === "+Inf" ? Infinity : Number(entry.labels.le);
        bounds.set(bound, (bounds.get(bound) ?? 0) + sign * entry.value);
      }
    }
  }
  let below = 0;
  return [...bounds].sort((a, b) => a[0] - b[0]).map(([bound, count]) => {
    const own = Math.max(0, count - below);
    below = Math.max(below, count);
    return [bound, own];
  });
}

/** Where a share of what a histogram has seen ends: the bound of its bucket. */
function quantile(buckets, share) {
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  let seen = 0;
  for (const [bound, count] of buckets) {
    seen += count;
    if (total > 0 && seen >= share * total) return bound;
  }
  return NaN;
}

// --- Words for them.

function amount(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) return trimmed(value / (letter === "k" ? 1e3 : size), digits) + " " + letter;
  }
  return trimmed(value, digits);
}
function trimmed(value, digits) {
  return value >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
}
function bytes(value) {
  const text = amount(value);
  return text.includes(" ") || text === "–" ? text + "B" : text + " B";
}
function percent(part, whole) {
  return whole > 0 ? trimmed((100 * part) / whole, 3) + " %" : "–";
}
function duration(seconds) {
  if (Number.isNaN(seconds)) return "–";
  if (seconds === Infinity) return "> 60 s";
  return seconds < 1 ? trimmed(seconds * 1000, 3) + " ms" : trimmed(seconds, 3) + " s";
}
function until(seconds) {
  const days = (seconds - Date.now() / 1000) / 86400;
  if (seconds === 0) return "none yet";
  return days < 0 ? "over" : days < 2 ? "in " + Math.round(days * 24) + " hours" : "in " + Math.floor(days) + " days";
}

// --- Drawing. Text from the counters is set as text, never as markup.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function drawn(name, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
function tile(label, value, bad = false) {
  return element("div", { class: "card tile" + (bad ? " bad" : "") }, element("b", {}, value), element("span", {}, label));
}
function card(title, ...children) {
  return element("div", { class: "card" }, element("h2", {}, title), ...children);
}
function legend(names) {
  const item = (name, at) => element("li", {}, element("i", { class: "s" + (at % 6) }), name);
  return element("ul", { class: "legend" }, ...names.map(item));
}
/** A round number that is not below. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}
function frame(title, top, word, left, right) {
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
  for (const share of [0, 0.5, 1]) {
    const y = (HEIGHT - BOTTOM) * (1 - share) + 6 * share;
    svg.append(drawn("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y, y2: y }));
    svg.append(drawn("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, word(top * share)));
  }
  svg.append(drawn("text", { x: LEFT, y: HEIGHT - 2 }, left));
  svg.append(drawn("text", { x: WIDTH, y: HEIGHT - 2, "text-anchor": "end" }, right));
  return svg;
}
/** Lines over time: `lines` has a name and a number for each pair of readings. */
function chart(title, word, lines) {
  const top = ceiling(Math.max(...lines.flatMap(([, values]) => values), 0));
  const seconds = Math.round((readings.at(-1).at - readings[0].at) / 1000);
  const svg = frame(title, top, word, `${seconds} s ago`, "now");
  lines.forEach(([, values], at) => {
    const x = (place) => LEFT + ((WIDTH - LEFT) * place) / Math.max(1, values.length - 1);
    const y = (value) => 6 + (HEIGHT - BOTTOM - 6) * (1 - value / top);
    const points = values.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    svg.append(drawn("polyline", { class: "s" + (at % 6), points }));
  });
  return card(title, svg, legend(lines.map(([name, values]) => `${name}: ${word(values.at(-1) ?? 0)}`)));
}
/** How often something was how long. */
function bars(title, buckets) {
  const top = ceiling(Math.max(...buckets.map(([, count]) => count), 0));
  const name = ([bound]) => (bound === Infinity ? "more" : duration(bound));
  const svg = frame(title, top, amount, buckets.length ? name(buckets[0]) : "", buckets.length ? name(buckets.at(-1)) : "");
  const step = (WIDTH - LEFT) / Math.max(1, buckets.length);
  buckets.forEach((bucket, at) => {
    const height = ((HEIGHT - BOTTOM - 6) * bucket[1]) / top;
    const bar = drawn("rect", { class: "f0", x: LEFT + at * step + 1, width: Math.max(1, step - 2), y: HEIGHT - BOTTOM - height, height });
    bar.append(drawn("title", {}, `up to ${name(bucket)}: ${bucket[1]}`));
    svg.append(bar);
  });
  const shares = [0.5, 0.9, 0.99].map((share) => `${share * 100} %: ≤ ${duration(quantile(buckets, share))}`);
  return card(title, svg, element("p", { class: "legend" }, shares.join(" · ")));
}
/** A table; a cell is a text, or [text, is bad]. */
function table(title, heads, rows) {
  if (rows.length === 0) return [];
  const cell = (content, at) => {
    const [text, bad] = Array.isArray(content) ? content : [content, false];
    return element("td", { class: (at === 0 ? "name" : "") + (bad ? " bad" : ""), title: at === 0 ? text : "" }, text);
  };
  const head = element("tr", {}, ...heads.map((text, at) => element("th", { class: at === 0 ? "name" : "", scope: "col" }, text)));
  const body = rows.map((row) => element("tr", {}, ...row.map(cell)));
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  return [card(title, element("div", { class: "scroll" }, made))];
}

// --- The page.

/** A line for each value of a label, of the rate of a counter. */
function rates(name, label, labels = {}) {
  const values = readings.at(-1).values(name, label);
  const line = (value) => [value, over((now, before) => rate(now, before, name, { ...labels, [label]: value }))];
  return values.map(line);
}
/** Something of each reading and the one before it. */
function over(of) {
  return readings.slice(1).map((now, at) => of(now, readings[at]));
}

function tiles(now, before) {
  const requests = rate(now, before, "requests_total");
  const failed = rate(now, before, "requests_total", { status: "5xx" });
  const kinds = (kind) => now.sum("quic_handshakes_total", { kind });
  const early = kinds("0-rtt"), tried = early + kinds("0-rtt-rejected");
  const sent = rate(now, before, "quic_packets_total", { direction: "sent" });
  const goodput = rate(now, before, "response_bytes_total") + rate(now, before, "stream_bytes_total", { direction: "sent" });
  const refused = rate(now, before, "refused_total");
  return [
    tile("connections open", amount(now.sum("connections_open") + now.sum("passed_open"))),
    tile("requests per second", amount(requests)),
    tile("of them answered 5xx", percent(failed, requests), failed > 0.01 * requests && failed > 0),
    tile("per second to clients", bytes(goodput)),
    tile("handshakes over QUIC per second", amount(rate(now, before, "quic_handshakes_total"))),
    tile("0-RTT taken, of those that tried", percent(early, tried)),
    tile("packets lost on the way to clients", percent(rate(now, before, "quic_packets_lost_total"), sent)),
    tile("moves of clients, since the start", amount(now.sum("quic_moves_total"))),
    tile("refused per second", amount(refused), refused > 0),
  ];
}

function charts(now, before) {
  const direction = (name, label) => [label, over((now, before) => rate(now, before, name))];
  const first = readings.length > 2 ? readings[0] : null;
  return [
    chart("Requests per second, by status", amount, rates("requests_total", "status")),
    chart("Open connections", amount, now.values("connections_open", "protocol").map((protocol) =>
      [protocol, readings.map((reading) => reading.sum("connections_open", { protocol }))])),
    chart("Bodies per second", bytes, [direction("response_bytes_total", "to clients"), direction("request_bytes_total", "from clients")]),
    chart("QUIC handshakes per second, by kind", amount, rates("quic_handshakes_total", "kind")),
    bars("Time from request to end of answer", buckets(now, first, "request_seconds", {})),
    bars("Round-trip times over QUIC", buckets(now, first, "quic_rtt_seconds", {})),
  ];
}

function tables(now, before) {
  const routes = now.series("request_seconds_count").map(({ labels: { site, route } }) => {
    const labels = { site, route };
    const of = (status) => rate(now, before, "requests_total", { ...labels, status });
    const times = buckets(now, readings.length > 2 ? readings[0] : null, "request_seconds", labels);
    const failed = of("5xx");
    return [`${site} ${route}`, amount(rate(now, before, "requests_total", labels)), amount(of("2xx") + of("3xx")), amount(of("4xx")),
      [amount(failed), failed > 0], ...[0.5, 0.95, 0.99].map((share) => duration(quantile(times, share))),
      bytes(rate(now, before, "response_bytes_total", labels))];
  });
  const origins = now.series("origin_failures_total").map(({ labels, value }) => {
    const failing = rate(now, before, "origin_failures_total", labels);
    return [`${labels.origin} ${labels.server}`, [amount(failing), failing > 0], amount(value)];
  });
  const protocols = now.values("quic_packets_total", "protocol").map((protocol) => {
    const towards = (direction) => rate(now, before, "quic_bytes_total", { protocol, direction });
    const sent = rate(now, before, "quic_packets_total", { protocol, direction: "sent" });
    const lost = rate(now, before, "quic_packets_lost_total", { protocol });
    return [protocol, amount(now.sum("connections_open", { protocol })), bytes(towards("received")), bytes(towards("sent")),
      percent(lost, sent), duration(quantile(buckets(now, null, "quic_rtt_seconds", { protocol }), 0.5)), amount(now.sum("quic_moves_total", { protocol }))];
  });
  const passes = now.series("passed_open").map(({ labels, value }) =>
    [`${labels.pass} over ${labels.over}`, amount(value), bytes(rate(now, before, "passed_bytes_total", { ...labels, direction: "received" })),
      bytes(rate(now, before, "passed_bytes_total", { ...labels, direction: "sent" }))]);
  const refusals = now.series("refused_total").map(({ labels, value }) =>
    [labels.reason, amount(rate(now, before, "refused_total", labels)), amount(value)]);
  const certificates = now.series("certificate_not_after_seconds").map(({ labels, value }) =>
    [`${labels.certificate} (${labels.key})`, [until(value), value > 0 && value * 1000 - Date.now() < 14 * 86400e3]]);
  return [
    ...table("Routes", ["site and path", "requests/s", "2xx, 3xx", "4xx", "5xx", "50 % ≤", "95 % ≤", "99 % ≤", "sent/s"], routes),
    ...table("QUIC", ["protocol", "open", "received/s", "sent/s", "lost", "RTT 50 % ≤", "moves"], protocols),
    ...table("Passed on by name", ["names and way", "open", "received/s", "sent/s"], passes),
    ...table("Origins: requests without an answer", ["origin and server", "per second", "since the start"], origins),
    ...table("Refused", ["why", "per second", "since the start"], refusals),
    ...table("Certificates", ["name", "ends"], certificates),
  ];
}

function show() {
  const now = readings.at(-1), before = readings.at(-2) ?? now;
  document.getElementById("tiles").replaceChildren(...tiles(now, before));
  document.getElementById("charts").replaceChildren(...charts(now, before));
  // Who scrolls a table sideways goes on where he was.
  const scrolled = [...document.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  document.getElementById("tables").replaceChildren(...tables(now, before));
  [...document.querySelectorAll(".scroll")].forEach((each, at) => { each.scrollLeft = scrolled[at] ?? 0; });
}

function say(text, bad = false) {
  const state = document.getElementById("state");
  state.textContent = text;
  state.className = bad ? "bad" : "";
}

async function read() {
  try {
    const answer = await fetch(SOURCE, { cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (!answer.ok) throw new Error(`it answers ${answer.status} ${answer.statusText}`);
    readings.push(new Reading(await answer.json(), performance.now()));
    if (readings.length > KEPT) readings.shift();
    show();
    say(`Read at ${new Date().toLocaleTimeString()}, every ${INTERVAL / 1000} s`);
  } catch (error) {
    say(`The gateway cannot be read: ${error.message}. It is asked again.`, true);
  }
  // Who does not look needs no numbers.
  const wait = () => setTimeout(read, INTERVAL);
  if (document.hidden) document.addEventListener("visibilitychange", wait, { once: true });
  else wait();
}

read();
