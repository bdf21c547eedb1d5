// What the reader has chosen, in the address (after the #) so that a link shows the same picture, and in the controls.

export const INITIAL = {
  preset: 0, moment: 0, part: "", scheme: "cut", k1: 8, k2: 8, tied: true, offset: 0, losses: "new", p: 0.1, seed: 1,
  mask: null, // of a hand: a Uint8Array, one for every pair
};

const whole = (text, least, most, otherwise) => {
  const value = Number(text);
  return text !== null && text !== "" && Number.isInteger(value) ? Math.min(most, Math.max(least, value)) : otherwise;
};

// Settings that make sense for this data, whatever is in the address.
export function fromHash(hash, presets) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const preset = whole(given.get("preset"), 0, presets.length - 1, 0);
  const { T, moments, start } = presets[preset];
  const before = { ...INITIAL, moment: moments - 1, ...start };
  const one = (name, choices) => (choices.includes(given.get(name)) ? given.get(name) : before[name]);
  const k1 = whole(given.get("k1"), 1, T, Math.min(before.k1, T));
  const p = Number(given.get("p") ?? NaN);
  const tied = given.has("k2") ? Number(given.get("k2")) === k1 : given.has("k1") || before.tied;
  const k2 = tied ? k1 : whole(given.get("k2"), 1, T, Math.min(before.k2, T));
  const mask = given.has("mask") ? unpack(given.get("mask"), (T * (T + 1)) / 2) : null;
  return {
    preset,
    moment: whole(given.get("moment"), 0, moments - 1, before.moment),
    part: given.get("part") ?? before.part,
    scheme: one("scheme", ["cut", "random", "hand"]),
    k1,
    k2,
    tied,
    offset: whole(given.get("offset"), 0, k1 - 1, Math.min(before.offset, k1 - 1)),
    losses: one("losses", ["new", "last"]),
    p: p >= 0 && p <= 0.9 ? p : before.p,
    seed: whole(given.get("seed"), 0, 2 ** 31, before.seed),
    mask,
  };
}

export function toHash(settings) {
  const { preset, moment, part, scheme, k1, k2, tied, offset, losses, p, seed, mask } = settings;
  const given = new URLSearchParams({ preset, moment, part, scheme });
  if (scheme === "cut") for (const [key, value] of Object.entries({ k1, offset, losses })) given.set(key, value);
  if (scheme === "cut" && !tied) given.set("k2", k2);
  if (scheme === "random") for (const [key, value] of Object.entries({ p, seed })) given.set(key, value);
  if (scheme === "hand" && mask) given.set("mask", pack(mask));
  return `#${given}`;
}

// A mask as hexadecimal digits, four pairs each, the first pair first.
export function pack(mask) {
  let text = "";
  for (let i = 0; i < mask.length; i += 4) {
    let digit = 0;
    for (let j = 0; j < 4; j++) digit = 2 * digit + (mask[i + j] ? 1 : 0);
    text += digit.toString(16);
  }
  return text;
}

export function unpack(text, P) {
  const mask = new Uint8Array(P);
  for (let i = 0; i < P; i++) mask[i] = (parseInt(text[i >> 2] ?? "0", 16) >> (3 - (i & 3))) & 1;
  return mask;
}
