// Schedules: which losses reach back through which boundaries, as in truncation.py. Pairs are numbered
// i = t(t + 1)/2 + s, from 0, t being the loss step and s ≤ t the source step; steps are numbered from 0 here.

export const pairCount = (T) => (T * (T + 1)) / 2;
export const pairIndex = (t, s) => (t * (t + 1)) / 2 + s;

// A plan: {T, updates: [{first, stop, factors}]}. An update owns the losses first … stop − 1; factors[s] is what the
// adjoint is multiplied by on its way from step s back to step s − 1.
export function planOf(settings, T) {
  if (settings.scheme === "random") return randomPlan(T, settings.p, settings.seed);
  const { k1, offset, losses } = settings;
  const found = updatesOf(T, k1, settings.tied ? k1 : settings.k2, offset, losses);
  const updates = found.map(({ start, first, stop }) => {
    const factors = Array(T).fill(1);
    if (start) factors[start] = 0;
    return { first, stop, factors };
  });
  return { T, updates };
}

// An update every k1 steps (the first at `offset`, or at k1 where that is 0), back to `start`: through the last k2, or,
// where k2 = k1, to the update before, so that a short tail is a chunk too. It owns its "new" losses or the "last" alone.
export function updatesOf(T, k1, k2, offset, losses) {
  const updates = [];
  let before = 0;
  for (let end = offset || k1; before < T; end += k1) {
    const stop = Math.min(end, T);
    const start = k1 === k2 ? before : Math.max(0, stop - k2);
    updates.push({ start, first: Math.max(start, losses === "last" ? stop - 1 : before), stop });
    before = stop;
  }
  return updates;
}

// Randomised truncation (Tallec and Ollivier 2017): a boundary is closed with probability p, else scaled by 1/(1 − p).
export function randomPlan(T, p, seed) {
  const draw = generator(seed);
  const factors = Array(T).fill(1);
  for (let s = 1; s < T; s++) factors[s] = draw() < p ? 0 : 1 / (1 - p);
  const starts = [0];
  for (let s = 1; s < T; s++) if (factors[s] === 0) starts.push(s);
  return { T, updates: starts.map((first, n) => ({ first, stop: starts[n + 1] ?? T, factors })) };
}

// Numbers in [0, 1) that follow from a seed (mulberry32), so that a link shows the same draw again.
function generator(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let b = Math.imul(a ^ (a >>> 15), 1 | a);
    b = (b + Math.imul(b ^ (b >>> 7), 61 | b)) ^ b;
    return ((b ^ (b >>> 14)) >>> 0) / 4294967296;
  };
}

// The weight of every pair: the product of the factors of the boundaries between its two steps.
export function coverage(plan) {
  const w = new Float64Array(pairCount(plan.T));
  for (const { first, stop, factors } of plan.updates) {
    for (let t = first; t < stop; t++) {
      let weight = 1;
      for (let s = t; s >= 0; s--) {
        w[pairIndex(t, s)] = weight;
        weight *= factors[s];
      }
    }
  }
  return w;
}

// The most steps that are on the tape at once: an update needs those since its last closed boundary.
export function stepsInMemory(plan) {
  return Math.max(...plan.updates.map(({ first, stop, factors }) => stop - lastClosed(factors, first)));
}

function lastClosed(factors, from) {
  let s = from;
  while (s > 0 && factors[s] !== 0) s--;
  return s;
}

// The same of a mask that was painted by hand: from the loss back to the first step that it still reaches.
export function reach(w, T) {
  let most = 0;
  for (let t = 0; t < T; t++) {
    let s = 0;
    while (s <= t && w[pairIndex(t, s)] === 0) s++;
    most = Math.max(most, t - s + 1);
  }
  return most;
}

// [{boundary, first, last}]: the boundary before step `boundary` is the first closed one that the losses first … last
// meet going back.
export function cutsOf(plan) {
  const found = [];
  for (const { first, stop, factors } of plan.updates) {
    for (let t = first; t < stop; t++) {
      const boundary = lastClosed(factors, t);
      if (!boundary) continue;
      const before = found.find((cut) => cut.boundary === boundary && cut.last === t - 1);
      if (before) before.last = t;
      else found.push({ boundary, first: t, last: t });
    }
  }
  return found;
}

// The share that each boundary takes away, by the step that it precedes. A missing pair belongs to the first closed
// boundary that one meets going back from t, one that is only scaled to the first boundary that scales, and a loss that
// is never reached to its own step; so the sum over all boundaries is Σ (1 − w)·P.
export function missing(plan, w, shares) {
  const taken = new Float64Array(plan.T);
  const owner = Array(plan.T).fill(null);
  for (const update of plan.updates) for (let t = update.first; t < update.stop; t++) owner[t] = update.factors;
  for (let t = 0; t < plan.T; t++) {
    for (let s = 0; s <= t; s++) {
      const i = pairIndex(t, s);
      if (w[i] === 1) continue;
      let place = t;
      if (owner[t]) {
        const closed = lastClosedAbove(owner[t], t, s, (f) => f === 0);
        place = closed ?? lastClosedAbove(owner[t], t, s, (f) => f !== 1) ?? t;
      }
      taken[place] += (1 - w[i]) * shares[i];
    }
  }
  return taken;
}

function lastClosedAbove(factors, t, s, wanted) {
  for (let b = t; b > s; b--) if (wanted(factors[b])) return b;
  return null;
}
