"use strict";
// Draws what /status says. Names and messages come from producers and disks: they are set as text, never as HTML.

const EVERY_MS = 2000;
const PLOT = { width: 600, height: 90, leastSeconds: 300, mostSeconds: 3600 };

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const whole = (value) => (value === null ? "?" : Math.round(value).toLocaleString("en-US"));

function size(bytes) {
  if (bytes === null) return "?";
  for (const [factor, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (bytes >= factor) return `${(bytes / factor).toFixed(1)} ${unit}`;
  }
  return `${bytes} B`;
}

function duration(seconds) {
  if (seconds === null) return "?";
  for (const [factor, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * factor) return `${(seconds / factor).toFixed(1)} ${unit}`;
  }
  return `${seconds.toFixed(1)} s`;
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

function figure(term, value) {
  return element("div", {}, element("dt", {}, term), element("dd", {}, value));
}

// One lag over the last hour, or since the start: of several samples in a pixel the greatest counts.
function plot(lags, index, now, name, shown) {
  const age = lags.length ? now - lags[0][0] : 0;
  const span = Math.min(Math.max(age, PLOT.leastSeconds), PLOT.mostSeconds);
  const caption = `${name}, last ${duration(span)}`;
  const svg = drawn("svg", { class: "lag", viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, preserveAspectRatio: "none", role: "img" });
  svg.setAttribute("aria-label", caption);
  const most = new Map();
  for (const lag of lags) {
    if (lag[index] === null) continue;
    const x = Math.round(PLOT.width * (1 - (now - lag[0]) / span));
    if (x >= 0) most.set(x, Math.max(most.get(x) || 0, lag[index]));
  }
  const top = Math.max(...most.values(), 0);
  const y = (value) => PLOT.height - 2 - (top > 0 ? (value / top) * (PLOT.height - 6) : 0);
  const points = [...most].sort((one, other) => one[0] - other[0]).map(([x, value]) => `${x},${y(value).toFixed(1)}`);
  svg.append(drawn("line", { x1: 0, x2: PLOT.width, y1: PLOT.height - 1, y2: PLOT.height - 1 }));
  if (points.length) svg.append(drawn("path", { d: `M${points.join("L")}` }));
  return element("figure", {}, svg,
    element("figcaption", {}, element("span", {}, caption), element("span", {}, `most ${shown(top)}`)));
}

function queryCard(query, now) {
  return element("div", { class: `query ${query.query}` },
    element("h2", {}, query.query === "logic" ? "queues and index" : "message table", element("small", {}, query.phase)),
    element("dl", { class: "figures" },
      figure("behind", size(query.behind.bytes)),
      figure("oldest missing", duration(query.behind.seconds)),
      figure("messages", whole(query.messages)),
      figure("per s, last minute", whole(query.messagesPerSecond)),
      figure("last batch", query.lastBatchAt === null ? "none yet" : `${duration(Math.max(0, now - query.lastBatchAt))} ago`),
      figure("restarts", whole(query.restarts))),
    plot(query.lags, 1, now, "bytes behind", size),
    plot(query.lags, 2, now, "age of the oldest missing message", duration));
}

function rows(head, lines) {
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((words) => element("th", {}, words)))),
    element("tbody", {}, ...lines)));
}

function batches(broker) {
  const all = broker.queries.flatMap((query) => query.recent.map((batch) => ({ query: query.query, ...batch })));
  all.sort((one, other) => other.at - one.at);
  const lines = all.slice(0, 20).map((batch) => element("tr", {},
    element("td", {}, clock(batch.at)), element("td", {}, batch.query), element("td", {}, whole(batch.messages)),
    element("td", {}, size(batch.end - batch.start)), element("td", {}, `${batch.seconds.toFixed(3)} s`),
    element("td", {}, Object.entries(batch.phases).map(([phase, seconds]) => `${phase} ${seconds.toFixed(3)}`).join(", ")),
    element("td", {}, String(batch.end))));
  return rows(["time", "query", "messages", "bytes", "took", "of that, s", "end offset"], lines);
}

function findings(broker) {
  const lines = broker.findings.map((found) => element("tr", {},
    element("td", {}, new Date(found.at * 1000).toISOString().slice(0, 19).replace("T", " ")),
    element("td", {}, found.query), element("td", { class: "text" }, found.text)));
  return rows(["time (UTC)", "query", "what"], lines);
}

// What consumer groups passed in a minute, over the last hour, and those that went back or have not moved for long.
function consumption(told, now) {
  const minutes = new Map(told.passed.map(([at, passed]) => [Math.round(at), passed]));
  const samples = [];
  const first = Math.round(told.passed[0][0]);
  // The minute that still lasts would look like a fall.
  for (let at = first; at + 60 <= now || !samples.length; at += 60) samples.push([at, minutes.get(at) || 0]);
  const lines = told.first.map((each) => element("tr", {},
    element("td", { class: "text" }, each.group), element("td", { class: "text" }, each.topic),
    element("td", {}, whole(each.passed)), element("td", {}, whole(each.resets)),
    element("td", {}, `${duration(Math.max(0, now - each.movedAt))} ago`)));
  const hidden = told.groups - told.first.length;
  return element("div", { class: "groups" },
    plot(samples, 1, now, "messages passed in a minute", whole),
    rows(["consumer group", "topic", "passed", "went back", "moved last"], lines),
    hidden > 0 ? element("p", {}, `${whole(hidden)} more, which moved later`) : null);
}

function more(name, summary, open, content) {
  const details = element("details", { "data-name": name }, element("summary", {}, summary), content);
  details.open = open;
  return details;
}

// A line for each of several brokers, the worst first, as on a terminal: what one sees before anything is opened.
const WORST_FIRST = ["stopped", "waiting", "lagging", "starting", "degraded", "running"];

function stateHead(broker) {
  return element("div", { class: `state ${broker.state}` }, element("span", { class: "dot" }),
    element("strong", {}, broker.state), element("span", { class: "name" }, broker.broker));
}

function overview(all) {
  const sorted = [...all].sort((one, other) => WORST_FIRST.indexOf(one.state) - WORST_FIRST.indexOf(other.state));
  const counts = new Map();
  for (const broker of sorted) counts.set(broker.state, (counts.get(broker.state) || 0) + 1);
  const head = element("p", { class: "counts" },
    ...[...counts].map(([state, count]) => element("strong", { class: `state ${state}` }, `${count} ${state} `)));
  const lag = (broker, name) => {
    const query = broker.queries.find((each) => each.query === name);
    return query === undefined ? "-" : duration(query.behind.seconds);
  };
  const lines = sorted.map((broker) => element("tr", {},
    element("td", {}, broker.broker), element("td", { class: `state ${broker.state}` }, broker.state),
    element("td", {}, lag(broker, "logic")), element("td", {}, lag(broker, "table")),
    element("td", {}, whole(Math.max(0, ...broker.queries.map((query) => query.messagesPerSecond || 0)))),
    element("td", { class: "text" }, broker.reason)));
  return element("section", { class: "broker all" }, head,
    rows(["broker", "state", "queues: oldest missing", "table: oldest missing", "msg/s", "why"], lines));
}

// Of one of several brokers the first answer has no history: it is asked for while the card is open.
const isWhole = (broker) => broker.queries.every((query) => query.lags !== undefined);

function details(broker, now, wasOpen) {
  const options = Object.entries(broker.options || {});
  const paths = [["store", broker.store], ["output", broker.output], ["table", broker.table]].filter((each) => each[1]);
  const pairs = (entries) => rows(["", ""], entries.map(([name, value]) => element("tr", {},
    element("td", {}, name), element("td", { class: "text" }, String(value)))));
  return [
    element("p", { class: "reason" }, broker.reason),
    element("div", { class: "queries" }, ...broker.queries.map((query) => queryCard(query, now))),
    broker.findings.length
      ? more("findings", `Findings (${broker.findings.length})`, wasOpen("findings", true), findings(broker)) : null,
    broker.consumption && broker.consumption.groups
      ? more("consumption", `Consumer groups (${whole(broker.consumption.groups)})`, wasOpen("consumption", false),
        consumption(broker.consumption, now)) : null,
    more("batches", "Last batches", wasOpen("batches", false), batches(broker)),
    more("paths", "Paths and options", wasOpen("paths", false), pairs([...paths, ...options])),
  ];
}

function brokerCard(broker, now, wasOpen, isOneOfSeveral) {
  const content = isWhole(broker) ? details(broker, now, wasOpen) : [];
  if (!isOneOfSeveral) return element("section", { class: "broker" }, stateHead(broker), ...content);
  const card = element("details", { "data-name": "card" }, element("summary", {}, stateHead(broker)), ...content);
  card.open = wasOpen("card", false);
  card.addEventListener("toggle", () => { if (card.open && !isWhole(broker)) refresh(); });
  return element("section", { class: "broker" }, card);
}

let seenAt = 0;

// What is open, by the broker's number in the answer and the part's name; at first the card that the address names.
function openParts(status) {
  const open = new Map();
  const isNamed = (name) => location.hash === `#${encodeURIComponent(name)}`;
  const sections = document.querySelectorAll("#brokers section:not(.all)");
  if (!sections.length) status.brokers.forEach((broker, number) => open.set(`${number} card`, isNamed(broker.broker)));
  sections.forEach((section, number) => section.querySelectorAll("details")
    .forEach((details) => open.set(`${number} ${details.dataset.name}`, details.open)));
  return open;
}

function draw(status, open) {
  const areSeveral = status.brokers.length > 1;
  const cards = status.brokers.map((broker, number) => brokerCard(broker, status.at, (name, otherwise) => {
    const known = open.get(`${number} ${name}`);
    return known === undefined ? otherwise : known;
  }, areSeveral));
  document.getElementById("brokers").replaceChildren(...(areSeveral ? [overview(status.brokers)] : []), ...cards);
  document.title = `${status.state} · reput`;
  document.getElementById("facts").textContent =
    Object.entries(status.versions || {}).map(([name, version]) => `${name} ${version}`).join(" · ");
}

async function asked(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

let timer = 0;

async function refresh() {
  const seen = document.getElementById("seen");
  try {
    const status = await asked("/status");
    const isOpen = openParts(status);
    if (status.brokers.length > 1) {
      await Promise.all(status.brokers.map(async (broker, number) => {
        if (!isOpen.get(`${number} card`)) return;
        [status.brokers[number]] = (await asked(`/status?broker=${encodeURIComponent(broker.broker)}`)).brokers;
      }));
    }
    draw(status, new Map([...isOpen, ...openParts(status)]));
    seenAt = Date.now();
    seen.className = "";
    seen.textContent = `as of ${clock(status.at)}`;
  } catch (error) {
    seen.className = "lost";
    seen.textContent = seenAt ? `no answer since ${new Date(seenAt).toLocaleTimeString("en-GB")}` : "no answer";
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, EVERY_MS);
}

refresh();
