"""Wrong answers to the exercises of lesson 0, and what is to be said of each. n: the numbers drawn for a student."""

import math

import numpy as np

import minibptt as mb


def triangle(length):
    return length * (length + 1) // 2


def swap(state, h=lambda h: h, c=lambda c: c):
    ((((h_T, c_T),),)) = state
    return (((h(h_T), c(c_T)),),)


WRONG = {
    "0.1": [
        (lambda n: math.log2, "in bits"),
        (lambda n: lambda V: -math.log(V), "the sign"),
        (lambda n: lambda V: 1 / V, "probability of each symbol"),
        (lambda n: lambda V: V, "number of symbols"),
        (lambda n: lambda V: 4.51, "is not it"),
        (lambda n: 4.51, "must be a function"),
    ],
    "0.2": [
        (lambda n: lambda: triangle(n.T), "whole triangle"),
        (lambda n: lambda: sum(triangle(len(p)) for p in np.array_split(np.arange(n.T), n.k)), "asked for are windows"),
        (lambda n: lambda: n.T // n.k * triangle(n.k), "shorter window"),
        (lambda n: lambda: (n.T // n.k + 1) * triangle(n.k), "has only"),
        (lambda n: lambda: n.T * n.k, "as if every loss"),
        (lambda n: lambda: "many", "must be numbers"),
    ],
    "0.3": [
        (lambda n: lambda state: state, "forgot to cut"),
        (lambda n: lambda state: swap(state, h=mb.cut), "you cut h but not c"),
        (lambda n: lambda state: swap(state, c=mb.cut), "you cut c but not h"),
        (lambda n: lambda state: swap(state, h=lambda h: mb.zeros(h.shape), c=mb.cut), "that is a reset"),
        (lambda n: lambda state: swap(state, h=lambda h: h.value, c=mb.cut), "no tensor any more"),
        (lambda n: lambda state: mb.cut(state[0]), "form of the state"),
        (lambda n: lambda state: None, "return missing"),
    ],
}
