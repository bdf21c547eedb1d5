// Pairs and numbers in words. Symbols come from a text that may hold anything: they are shown as text, isolated, so that
// letters that run from right to left stay where they are, and signs that cannot be seen get one that can.

const NAMED = { " ": "␣", "\n": "↵", "\t": "⇥" };

export function visible(symbol) {
  if (symbol in NAMED) return NAMED[symbol];
  return Array.from(symbol, (sign) => {
    const code = sign.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code); // ␀ ␁ …
    if (/^\p{Cn}|^\p{Cc}|^\p{Cf}|^\p{Cs}|^\p{Co}|^[\u2028\u2029]/u.test(sign)) return "�";
    return /^\p{M}/u.test(sign) && sign === symbol ? "◌" + sign : sign;
  }).join("");
}

// The first sign of a symbol, for an axis.
export const initial = (symbol) => Array.from(visible(symbol)).slice(0, symbol.startsWith("\u25cc") ? 2 : 1).join("");

export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = Math.abs(100 * share);
  const sign = share < 0 ? "−" : "+";
  if (value === 0) return "0 %";
  if (value < 0.005) return `${sign}${value.toExponential(0).replace("e-", "e−")} %`;
  return `${sign}${value < 0.1 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0)} %`;
}

export function decimal(value, digits = 3) {
  if (value === null) return "not stored";
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const text = size !== 0 && size < 0.0005 ? size.toExponential(0) : size < 100 ? size.toFixed(digits) : size.toPrecision(3);
  return (value < 0 ? "−" : "") + text.replace("e-", "e−").replace("e+", "e");
}

// Pieces of a sentence, {text} or {symbol}: "loss on ‘)’ from the step of ‘(’, 17 back: +3.1 % of the gradient".
export function pairInWords({ t, s, symbol, target, share, part, whole }) {
  const lag = t - s;
  const pieces = target === undefined ? [{ text: `loss of step ${t + 1}` }] : [{ text: "loss on ‘" }, { symbol: target }, { text: "’" }];
  if (lag === 0) pieces.push({ text: " from its own step" });
  else if (symbol === undefined) pieces.push({ text: ` from step ${s + 1}, ${lag} back` });
  else pieces.push({ text: " from the step of ‘" }, { symbol }, { text: `’, ${lag} back` });
  pieces.push({ text: `: ${percent(share)} of the gradient` });
  if (part !== whole) pieces.push({ text: " of " }, { symbol: part });
  return pieces;
}

// Write such a sentence into an element, each symbol in an element of its own that isolates its direction.
export function write(element, pieces) {
  element.replaceChildren(
    ...pieces.map(({ text, symbol }) => {
      if (text !== undefined) return document.createTextNode(text);
      const isolated = document.createElement("bdi");
      isolated.textContent = visible(symbol);
      return isolated;
    }),
  );
}
