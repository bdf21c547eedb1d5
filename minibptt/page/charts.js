// Two small charts in SVG: the cumulative share by lag, and the kept share against k with its band over offsets.

const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Axes with round ticks; x from `first` to `last`, y over all values, 0 and 1 among them. Returns scales.
function frame(svg, { first, last, values, label, height }) {
  const width = Math.max(260, svg.clientWidth);
  const left = 58;
  const right = 14;
  const top = 12;
  const bottom = 42;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.replaceChildren();
  const low = Math.min(0, ...values);
  const high = Math.max(1, ...values);
  const pad = 0.04 * (high - low);
  const x = (v) => left + ((v - first) / Math.max(1, last - first)) * (width - left - right);
  const y = (v) => top + ((high + pad - v) / (high - low + 2 * pad)) * (height - top - bottom);
  const step = tick((high - low) / 4);
  const shows = (v) => `${v < -1e-9 ? "−" : ""}${Math.round(100 * Math.abs(v))} %`;
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9; v += step) {
    const value = Math.round(v / step) * step;
    const strong = Math.abs(value) < 1e-9 || Math.abs(value - 1) < 1e-9;
    svg.append(make("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: strong ? "axis" : "grid" }));
    svg.append(make("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, shows(value)));
  }
  const gap = [1, 2, 5, 10, 20, 50, 100].find((n) => ((last - first) / n) * 34 <= width - left - right) ?? 200;
  for (let v = Math.ceil(first / gap) * gap; v <= last; v += gap) {
    svg.append(make("text", { x: x(v), y: height - bottom + 17, "text-anchor": "middle" }, String(v)));
  }
  svg.append(make("text", { x: left, y: height - 6, class: "label" }, label));
  return { x, y, left, right: width - right, top, base: height - bottom };
}

function tick(size) {
  const power = 10 ** Math.floor(Math.log10(size || 1));
  return power * [1, 2, 2.5, 5, 10].find((n) => n * power >= size * 0.999);
}

const path = (points) => points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Σ of the shares of all pairs at most so many steps apart: of full BPTT, and of what is kept.
// The bars are the lags by themselves.
export function drawLags(svg, byLag, full, kept, height = 210) {
  const last = full.length - 1;
  const { x, y } = frame(svg, { first: 0, last, values: [...byLag, ...full, ...kept], label: "lag t − s: so many steps back", height });
  const wide = Math.max(1, Math.min(12, 0.6 * (x(1) - x(0))));
  byLag.forEach((v, lag) => {
    const [top, base] = [y(Math.max(0, v)), y(Math.min(0, v))];
    svg.append(make("rect", { x: x(lag) - wide / 2, y: top, width: wide, height: base - top, class: v < 0 ? "bar hurts" : "bar" }));
  });
  svg.append(make("path", { d: path(full.map((v, lag) => [x(lag), y(v)])), class: "full" }));
  svg.append(make("path", { d: path(kept.map((v, lag) => [x(lag), y(v)])), class: "kept" }));
  const end = x(last);
  svg.append(make("circle", { cx: end, cy: y(kept[last]), r: 4, class: "dot" }));
}

// The kept share against k: the mean over offsets as a line, least to most as a band, and where one stands.
export function drawStrip(svg, strip, standing, label, height = 230) {
  const T = strip.length;
  const values = strip.flatMap(({ least, most }) => [least, most]);
  if (standing) values.push(standing.share);
  const scales = frame(svg, { first: 1, last: T, values, label, height });
  const { x, y, top, base } = scales;
  const up = strip.map(({ k, most }) => [x(k), y(most)]);
  const down = strip.map(({ k, least }) => [x(k), y(least)]).reverse();
  svg.append(make("path", { d: `${path([...up, ...down])}Z`, class: "band" }));
  svg.append(make("path", { d: path(strip.map(({ k, mean }) => [x(k), y(mean)])), class: "full" }));
  if (standing) {
    const { k, share, all } = standing;
    svg.append(make("line", { x1: x(k), x2: x(k), y1: top, y2: base, class: "here" }));
    for (const value of all) svg.append(make("line", { x1: x(k) - 4, x2: x(k) + 4, y1: y(value), y2: y(value), class: "tick" }));
    svg.append(make("circle", { cx: x(k), cy: y(share), r: 6, class: "dot" }));
  }
  return { ...scales, T };
}

// The k under a point of the strip.
export function chunkAt(svg, { left, right, T }, clientX) {
  const box = svg.getBoundingClientRect();
  const along = (clientX - box.left) * (svg.viewBox.baseVal.width / box.width);
  return Math.min(T, Math.max(1, Math.round(1 + ((along - left) / (right - left)) * (T - 1))));
}
