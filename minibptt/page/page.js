// The page: reads the settings, works out the weights, draws. Everything is drawn anew at each change.
import { chunkAt, drawLags, drawStrip } from "./charts.js";
import { margins, Moment, running, shareAgainstK } from "./pairs.js";
import { coverage, cutsOf, missing, pairIndex, planOf, reach, stepsInMemory } from "./schedule.js";
import { fromHash, toHash } from "./settings.js";
import { boundaryAt, draw, pairAt, palette, theme } from "./triangle.js";
import { decimal, pairInWords, percent, visible, write } from "./words.js";

const at = (id) => document.getElementById(id);
const headers = JSON.parse(at("presets").textContent); // [{name, T, moments, start}]; what is large is read when needed
const opened = new Map();
let settings = fromHash(location.hash, headers);
let focus = null;
let shown = null; // what was drawn last: {moment, shares, w, plan, g, scales, cuts}
let waiting = false;
let colours = null;

function presetOf(number) {
  if (!opened.has(number)) opened.set(number, { ...JSON.parse(at(`preset-${number}`).textContent), read: new Map() });
  return opened.get(number);
}

function momentOf(preset, number) {
  if (!preset.read.has(number)) preset.read.set(number, new Moment(preset.moments[number], preset.T));
  return preset.read.get(number);
}

// --- from settings to a picture ----------------------------------------------------------------------------------

function weightsNow(T) {
  if (settings.scheme === "hand") return { plan: null, w: Float64Array.from(settings.mask) };
  const plan = planOf(settings, T);
  return { plan, w: coverage(plan) };
}

function render() {
  waiting = false;
  const preset = presetOf(settings.preset);
  const moment = momentOf(preset, settings.moment);
  const parts = Object.keys(preset.moments[settings.moment].parts);
  if (!parts.includes(settings.part)) settings.part = parts[0];
  const { T } = preset;
  if (!settings.mask || settings.mask.length !== moment.P) settings.mask = new Uint8Array(moment.P).fill(1);
  if (focus && focus.t >= T) focus = null;
  const { plan, w } = weightsNow(T);
  const shares = moment.shares(settings.part);
  const kept = shares.map((share, i) => share * w[i]);
  colours ??= theme(document.body);
  const cuts = plan ? cutsOf(plan) : [];
  const taken = plan ? missing(plan, w, shares) : new Float64Array(T);
  const sums = margins(T, shares);
  const left = margins(T, kept);
  const largest = shares.reduce((most, share) => Math.max(most, Math.abs(share)), 0);
  const view = { T, shares, w, hand: settings.scheme === "hand", cuts, taken, focus, colours, shades: (colours.shades ??= palette(colours)), largest, sums, kept: left };
  const g = draw(at("triangle"), { ...view, symbols: preset.symbols, targets: preset.targets });
  drawLags(at("lags"), Array.from(sums.byLag), running(sums.byLag), running(left.byLag));
  const strip = shareAgainstK(T, shares, settings);
  const read = moment.readOuts(settings.part, w);
  const chosen = strip[(settings.tied ? settings.k1 : settings.k2) - 1];
  const standing = settings.scheme === "cut" && { k: chosen.k, share: read.share, all: chosen.all };
  const label = settings.tied ? "k: chunks of k steps, over all offsets" : `k2: an update every k1 = ${settings.k1} steps, over all offsets`;
  const scales = drawStrip(at("strip"), strip, standing, label);
  shown = { preset, moment, parts, shares, w, plan, g, scales, cuts, chosen, sums, left, taken };
  showControls();
  showReadOuts(read);
  showWords();
  showTables();
  document.body.dataset.closed = plan ? closedIn(plan).join() : ""; // for whoever drives the page
}

const closedIn = (plan) => [...new Set(plan.updates.flatMap(({ factors }) => factors.flatMap((f, s) => (f === 0 ? [s] : []))))];

function later() {
  if (!waiting) requestAnimationFrame(render);
  waiting = true;
}

function change(changes, settled = true) {
  Object.assign(settings, changes);
  if (settings.tied) settings.k2 = settings.k1;
  settings.offset = Math.min(settings.offset, settings.k1 - 1);
  if (settled) remember();
  later();
}

function remember() {
  try {
    history.replaceState(null, "", toHash(settings));
  } catch {
    // an address that may not be changed: the page works without
  }
}

// --- numbers and words -------------------------------------------------------------------------------------------

function put(id, value, text) {
  const element = at(id);
  element.textContent = text;
  element.dataset.value = value === null ? "" : String(value);
  element.classList.toggle("unknown", value === null);
}

function showReadOuts({ share, cosine, ratio, error }) {
  const { moment, plan, w, preset } = shown;
  const { T } = preset;
  put("share", share, percent(share).replace("+", ""));
  put("cosine", cosine, decimal(cosine));
  put("ratio", ratio, decimal(ratio));
  put("error", error, decimal(error));
  const memory = plan ? stepsInMemory(plan) : reach(w, T);
  put("memory", memory, `${memory} of ${T}`);
  const random = settings.scheme === "random";
  for (const element of document.querySelectorAll(".random")) element.hidden = !random;
  if (random) {
    put("bias", 0, "0");
    const variance = moment.variance(settings.part, settings.p);
    put("variance", variance, variance === null ? "not stored" : decimal(variance));
  }
  const notes = [];
  if (random) notes.push("The figures above the bias are those of the draw that is shown.");
  if (!moment.knows(settings.part)) notes.push(`Only the shares of this part are stored: the size and the angle of its gradient would need more room than the page has.`);
  if (settings.scheme === "cut" && settings.k1 >= T && settings.k2 >= T) notes.push("k1 = T: this is full backpropagation through time.");
  at("caveat").textContent = notes.join(" ");
}

function showWords() {
  const { preset, shares, w, chosen, sums, left } = shown;
  if (focus) {
    const { t, s } = focus;
    const i = pairIndex(t, s);
    const pieces = pairInWords({
      t, s, symbol: preset.symbols?.[s], target: preset.targets?.[t], share: shares[i], part: settings.part, whole: shown.parts[0],
    });
    const state = w[i] === 0 ? "; lost" : w[i] !== 1 ? `; weight ${decimal(w[i], 2)}` : "";
    write(at("sentence"), [...pieces, { text: state }]);
  } else {
    at("sentence").textContent = "Point at a pair to have it in words.";
  }
  const whole = running(sums.byLag);
  const last = running(left.byLag).at(-1);
  at("lag-text").textContent = `Bars: each lag. Dashed: all lags up to this one. Line: of these what is kept, ${percent(last).replace("+", "")} in the end.`
    + (Math.max(...whole) > 1.005 || Math.min(...whole) < -0.005 ? " It may pass 100 % or fall below 0: pairs pull against each other." : "");
  const k = settings.tied ? "k" : "k2";
  const bare = (share) => percent(share).replace("+", "");
  const { all: each, mean, least, most } = chosen;
  const over = each.length > 1 ? ` in the mean over ${each.length} offsets, from ${bare(least)} to ${bare(most)}` : "";
  at("strip-text").textContent = settings.scheme === "cut"
    ? `${k} = ${chosen.k}: ${bare(mean)} kept${over}. Drag to choose ${k}.`
    : `Line: the mean over offsets; band: the least and the most. Drag to choose ${k}.`;
  at("triangle").setAttribute("aria-label", `Triangle of ${preset.T} steps, source step across, loss step down`);
}

function showTables() {
  const { preset, plan, taken, sums, left } = shown;
  if (!at("lost").closest("details").open) return;
  const rows = (id, cells) => at(id).tBodies[0].replaceChildren(...cells.map((row) => {
    const tr = document.createElement("tr");
    for (const cell of row) {
      const td = tr.insertCell();
      if (cell.symbol !== undefined) write(td, [cell]);
      else td.textContent = cell;
    }
    return tr;
  }));
  rows("lost", plan ? Array.from(taken, (share, n) => [n + 1, share]).filter(([, share]) => share !== 0).map(([n, share]) => [n, percent(share)]) : []);
  rows("by-lag", Array.from(sums.byLag, (share, lag) => [lag, percent(share), percent(left.byLag[lag])]));
  const signs = (list, n) => (list ? { symbol: list[n] } : "");
  rows("by-step", Array.from(sums.bySource, (share, n) => [n + 1, signs(preset.symbols, n), percent(share), signs(preset.targets, n), percent(sums.byLoss[n])]));
}

// --- controls ----------------------------------------------------------------------------------------------------

function fill(select, names, chosen) {
  const same = select.options.length === names.length && names.every((name, n) => select.options[n].textContent === name);
  if (!same) {
    select.replaceChildren(...names.map((name, n) => {
      const option = document.createElement("option");
      option.textContent = name;
      option.value = String(n);
      return option;
    }));
  }
  select.value = String(chosen);
}

function showControls() {
  const { preset, parts } = shown;
  const { T, moments } = preset;
  fill(at("preset"), headers.map(({ name }) => name), settings.preset);
  at("preset-field").hidden = headers.length < 2;
  fill(at("part"), parts.map((name) => (preset.moments[settings.moment].parts[name].pieces ? name : `${name} (shares only)`)), parts.indexOf(settings.part));
  at("moment-field").hidden = moments.length < 2;
  at("moment").max = moments.length - 1;
  at("moment").value = settings.moment;
  const { label, loss } = moments[settings.moment];
  at("moment").setAttribute("aria-valuetext", label);
  at("moment-name").textContent = `${label}, loss ${decimal(loss)}`;
  at("about").textContent = preset.about;
  at("stored").textContent = preset.stored;
  for (const radio of document.querySelectorAll("[name=scheme]")) radio.checked = radio.value === settings.scheme;
  for (const radio of document.querySelectorAll("[name=losses]")) radio.checked = radio.value === settings.losses;
  for (const scheme of ["cut", "random", "hand"]) at(`for-${scheme}`).hidden = settings.scheme !== scheme;
  for (const [id, most] of [["k1", T], ["k2", T], ["offset", settings.k1 - 1]]) {
    at(id).max = most;
    at(id).value = settings[id];
    at(`${id}-value`).textContent = settings[id];
  }
  at("offset").disabled = settings.k1 === 1;
  at("k2").disabled = settings.tied;
  at("tied").checked = settings.tied;
  at("p").value = settings.p;
  at("p-value").textContent = settings.p.toFixed(2);
  at("triangle").classList.toggle("paints", settings.scheme === "hand");
}

function listen() {
  for (const id of ["k1", "k2", "offset", "p", "moment"]) {
    at(id).addEventListener("input", (event) => change({ [id]: Number(event.target.value) }, false));
    at(id).addEventListener("change", remember);
  }
  at("tied").addEventListener("change", (event) => change({ tied: event.target.checked }));
  at("part").addEventListener("change", (event) => change({ part: shown.parts[Number(event.target.value)] }));
  at("preset").addEventListener("change", (event) => {
    focus = null;
    settings = fromHash(`#preset=${event.target.value}`, headers);
    change({});
  });
  for (const radio of document.querySelectorAll("[name=losses]")) radio.addEventListener("change", () => change({ losses: radio.value }));
  for (const radio of document.querySelectorAll("[name=scheme]")) {
    radio.addEventListener("change", () => {
      if (radio.value === "hand") settings.mask = Uint8Array.from(shown.w, (weight) => (weight === 0 ? 0 : 1));
      change({ scheme: radio.value });
    });
  }
  at("draw").addEventListener("click", () => change({ seed: settings.seed + 1 }));
  at("keep-all").addEventListener("click", () => change({ mask: settings.mask.map(() => 1) }));
  at("lose-all").addEventListener("click", () => change({ mask: settings.mask.map(() => 0) }));
  at("invert").addEventListener("click", () => change({ mask: settings.mask.map((kept) => 1 - kept) }));
  for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", () => {
    settings = fromHash(location.hash, headers);
    render();
  });
  addEventListener("resize", later);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    colours = null;
    later();
  });
  at("lost").closest("details").addEventListener("toggle", later);
  listenToStrip();
  listenToTriangle();
}

function listenToStrip() {
  const strip = at("strip");
  const move = (event) => {
    const k = chunkAt(strip, shown.scales, event.clientX);
    change({ scheme: "cut", [settings.tied ? "k1" : "k2"]: k }, false);
  };
  strip.addEventListener("pointerdown", (event) => {
    strip.setPointerCapture(event.pointerId);
    move(event);
  });
  strip.addEventListener("pointermove", (event) => strip.hasPointerCapture(event.pointerId) && move(event));
  strip.addEventListener("pointerup", remember);
}

function listenToTriangle() {
  const canvas = at("triangle");
  let brush = null; // while painting: what cells become
  let grip = null; // while dragging scissors: true
  const where = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const nearCut = (x, y) => settings.scheme === "cut" && shown.cuts.some(({ boundary, first, last }) => {
    const { left, top, cell } = shown.g;
    const near = Math.abs(x - left - boundary * cell) < Math.max(6, cell * 0.45);
    return near && y > top + (first - 1.2) * cell && y < top + (last + 1) * cell;
  });
  const paint = ({ t, s }) => {
    settings.mask[pairIndex(t, s)] = brush;
    later();
  };
  const look = (pair) => {
    if (pair?.t === focus?.t && pair?.s === focus?.s) return;
    focus = pair;
    later();
  };

  // A finger paints where it starts on a cell of a mask; anywhere else it scrolls.
  canvas.addEventListener("touchstart", (event) => {
    const on = event.touches.length === 1 && pairAt(shown.g, ...where(event.touches[0]));
    if (settings.scheme === "hand" && on) event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = where(event);
    const pair = pairAt(shown.g, x, y);
    grip = nearCut(x, y);
    if (grip) canvas.setPointerCapture(event.pointerId);
    else look(pair);
    if (settings.scheme !== "hand" || !pair) return;
    canvas.setPointerCapture(event.pointerId);
    brush = settings.mask[pairIndex(pair.t, pair.s)] ? 0 : 1;
    paint(pair);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = where(event);
    const pair = pairAt(shown.g, x, y);
    canvas.classList.toggle("drags", grip || nearCut(x, y));
    if (grip) dragTo(boundaryAt(shown.g, x));
    else if (pair || event.pointerType === "mouse") look(pair);
    if (brush !== null && pair) paint(pair);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, () => {
      if (brush !== null || grip) remember();
      brush = grip = null;
    });
  }
  canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && look(null));
  canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && look(focus ?? { t: shown.preset.T - 1, s: shown.preset.T - 1 }));
  canvas.addEventListener("keydown", (event) => byKey(event, look));
}

// A cut that is dragged to another boundary: all of them move, by the offset.
function dragTo(boundary) {
  const { k1, k2 } = settings;
  const end = k1 === k2 ? boundary : boundary + k2; // of the update whose window starts there
  change({ offset: ((end % k1) + k1) % k1 }, false);
}

function byKey(event, look) {
  const T = shown.preset.T;
  const { t, s } = focus ?? { t: T - 1, s: T - 1 };
  const moves = {
    ArrowLeft: [t, s - 1], ArrowRight: [t, s + 1], ArrowUp: [t - 1, s], ArrowDown: [t + 1, s],
    Home: [t, 0], End: [t, t], PageUp: [t - 5, s], PageDown: [t + 5, s],
  };
  const hand = settings.scheme === "hand";
  if (event.key in moves && !event.ctrlKey && !event.altKey && !event.metaKey) {
    const [toT, toS] = moves[event.key];
    const row = Math.min(T - 1, Math.max(0, toT));
    const next = { t: row, s: Math.min(row, Math.max(0, toS)) };
    if (hand && event.shiftKey) settings.mask[pairIndex(next.t, next.s)] = settings.mask[pairIndex(t, s)];
    look(next);
  } else if ((event.key === " " || event.key === "Enter") && hand) {
    settings.mask[pairIndex(t, s)] = settings.mask[pairIndex(t, s)] ? 0 : 1;
    change({});
  } else if (event.key === "Escape") {
    look(null);
  } else {
    return;
  }
  event.preventDefault();
}

listen();
render();
