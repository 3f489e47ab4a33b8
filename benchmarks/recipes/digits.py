# SPDX-License-Identifier: Apache-2.0
"""The digits that halfstep generates (framework/data/sets/digits.cpp) in numpy, so that a twin reads the same ones."""
import numpy as np

SIDE, POOL = 28, 2000
U32 = np.uint64(0xFFFFFFFF)


def philox(seed, block):
    """Philox 4x32-10 with key `seed` for each counter of the array `block`: [n, 4] u32 in u64."""
    block = np.asarray(block, np.uint64)
    c = [block & U32, block >> np.uint64(32), np.zeros_like(block), np.zeros_like(block)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & U32, (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & U32]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, -1)


class Numbers:
    """SampleNumbers: of one sample, in the order in which they are asked for."""

    def __init__(self, seed, test, index):
        at = ((index << 1) | int(test)) << 12
        self.words, self.next = philox(seed, at + np.arange(1024)), 0

    def uniform(self, low, high):
        word = self.words[self.next // 4, self.next % 4]
        self.next += 1
        return np.float32(low) + np.float32(high - low) * np.float32(word >> np.uint64(8)) * np.float32(2.0 ** -24)

    def normals(self, n):
        first = (self.next + 3) // 4
        self.next = 4 * (first + n)
        w = (self.words[first:first + n] >> np.uint64(8)).astype(np.float32)
        return np.sqrt(-2 * np.log((w[:, 0] + 1) * np.float32(2.0 ** -24))) * np.cos(np.float32(2 * np.pi * 2.0 ** -24) * w[:, 1])

    def below(self, n):
        return min(int(self.uniform(0, n)), n - 1)


def arc(cx, cy, rx, ry, start, end):
    angles = 2 * np.pi * np.linspace(start, end, 11)
    return [(cx + rx * np.cos(a), cy + ry * np.sin(a)) for a in angles]


def glyph(digit, r):
    if digit == 0:
        return [arc(.5, .5, .28, .45, -.25, .75)]
    if digit == 1:
        return [([(.33, .22)] if r.uniform(0, 1) < .5 else []) + [(.53, .05), (.5, .95)]]
    if digit == 2:
        return [arc(.5, .3, .27, .25, -.48, .12) + [(.22, .93), (.8, .93)]]
    if digit == 3:
        return [arc(.47, .28, .26, .23, -.42, .22) + arc(.47, .72, .3, .23, -.22, .42)]
    if digit == 4:
        if r.uniform(0, 1) < .5:
            return [[(.56, .06), (.2, .62), (.84, .62)], [(.64, .36), (.62, .96)]]
        return [[(.27, .08), (.24, .5), (.78, .5)], [(.74, .08), (.7, .96)]]
    if digit == 5:
        return [[(.78, .07), (.32, .07), (.27, .45)] + arc(.46, .67, .3, .26, -.2, .38)]
    if digit == 6:
        return [[(.66, .05), (.38, .3), (.24, .62)] + arc(.49, .7, .25, .24, .5, -.5)]
    if digit == 7:
        return [[(.2, .08), (.8, .08), (.42, .95)]] + ([[(.35, .52), (.74, .5)]] if r.uniform(0, 1) < .3 else [])
    if digit == 8:
        return [arc(.5, .28, .22, .22, .25, -.75) + arc(.5, .73, .27, .23, -.25, .75)]
    return [arc(.5, .31, .24, .25, 0, 1) + [(.72, .55), (.6, .95)]]


Y, X = np.mgrid[:SIDE, :SIDE].astype(np.float32)


def line(canvas, a, b, w, ink):
    dx, dy = b[0] - a[0], b[1] - a[1]
    px, py = X - a[0], Y - a[1]
    t = np.clip((px * dx + py * dy) / max(dx * dx + dy * dy, 1e-6), 0, 1)
    np.maximum(canvas, ink * np.clip(w + .5 - np.hypot(px - t * dx, py - t * dy), 0, 1), out=canvas)


def draw(digit, r):
    u = r.uniform
    angle, shear, width, height = u(-.25, .25), u(-.25, .25), u(13, 19), u(17, 21)
    cx, cy, pen, ink = 13.5 + u(-1.5, 1.5), 13.5 + u(-1.5, 1.5), u(.6, 1.6), u(.65, 1)
    bend_x, bend_y, phase = u(-.07, .07), u(-.07, .07), u(0, 6.28)
    canvas = np.zeros((SIDE, SIDE), np.float32)
    for stroke in glyph(digit, r):
        p = np.array(stroke, np.float32)
        noise = .012 * r.normals(2 * len(p)).reshape(-1, 2)
        a = p[:, 0] - .5 + bend_x * np.sin(5 * p[:, 1] + phase) + noise[:, 0]
        b = p[:, 1] - .5 + bend_y * np.sin(5 * p[:, 0] + phase) + noise[:, 1]
        x, y = width * (a - shear * b), height * b
        points = np.stack([cx + np.cos(angle) * x - np.sin(angle) * y, cy + np.sin(angle) * x + np.cos(angle) * y], 1)
        for start, end in zip(points, points[1:]):
            line(canvas, start, end, pen, ink)
    if u(0, 1) < .25:
        start = (u(2, 25), u(2, 25))
        end = (start[0] + u(-5, 5), start[1] + u(-5, 5))
        smudge_pen = u(.4, 1)
        line(canvas, start, end, smudge_pen, u(.3, .8))
    noise = u(.02, .12)
    return np.round(255 * np.clip(canvas + noise * r.normals(SIDE * SIDE).reshape(SIDE, SIDE), 0, 1)).astype(np.uint8)


def digits(seed, test, size):
    """Images [size, 28, 28] u8; the class of image i is i % 10."""
    return np.stack([draw(i % 10, Numbers(seed, test, i)) for i in range(size)])


def strips(seed, test, size, least, most):
    """Images [size, 1, 28, 28 most] in [0, 1], and labels [size, most]: the digits plus 1, then -1."""
    pool = digits(seed, test, POOL).astype(np.float32) / 255
    images, labels = np.zeros((size, 1, SIDE, SIDE * most), np.float32), np.full((size, most), -1, np.int64)
    for i in range(size):
        r, left = Numbers(seed ^ 0x7374726970730000, test, i), 0
        for d in range(least + r.below(most - least + 1)):
            which = r.below(POOL)
            part = images[i, 0, :, left:left + SIDE]
            np.maximum(part, pool[which], out=part)
            labels[i, d] = 1 + which % 10
            left += 20 + r.below(9)
    return images, labels
