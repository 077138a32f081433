// A map of layers and experts on a canvas. It is wider than its box if the cells would be too small to see; the numbers of
// the layers then stay in sight.

import { css } from './colours.js';
import { make } from './dom.js';

/** Room for the layers and for the experts with their names, in CSS pixels. */
const LEFT = 42;
const TOP = 36;
/** Sizes of a cell. */
const WIDE = { least: 8, most: 34 };
const HIGH = { least: 8, most: 28 };
/** A map of many layers is about this high. */
const HEIGHT = 420;

export class Heat {
  /** `pick` takes a row and an expert; `hover` the same, or nothing. */
  constructor({ pick, hover, label }) {
    Object.assign(this, { pick, hover, cursor: null, picture: null, focus: {} });
    this.canvas = make('canvas', { class: 'heat', tabindex: '0', role: 'application', 'aria-label': label,
      'aria-roledescription': 'map', 'aria-describedby': 'experts-readout' });
    this.box = make('div', { class: 'map-scroll' }, this.canvas);
    this.box.addEventListener('scroll', () => this.paint());
    this.canvas.addEventListener('pointermove', (event) => this.point(event));
    this.canvas.addEventListener('pointerleave', () => this.move(null));
    this.canvas.addEventListener('click', (event) => { this.point(event); this.choose(); });
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.canvas.addEventListener('blur', () => this.move(null));
  }

  /**
   * Draws a `picture`: numbers of `layers`, `sizes` of the rows, the most `experts`, and the `colour` of a cell. `focus` may
   * have an `expert` as { row, expert }, and `rows` of a token: pairs of expert and weight.
   */
  draw(picture, focus = {}) {
    Object.assign(this, { picture, focus });
    this.lay();
    this.paint();
  }

  /** Sizes: as wide as the panel allows. */
  lay() {
    const { layers, experts } = this.picture;
    this.scale = devicePixelRatio || 1;
    const width = Math.max(200, this.box.clientWidth || 400) - LEFT - 6;
    const within = (size, { least, most }) => Math.max(least, Math.min(most, size));
    this.wide = within(Math.floor(width / experts * 4) / 4, WIDE);
    this.high = within(HEIGHT / layers.length, HIGH);
    const [w, h] = [LEFT + this.wide * experts + 2, TOP + this.high * layers.length + 2];
    const [pixels, rows] = [Math.ceil(w * this.scale), Math.ceil(h * this.scale)];
    if (this.canvas.width !== pixels || this.canvas.height !== rows) {
      Object.assign(this.canvas, { width: pixels, height: rows });
      this.canvas.style.width = `${w}px`;
      this.canvas.style.height = `${h}px`;
    }
  }

  paint() {
    if (!this.picture) return;
    const context = this.canvas.getContext('2d');
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.paintCells(context);
    this.paintToken(context);
    this.paintFrames(context);
    this.paintAxes(context);
  }

  paintCells(context) {
    const { sizes, colour } = this.picture;
    sizes.forEach((size, row) => {
      for (let expert = 0; expert < size; expert += 1) {
        const [x, y, w, h] = this.cell(row, expert);
        context.fillStyle = colour(row, expert);
        context.fillRect(x, y, w - 1, h - 1);
      }
    });
  }

  /** The experts of a token: dots, larger where their weight is, with a rim that shows on every colour. */
  paintToken(context) {
    Object.assign(context, { fillStyle: css('--mark'), strokeStyle: css('--surface'), lineWidth: this.high > 12 ? 3 : 2 });
    this.focus.rows?.forEach((row, index) => row.forEach(([expert, weight]) => {
      const [x, y, w, h] = this.cell(index, expert);
      const size = Math.max(4, Math.min(w, h, 18) * (0.35 + 0.5 * Math.min(1, weight)));
      context.beginPath();
      context.arc(x + (w - 1) / 2, y + (h - 1) / 2, size / 2, 0, 7);
      context.stroke();
      context.fill();
    }));
  }

  paintFrames(context) {
    const frame = (at, width) => {
      const [x, y, w, h] = this.cell(at.row, at.expert);
      context.lineWidth = width;
      context.strokeStyle = css('--ink');
      context.strokeRect(x - 0.5, y - 0.5, w, h);
    };
    if (this.focus.expert) frame(this.focus.expert, 2);
    if (this.cursor) frame(this.cursor, 1);
  }

  /** Names and numbers; those of the layers are above the cells that the box has moved under them. */
  paintAxes(context) {
    const { layers, experts } = this.picture;
    const left = this.box.scrollLeft;
    const every = (size, room) => [1, 2, 4, 8, 16, 32, 64].find((step) => step * size >= room) ?? 128;
    const text = (words, x, y) => context.fillText(words, x, y);
    Object.assign(context, { font: '11px ui-monospace, monospace', textBaseline: 'middle', textAlign: 'center', fillStyle: css('--muted') });
    for (let expert = 0; expert < experts; expert += every(this.wide, 24)) text(expert, LEFT + (expert + 0.5) * this.wide, 26);
    context.clearRect(left, 0, LEFT - 2, this.canvas.height);
    context.textAlign = 'right';
    for (let row = 0; row < layers.length; row += every(this.high, 13)) text(layers[row], left + LEFT - 8, TOP + (row + 0.5) * this.high);
    Object.assign(context, { font: '600 11px system-ui, sans-serif', fillStyle: css('--ink') });
    text('Layer', left + LEFT - 8, 26);
    context.textAlign = 'left';
    text('Expert', left + LEFT, 8);
  }

  /** Where a cell is, with its edges on whole pixels. */
  cell(row, expert) {
    const edge = (value) => Math.round(value * this.scale) / this.scale;
    const [x, y] = [edge(LEFT + expert * this.wide), edge(TOP + row * this.high)];
    return [x, y, edge(LEFT + (expert + 1) * this.wide) - x, edge(TOP + (row + 1) * this.high) - y];
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const at = { row: Math.floor((y - TOP) / this.high), expert: Math.floor((x - LEFT) / this.wide) };
    this.move(x - this.box.scrollLeft >= LEFT && this.has(at) ? at : null);
  }

  has({ row, expert }) {
    return row >= 0 && expert >= 0 && expert < (this.picture.sizes[row] ?? 0);
  }

  move(at) {
    if (at?.row === this.cursor?.row && at?.expert === this.cursor?.expert) return;
    this.cursor = at;
    this.paint();
    this.hover(at);
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
    const next = { row: row + step[0], expert: expert + step[1] };
    if (!this.has(next)) return;
    this.move(next);
    this.reveal(next.expert);
  }

  /** Scrolls an expert into the box. */
  reveal(expert) {
    const x = LEFT + expert * this.wide;
    if (x - LEFT < this.box.scrollLeft) this.box.scrollLeft = x - LEFT;
    else if (x + this.wide > this.box.scrollLeft + this.box.clientWidth) this.box.scrollLeft = x + this.wide - this.box.clientWidth;
  }
}
