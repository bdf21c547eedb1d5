// The triangle of pairs on a canvas: source step across, loss step down, the share as a colour on a symmetric log scale.
// A pair that hurts has a dash as well, a pair that is lost fades.
import { pairIndex } from "./schedule.js";
import { initial, percent } from "./words.js";

const DECADES = 2; // of the colour scale: shares below a hundredth of the largest go by straight proportion

// Where things are, in CSS pixels: the edge of a cell, the corner of the triangle, the length of the bars.
export function geometry(T, width) {
  const small = width < 500;
  const bars = small ? 30 : Math.min(90, width * 0.1);
  const left = small ? 30 : 58;
  const cell = (width - left - bars - (small ? 4 : 10)) / T;
  const letters = Math.max(7, Math.min(20, cell * 0.86));
  const figures = small ? 10 : Math.max(13, Math.min(18, width / 60));
  const top = small ? 16 : 24;
  const side = cell * T;
  const foot = letters + figures + (small ? 32 : 44);
  return { T, cell, left, top, side, bars, letters, figures, small, foot, height: top + side + foot + bars };
}

// The pair under a point, or null; and the boundary nearest to it.
export function pairAt(g, x, y) {
  const s = Math.floor((x - g.left) / g.cell);
  const t = Math.floor((y - g.top) / g.cell);
  return s >= 0 && t >= s && t < g.T ? { t, s } : null;
}

export function boundaryAt(g, x) {
  return Math.round((x - g.left) / g.cell);
}

export function theme(element) {
  const style = getComputedStyle(element);
  const read = (name) => style.getPropertyValue(name).trim();
  const names = ["ground", "empty", "helps", "hurts", "ink", "soft", "line", "accent"];
  return Object.fromEntries([...names.map((name) => [name, read(`--${name}`)]), ["font", style.fontFamily]]);
}

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

// How strong a colour a share has, 0 to 1, on the symmetric log scale.
export function strength(share, largest) {
  const ratio = Math.abs(share) / (largest || 1);
  return Math.min(1.2, Math.log1p(ratio * 10 ** DECADES) / Math.log1p(10 ** DECADES));
}

// A colour for every strength and sign, worked out once for a theme.
export function palette(colours) {
  const empty = channels(colours.empty);
  const mixed = (hue, amount) => `rgb(${channels(hue).map((c, i) => Math.round(empty[i] + (c - empty[i]) * amount)).join()})`;
  const shades = (hue) => Array.from({ length: 65 }, (_, n) => mixed(hue, n / 64));
  return { helps: shades(colours.helps), hurts: shades(colours.hurts) };
}

function colourOf(share, largest, shades) {
  const step = Math.round(64 * Math.min(1, strength(share, largest)));
  return (share < 0 ? shades.hurts : shades.helps)[step];
}

// Draw it all. view: {T, shares, w, hand, cuts, taken, focus, symbols, targets, sums, kept, colours, shades, largest}.
export function draw(canvas, view) {
  const width = canvas.clientWidth;
  const g = geometry(view.T, width);
  const dots = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(g.height * dots)) {
    canvas.style.height = `${g.height}px`;
    canvas.width = Math.round(width * dots);
    canvas.height = Math.round(g.height * dots);
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(dots, 0, 0, dots, 0, 0);
  ctx.clearRect(0, 0, width, g.height);
  ctx.direction = "ltr";
  drawCells(ctx, g, view);
  drawAxes(ctx, g, view);
  drawBars(ctx, g, view);
  drawCuts(ctx, g, view);
  drawScale(ctx, g, view);
  if (view.focus) drawFocus(ctx, g, view);
  return g;
}

function drawCells(ctx, g, { T, shares, w, hand, shades, colours, largest }) {
  const gap = g.cell >= 7 ? 1 : 0;
  for (let t = 0; t < T; t++) {
    for (let s = 0; s <= t; s++) {
      const i = pairIndex(t, s);
      const lost = w[i] === 0;
      const value = lost ? shares[i] : w[i] * shares[i];
      const x = g.left + s * g.cell;
      const y = g.top + t * g.cell;
      ctx.globalAlpha = lost ? 0.28 : 1;
      ctx.fillStyle = colourOf(value, largest, shades);
      ctx.fillRect(x, y, g.cell - gap, g.cell - gap);
      if (hand && lost) { // so that the brush is seen where there is nothing to fade
        ctx.fillStyle = colours.soft;
        ctx.fillRect(x + g.cell / 2 - 1.5, y + g.cell / 2 - 1.5, 2, 2);
      } else if (value < 0 && strength(value, largest) > 0.12) {
        ctx.fillStyle = colours.ink;
        ctx.fillRect(x + g.cell * 0.2, y + (g.cell - gap) / 2 - 0.5, g.cell * 0.6 - gap, Math.max(1, g.cell / 14));
      }
    }
  }
  ctx.globalAlpha = 1;
  ctx.strokeStyle = colours.line;
  ctx.lineWidth = 1;
  ctx.beginPath();
  ctx.moveTo(g.left, g.top);
  ctx.lineTo(g.left, g.top + g.side);
  ctx.lineTo(g.left + g.side, g.top + g.side);
  ctx.stroke();
}

const isolated = (text) => `\u2068${text}\u2069`;

function drawAxes(ctx, g, { T, symbols, targets, colours, focus }) {
  const bottom = g.top + g.side;
  const middle = (n) => g.left + (n + 0.5) * g.cell;
  const down = (n) => g.top + (n + 0.5) * g.cell;
  const every = [1, 2, 5, 10, 20, 50, 100, 200].find((n) => n * g.cell >= g.figures * 1.9) ?? 500;
  const letters = `${g.letters}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace`;
  const figures = `${g.figures}px ${colours.font}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (let n = 0; n < T; n++) {
    ctx.font = letters;
    if (symbols && g.cell >= 5) {
      ctx.fillStyle = focus?.s === n ? colours.accent : colours.ink;
      ctx.fillText(isolated(initial(symbols[n])), middle(n), bottom + 4 + g.letters / 2);
    }
    if (targets && g.cell >= 5) {
      ctx.fillStyle = focus?.t === n ? colours.accent : colours.ink;
      ctx.fillText(isolated(initial(targets[n])), g.left - 5 - g.letters / 2, down(n));
    }
    if (n === 0 || (n + 1) % every === 0) {
      ctx.font = figures;
      ctx.fillStyle = colours.soft;
      if (n || every === 1 || every > 2) ctx.fillText(String(n + 1), middle(n), bottom + (symbols ? g.letters : 0) + 6 + g.figures / 2);
      if (!targets && n) {
        ctx.textAlign = "right";
        ctx.fillText(String(n + 1), g.left - 5, down(n));
        ctx.textAlign = "center";
      }
    }
  }
  ctx.font = figures;
  ctx.fillStyle = colours.soft;
  ctx.textAlign = "left";
  const source = symbols ? "source step and its input" : "source step";
  ctx.fillText(`${source} →`, g.left, bottom + (symbols ? g.letters : 0) + g.figures * 1.6 + 14);
  ctx.save();
  ctx.translate(g.small ? 6 : 14, g.top + g.side);
  ctx.rotate(-Math.PI / 2);
  ctx.textAlign = "left";
  ctx.fillText(targets ? "← loss step and its target" : "← loss step", 0, 0);
  ctx.restore();
}

// Margins: Σ by loss at the right of its row, Σ by source below its column; an outline for all, filled for what is kept.
function drawBars(ctx, g, { T, sums, kept, colours }) {
  const bar = (all, some, most, place) => {
    for (const [value, filled] of [[all, false], [some, true]]) {
      const length = (Math.abs(value) / most) * (g.bars - 6);
      if (!length) continue;
      ctx.fillStyle = ctx.strokeStyle = value < 0 ? colours.hurts : colours.helps;
      place(length, filled, value < 0);
    }
  };
  const right = g.left + g.side + (g.small ? 3 : 8);
  const below = g.top + g.side + g.foot;
  const thick = Math.max(1, g.cell - 2);
  const mostLoss = Math.max(...sums.byLoss.map(Math.abs), ...kept.byLoss.map(Math.abs)) || 1;
  const mostSource = Math.max(...sums.bySource.map(Math.abs), ...kept.bySource.map(Math.abs)) || 1;
  const box = (x, y, w, h, filled, negative) => {
    if (!filled) return ctx.strokeRect(x + 0.5, y + 0.5, Math.max(0, w - 1), Math.max(0, h - 1));
    ctx.fillRect(x, y, w, h);
    if (negative) {
      ctx.fillStyle = colours.ground; // stripes: the second sign of what hurts
      for (let d = 2; d < Math.max(w, h); d += 4) w > h ? ctx.fillRect(x + d, y, 1, h) : ctx.fillRect(x, y + d, w, 1);
    }
  };
  ctx.lineWidth = 1;
  for (let n = 0; n < T; n++) {
    bar(sums.byLoss[n], kept.byLoss[n], mostLoss, (length, filled, negative) =>
      box(right, g.top + n * g.cell + 1, length, thick, filled, negative));
    bar(sums.bySource[n], kept.bySource[n], mostSource, (length, filled, negative) =>
      box(g.left + n * g.cell + 1, below, thick, length, filled, negative));
  }
  ctx.fillStyle = colours.soft;
  ctx.font = `${g.figures}px ${colours.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  ctx.fillText("Σ by source ↓", g.left + g.side, below - 9);
  ctx.fillText(g.small ? "Σ" : "Σ by loss", g.left + g.side + g.bars + (g.small ? 0 : 6), g.top - 9);
}

// A perforated line at each cut, as long as the losses that it stops, with scissors and what was lost there.
function drawCuts(ctx, g, { cuts, taken, colours }) {
  ctx.font = `600 ${g.figures}px ${colours.font}`;
  ctx.textBaseline = "middle";
  for (const { boundary, first, last } of cuts) {
    const x = g.left + boundary * g.cell;
    const y = g.top + first * g.cell;
    const end = g.top + (last + 1) * g.cell;
    for (const [style, width, dash] of [[colours.ground, 4, []], [colours.ink, 1.8, [4, 3]]]) {
      ctx.strokeStyle = style;
      ctx.lineWidth = width;
      ctx.setLineDash(dash);
      ctx.beginPath();
      ctx.moveTo(x, y);
      ctx.lineTo(x, end);
      ctx.stroke();
    }
    ctx.setLineDash([]);
  }
  const size = Math.max(10, Math.min(16, g.cell * 0.9));
  const boxes = [];
  const largestFirst = cuts.slice().sort((a, b) => Math.abs(taken[b.boundary]) - Math.abs(taken[a.boundary]));
  for (const { boundary, first } of largestFirst) {
    const x = g.left + boundary * g.cell;
    const y = g.top + first * g.cell;
    const text = `${g.small ? "" : "lost "}${percent(taken[boundary]).replace("+", "")}`;
    const long = ctx.measureText(text).width;
    const [before, after] = [x - size * 0.8 - long, x + size * 0.8];
    let [left, line] = [before, y - size * 0.35]; // over the pale cells, or, on the diagonal, where there are none
    if (first === boundary || before < g.left) left = after;
    if (left + long > g.left + g.side) [left, line] = [g.left + g.side - long, line - g.figures * 1.1];
    const both = [
      [left, line - g.figures / 2, left + long, line + g.figures / 2],
      [x - size * 0.4, y - size * 0.6, x + size * 0.4, y + size * 0.2], // of the scissors
    ];
    const meet = ([a, b, c, d], [e, f, h, i]) => a < h && e < c && b < i && f < d;
    if (boxes.some((other) => both.some((mine) => meet(mine, other)))) continue;
    boxes.push(...both);
    drawScissors(ctx, x, y - size * 0.1, size, colours);
    ctx.textAlign = "left";
    ctx.lineWidth = 4;
    ctx.lineJoin = "round";
    ctx.strokeStyle = colours.ground;
    ctx.strokeText(text, left, line);
    ctx.fillStyle = colours.ink;
    ctx.fillText(text, left, line);
  }
}

function drawScissors(ctx, x, y, size, colours) {
  const r = size * 0.2;
  for (const [style, width] of [[colours.ground, 5], [colours.ink, 1.6]]) {
    ctx.strokeStyle = style;
    ctx.lineWidth = width;
    ctx.beginPath();
    for (const side of [-1, 1]) {
      ctx.moveTo(x + side * size * 0.28 + r, y - size * 0.62);
      ctx.arc(x + side * size * 0.28, y - size * 0.62, r, 0, 2 * Math.PI);
      ctx.moveTo(x + side * size * 0.2, y - size * 0.45);
      ctx.lineTo(x - side * size * 0.2, y + size * 0.4);
    }
    ctx.stroke();
  }
}

// The colour scale, in the corner that the triangle leaves free.
function drawScale(ctx, g, { colours, shades, largest }) {
  const width = Math.min(250, g.side * 0.42);
  const height = g.small ? 9 : 14;
  const x = g.left + g.side - width;
  const y = g.top + (g.small ? 12 : 22);
  const steps = 40;
  for (let n = 0; n < steps; n++) {
    const place = (2 * (n + 0.5)) / steps - 1; // −1 … 1
    const step = Math.round(64 * Math.abs(place));
    ctx.fillStyle = (place < 0 ? shades.hurts : shades.helps)[step];
    ctx.fillRect(x + (width * n) / steps, y, width / steps + 0.5, height);
  }
  ctx.fillStyle = colours.ink;
  for (let n = 0; n < 4; n++) ctx.fillRect(x + width * (0.03 + n * 0.1), y + height / 2 - 0.5, width * 0.05, 1.3);
  ctx.font = `${g.figures}px ${colours.font}`;
  ctx.textBaseline = "top";
  const under = y + height + 3;
  const most = percent(largest).slice(1);
  for (const [text, at, align] of [[`−${most}`, x, "left"], ["0", x + width / 2, "center"], [`+${most}`, x + width, "right"]]) {
    ctx.textAlign = align;
    ctx.fillText(text, at, under);
  }
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  ctx.fillText("hurts", x, y - 2);
  ctx.textAlign = "right";
  ctx.fillText("helps", x + width, y - 2);
}

function drawFocus(ctx, g, { focus, colours }) {
  const { t, s } = focus;
  const x = g.left + s * g.cell;
  const y = g.top + t * g.cell;
  ctx.strokeStyle = colours.accent;
  ctx.lineWidth = 1;
  ctx.setLineDash([2, 2]);
  ctx.strokeRect(g.left - 1, y - 0.5, (s * g.cell), g.cell);
  ctx.strokeRect(x - 0.5, y + g.cell, g.cell, g.side - (t + 1) * g.cell);
  ctx.setLineDash([]);
  ctx.lineWidth = 4;
  ctx.strokeStyle = colours.ground;
  ctx.strokeRect(x - 1.5, y - 1.5, g.cell + 2, g.cell + 2);
  ctx.lineWidth = 2;
  ctx.strokeStyle = colours.accent;
  ctx.strokeRect(x - 1.5, y - 1.5, g.cell + 2, g.cell + 2);
}
