// The map of layers and experts on a canvas.

import { make } from './dom.js';

/** Room for the numbers of layers and of experts, in CSS pixels. */
const LEFT = 30;
const TOP = 18;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Heat {
  /** `pick` takes a row and an expert; `hover` the same, or nothing. */
  constructor({ pick, hover, label }) {
    Object.assign(this, { pick, hover, cursor: null, trace: null, focus: {} });
    this.canvas = make('canvas', { class: 'heat', tabindex: '0', role: 'application', 'aria-label': label,
      'aria-roledescription': 'map', 'aria-describedby': 'experts-readout' });
    this.canvas.addEventListener('pointermove', (event) => this.point(event));
    this.canvas.addEventListener('pointerleave', () => this.move(null));
    this.canvas.addEventListener('click', (event) => { this.point(event); this.choose(); });
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.canvas.addEventListener('blur', () => this.move(null));
  }

  /** `focus` may have a `token`, and an `expert` as { row, expert }. */
  draw(trace, focus = {}) {
    Object.assign(this, { trace, focus });
    this.lay();
    const context = this.canvas.getContext('2d');
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.paintNumbers(context);
    this.paintCells(context);
    this.paintMarks(context);
  }

  /** Sizes: as wide as the panel allows. */
  lay() {
    const { layers, experts } = this.trace;
    this.scale = devicePixelRatio || 1;
    const width = Math.max(200, this.canvas.parentElement?.clientWidth ?? 400) - LEFT - 6;
    this.wide = Math.max(2, Math.min(34, width / experts));
    this.high = Math.max(3, Math.min(28, 420 / layers.length));
    const [w, h] = [LEFT + this.wide * experts, TOP + this.high * layers.length];
    const [pixels, rows] = [Math.ceil(w * this.scale), Math.ceil(h * this.scale)];
    if (this.canvas.width !== pixels || this.canvas.height !== rows) {
      Object.assign(this.canvas, { width: pixels, height: rows });
      this.canvas.style.width = `${w}px`;
      this.canvas.style.height = `${h}px`;
    }
  }

  paintNumbers(context) {
    const { layers, experts } = this.trace;
    context.font = '11px ui-monospace, monospace';
    context.fillStyle = css('--muted');
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    const every = (size, room) => [1, 2, 4, 8, 16, 32, 64].find((step) => step * size >= room) ?? 128;
    for (let row = 0; row < layers.length; row += every(this.high, 13)) {
      context.fillText(layers[row], LEFT - 6, TOP + (row + 0.5) * this.high);
    }
    context.textAlign = 'center';
    for (let expert = 0; expert < experts; expert += every(this.wide, 24)) {
      context.fillText(expert, LEFT + (expert + 0.5) * this.wide, TOP / 2 - 1);
    }
  }

  paintCells(context) {
    const { trace, focus: { token } } = this;
    const gap = this.wide >= 6 && this.high >= 6 ? 1 : 0;
    const [cold, hot] = [css('--cell'), css('--accent')];
    const [least, most] = trace.counts.reduce(([low, high], count) => [Math.min(low, count), Math.max(high, count)], [Infinity, 1]);
    const heat = (count) => ((count - least) / Math.max(1, most - least)) ** 0.6;
    const cell = (row, expert, colour, alpha) => {
      const [x, y, w, h] = this.box(row, expert);
      context.globalAlpha = alpha;
      context.fillStyle = colour;
      context.fillRect(x, y, w - gap, h - gap);
    };
    for (let row = 0; row < trace.layers.length; row += 1) {
      for (let expert = 0; expert < trace.experts; expert += 1) {
        cell(row, expert, cold, 1);
        const count = trace.count(row, expert);
        // The exponent shows rare experts too.
        if (count > 0) cell(row, expert, hot, (token == null ? 1 : 0.25) * (0.06 + 0.94 * heat(count)));
      }
    }
    context.globalAlpha = 1;
  }

  /** The experts of one token, and the frame of the chosen cell. */
  paintMarks(context) {
    const { trace, focus: { token, last, expert }, cursor } = this;
    const chosen = trace.tokens[token ?? (last ? trace.tokens.length - 1 : -1)];
    context.fillStyle = css('--mark');
    const inset = token == null ? 0.25 : 0;
    chosen?.rows.forEach((row, index) => row.forEach(([id, weight]) => {
      const [x, y, w, h] = this.box(index, id);
      context.globalAlpha = 0.35 + 0.65 * Math.min(1, Math.sqrt(weight));
      context.fillRect(x, y + h * inset, Math.max(2, w - (w >= 6)), h * (1 - 2 * inset) - (h >= 6));
    }));
    context.globalAlpha = 1;
    const frame = (at, width) => {
      context.lineWidth = width;
      context.strokeStyle = css('--ink');
      context.strokeRect(LEFT + at.expert * this.wide - 1, TOP + at.row * this.high - 1, this.wide + 1, this.high + 1);
    };
    if (expert) frame(expert, 2);
    if (cursor) frame(cursor, 1);
  }

  /** Where a cell is, with its edges on whole pixels. */
  box(row, expert) {
    const edge = (value) => Math.round(value * this.scale) / this.scale;
    const [x, y] = [edge(LEFT + expert * this.wide), edge(TOP + row * this.high)];
    return [x, y, edge(LEFT + (expert + 1) * this.wide) - x, edge(TOP + (row + 1) * this.high) - y];
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const at = { row: Math.floor((event.clientY - box.top - TOP) / this.high), expert: Math.floor((event.clientX - box.left - LEFT) / this.wide) };
    const inside = at.row >= 0 && at.expert >= 0 && at.row < this.trace.layers.length && at.expert < this.trace.experts;
    this.move(inside ? at : null);
  }

  move(at) {
    if (at?.row === this.cursor?.row && at?.expert === this.cursor?.expert) return;
    this.cursor = at;
    this.draw(this.trace, this.focus);
    this.hover(at, this.trace);
  }

  choose() {
    if (this.cursor) this.pick(this.cursor);
  }

  key(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); return this.choose(); }
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const { row, expert } = this.cursor ?? this.focus.expert ?? { row: 0, expert: 0 };
    const clamp = (value, end) => Math.max(0, Math.min(end - 1, value));
    this.move({ row: clamp(row + step[0], this.trace.layers.length), expert: clamp(expert + step[1], this.trace.experts) });
  }
}
