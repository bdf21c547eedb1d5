"""Wrong answers to the exercises of lesson 10, and what is to be said of each. n: the numbers drawn for a student."""

import minibptt as mb


def segment(
    own=1.0, after=1.0, reset=False, late=0.0, only=None, mean=False, start_of=lambda start, h: start, of_end=False
):
    def one(cell, x, h_before, dh_after):
        with mb.Tape() as tape:
            start = tape.watch(h_before * 0 if reset else h_before)
            out, h = mb.unroll(cell, x, start_of(start, h_before))
            loss = own * (mb.mean if mean else mb.sum)(out * out) + after * mb.sum(h * dh_after)
        gradients, dh = tape.gradient(loss, [cell, h if of_end else start])
        return (gradients, dh + late * dh_after) if only is None else (gradients, dh)[only]

    return one


KEPT = []


def stream(cut=True, reset=False, add=True, keep=False, mean=False):
    def one(cell, chunks):
        h, total = cell.zero_state(chunks[0].shape[1]), None
        for x in chunks if cut else [mb.concatenate(chunks).value]:
            with mb.Tape() as tape:
                start = cell.zero_state(x.shape[1]) if reset else mb.cut(h)
                out, h = mb.unroll(cell, x, start)
                loss = mb.sum(out * out)
            gradients = tape.gradient(loss, cell)
            total = gradients if total is None or not add else total + gradients
            if keep:
                KEPT.append(tape)
        return total * (1 / len(chunks)) if mean else total

    return one


def broken(cell, chunks):
    """As in the lesson."""
    h, total = cell.zero_state(chunks[0].shape[1]), 0.0
    with mb.Tape() as tape:
        for x in chunks:
            out, h = mb.unroll(cell, x, mb.cut(h))
            total = total + tape.gradient(mb.sum(out * out), cell)
    return total


WRONG = {
    "10.1": [
        (lambda n: lambda: n.T**0.5, "where m = s"),
        (lambda n: lambda: (n.T * n.s / n.m) ** 0.5, "how long a segment is"),
        (lambda n: lambda: n.T * n.m / n.s, "root is missing"),
        (lambda n: lambda: 2 * (n.T * n.m * n.s) ** 0.5, "how much memory"),
        (lambda n: lambda: n.T, "stored at every step"),
        (lambda n: lambda: 7, "7 is not it"),
        (lambda n: lambda: None, "return missing"),
    ],
    "10.2": [
        (lambda n: segment(after=0.0), "truncation in chunks"),
        (lambda n: segment(after=0.0, late=1.0), "as it is"),
        (lambda n: segment(late=1.0), "once more"),
        (lambda n: segment(own=0.0), "own losses are missing"),
        (lambda n: segment(reset=True), "a reset"),
        (lambda n: segment(after=-1.0), "sign"),
        (lambda n: segment(mean=True), "the loss is a mean"),
        (lambda n: segment(of_end=True), "after the segment"),
        (lambda n: segment(start_of=lambda start, h: mb.cut(start)), "dh_before is 0"),
        (lambda n: segment(only=0), "2 things, "),
        (lambda n: lambda *a: segment()(*a)[::-1], "first thing"),
        (lambda n: segment(own=3.0), "differs"),
    ],
    "10.3": [
        (lambda n: broken, "still grows"),
        (lambda n: stream(cut=False), "full BPTT"),
        (lambda n: stream(reset=True), "a reset"),
        (lambda n: stream(add=False), "last chunk alone"),
        (lambda n: stream(mean=True), "mean over the chunks"),
        (lambda n: stream(keep=True), "keeps the tapes"),
        (lambda n: lambda cell, chunks: 3.0, "must return a sum of gradients"),
        (lambda n: lambda cell, chunks: stream()(cell, chunks[:-1]), "shorter chunk is missing"),
    ],
}
