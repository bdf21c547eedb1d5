// What the page knows of every pair (loss step t, source step s), and what follows from it for any weights w:
// g = Σ w·C, its share, size and distance from the full gradient G. See stored.py for what is stored.
import { pairCount, pairIndex, updatesOf } from "./schedule.js";

export function numbers(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

export class Moment {
  constructor(stored, T) {
    this.T = T;
    this.P = pairCount(T);
    this.stored = stored;
    this.found = new Map(); // by part: its shares and, where it can be worked out, ‖G‖²
    this.t = new Uint16Array(this.P);
    this.s = new Uint16Array(this.P);
    for (let t = 0; t < T; t++) {
      for (let s = 0; s <= t; s++) {
        this.t[pairIndex(t, s)] = t;
        this.s[pairIndex(t, s)] = s;
      }
    }
    this.banks = stored.banks.map((bank) => ({
      ...bank,
      D: numbers(bank.D),
      uses: bank.uses.map(({ n, X }) => ({ n, X: X === null ? null : numbers(X) })),
    }));
    this.ones = new Float64Array(this.P).fill(1);
  }

  // Whether the size and the angle of a truncated gradient of this part are known, and not its share alone.
  knows(part) {
    return "pieces" in this.stored.parts[part];
  }

  // P[i], the signed share of every pair in the part's own full gradient; Σ P = 1.
  shares(part) {
    return this.of(part).shares;
  }

  of(part) {
    if (!this.found.has(part)) {
      const { pieces, shares } = this.stored.parts[part];
      this.found.set(part, pieces ? this.measured(pieces) : { shares: Float64Array.from(numbers(shares)), size: NaN });
    }
    return this.found.get(part);
  }

  // Σ_t w[t, s]·D_ts of one bank, (T, B, width).
  summed(bank, w) {
    const { D, B, width, pairs } = bank;
    const row = B * width;
    const E = new Float64Array(this.T * row);
    const count = D.length / row;
    for (let n = 0; n < count; n++) {
      const i = pairs === null ? n : pairs[n];
      const weight = w[i];
      if (weight === 0) continue;
      const to = this.s[i] * row;
      const from = n * row;
      for (let j = 0; j < row; j++) E[to + j] += weight * D[from + j];
    }
    return E;
  }

  // The gradient Σ w·C of one piece of a part, Σ_s X_sᵀ E_s, (n, columns).
  product([b, u, first, last], E) {
    const { B, width, uses } = this.banks[b];
    const { n, X } = uses[u];
    const columns = last - first;
    const g = new Float64Array(n * columns);
    for (let r = 0; r < this.T * B; r++) {
      for (let a = 0; a < n; a++) {
        const x = X === null ? 1 : X[r * n + a];
        if (x === 0) continue;
        for (let j = 0; j < columns; j++) g[a * columns + j] += x * E[r * width + first + j];
      }
    }
    return g;
  }

  gradient(pieces, w) {
    const sums = new Map();
    return pieces.map((piece) => {
      const b = piece[0];
      if (!sums.has(b)) sums.set(b, this.summed(this.banks[b], w));
      return this.product(piece, sums.get(b));
    });
  }

  // The shares of all pairs: ⟨X_sᵀ D_ts, G⟩ = ⟨D_ts, X_s G⟩.
  measured(pieces) {
    const G = this.gradient(pieces, this.ones);
    const size = square(G);
    const shares = new Float64Array(this.P);
    const XG = new Map(); // by bank, (T, B, width)
    pieces.forEach(([b, u, first, last], k) => {
      const { B, width, uses } = this.banks[b];
      const { n, X } = uses[u];
      if (!XG.has(b)) XG.set(b, new Float64Array(this.T * B * width));
      const out = XG.get(b);
      const columns = last - first;
      for (let r = 0; r < this.T * B; r++) {
        for (let a = 0; a < n; a++) {
          const x = X === null ? 1 : X[r * n + a];
          for (let j = 0; j < columns; j++) out[r * width + first + j] += x * G[k][a * columns + j];
        }
      }
    });
    for (const [b, out] of XG) {
      const { D, B, width, pairs } = this.banks[b];
      const row = B * width;
      for (let n = 0; n < D.length / row; n++) {
        const i = pairs === null ? n : pairs[n];
        let dot = 0;
        for (let j = 0; j < row; j++) dot += D[n * row + j] * out[this.s[i] * row + j];
        shares[i] += dot / size;
      }
    }
    return { shares, size };
  }

  // What is read off for the weights w. The error is that of the missing pairs themselves: no difference of large
  // numbers. What is not known is null; a cosine of no gradient at all is NaN.
  readOuts(part, w) {
    const { shares, size } = this.of(part);
    let share = 0;
    for (let i = 0; i < this.P; i++) share += w[i] * shares[i];
    if (!this.knows(part)) return { share, cosine: null, ratio: null, error: null };
    const { pieces } = this.stored.parts[part];
    const ratio = Math.sqrt(square(this.gradient(pieces, w)) / size);
    const away = w.map((weight) => 1 - weight);
    const error = Math.sqrt(square(this.gradient(pieces, away)) / size);
    return { share, cosine: ratio === 0 ? NaN : share / ratio, ratio, error };
  }

  // E‖g − G‖² / ‖G‖² of randomised truncation: Σ_n a_n (q^n − 1), q = 1/(1 − p), a_n being Σ ⟨C_i, C_j⟩ / ‖G‖² over
  // the pairs that have n boundaries in common.
  variance(part, p) {
    const { excess } = this.stored.parts[part];
    if (!excess) return null;
    return excess.reduce((sum, a, n) => sum + a * Math.expm1(-n * Math.log1p(-p)), 0);
  }
}

const square = (arrays) => arrays.reduce((sum, g) => g.reduce((inner, x) => inner + x * x, sum), 0);

// Σ P by loss, by source and by lag.
export function margins(T, values) {
  const byLoss = new Float64Array(T);
  const bySource = new Float64Array(T);
  const byLag = new Float64Array(T);
  for (let t = 0; t < T; t++) {
    for (let s = 0; s <= t; s++) {
      const value = values[pairIndex(t, s)];
      byLoss[t] += value;
      bySource[s] += value;
      byLag[t - s] += value;
    }
  }
  return { byLoss, bySource, byLag };
}

export function running(values) {
  let sum = 0;
  return Array.from(values, (value) => (sum += value));
}

// The kept share for every k = 1 … T, over all offsets: [{k, all, mean, least, most}]. Where k2 = k1 both are k, else it
// is k2 that goes from 1 to T, for the k1 that is chosen.
export function shareAgainstK(T, shares, { tied, k1, losses }) {
  // Σ of the shares of the losses before `row` and the sources before `column`, so that a block takes four of them
  const corner = Array.from({ length: T + 1 }, () => new Float64Array(T + 1));
  for (let t = 0; t < T; t++) {
    let sum = 0;
    for (let s = 0; s < T; s++) {
      if (s <= t) sum += shares[pairIndex(t, s)];
      corner[t + 1][s + 1] = corner[t][s + 1] + sum;
    }
  }
  const kept = ({ start, first, stop }) => corner[stop][T] - corner[stop][start] - corner[first][T] + corner[first][start];
  return Array.from({ length: T }, (_, n) => {
    const k = n + 1;
    const every = tied ? k : k1;
    const offsets = every < T ? every : 1;
    const all = Array.from({ length: offsets }, (_, offset) =>
      updatesOf(T, every, k, offset, losses).reduce((sum, update) => sum + kept(update), 0));
    const mean = all.reduce((a, b) => a + b, 0) / all.length;
    return { k, all, mean, least: Math.min(...all), most: Math.max(...all) };
  });
}
