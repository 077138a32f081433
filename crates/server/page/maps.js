// The maps of an answer, of a second one, and of their difference, with what their colours mean.

import { DIFFERENCES, differenceScale, loadScale, LOADS } from './colours.js';
import { button, make } from './dom.js';
import { Heat } from './heat.js';
import { times, whole } from './numbers.js';

/** So many differences are named. */
const NAMED = 5;

export class Maps {
  /** `pick` takes a row and an expert; `hover` the same, or nothing, and whether it is in the map of the second answer. */
  constructor({ pick, hover }) {
    this.pick = pick;
    this.maps = [
      new Figure('Experts of the answer', { pick, hover: (at) => hover(at, false) }),
      new Figure('Experts of the second answer', { pick, hover: (at) => hover(at, true) }),
      new Figure('Difference of the answers', { pick, hover: (at) => hover(at, false) }),
    ];
    this.load = new Legend('How often an expert was picked: 1 is an even load, the average of its layer', LOADS.map((load) => `${load}${load === LOADS.at(-1) ? '+' : ''}`));
    this.difference = new Legend('Picked more often in the second answer, or in the first', ['second', '', 'alike', '', 'first']);
    this.token = make('p', { class: 'legend', hidden: true }, make('span', { class: 'dot', 'aria-hidden': 'true' }), make('span'));
    this.most = make('div', { class: 'most-different' });
    const [own, other, both] = this.maps;
    this.comparison = make('div', { class: 'comparison' }, both.element, this.difference.element, this.most);
    this.element = make('div', { class: 'maps' }, make('div', { class: 'pair' }, own.element, other.element), this.load.element, this.token, this.comparison);
  }

  /** `rows` has the experts of the token that is marked, and `marked` is its name. */
  draw({ current, other, expert, rows, marked }) {
    const load = loadScale();
    const [own, second, both] = this.maps;
    const picture = (trace) => ({ ...shape(trace), colour: (row, cell) => load(trace.load(row, cell)) });
    own.show(caption(current, other ? 'First: ' : ''), picture(current), { expert, rows });
    this.load.paint(LOADS.map(load));
    this.token.hidden = !rows;
    this.token.lastChild.textContent = `picked for ${marked}`;
    second.element.hidden = this.comparison.hidden = !other;
    if (!other) return;
    second.show(caption(other, 'Second: '), picture(other), { expert });
    const scale = differenceScale();
    both.show('Difference', { ...shape(current), colour: (row, cell) => scale(current.load(row, cell) - other.load(row, cell)) }, { expert });
    this.difference.paint(DIFFERENCES.map(scale));
    this.nameMost(current, other);
  }

  nameMost(current, other) {
    const line = ({ row, expert, own, others }) => make('li', {}, button(`Layer ${current.layers[row]}, expert ${expert}`, () => this.pick({ row, expert })),
      make('span', { class: 'muted', text: `${times(own)} in the first, ${times(others)} in the second` }));
    this.most.replaceChildren(make('h4', { text: 'The largest differences' }), make('ol', {}, ...current.mostDifferent(other, NAMED).map(line)));
  }
}

const shape = ({ layers, sizes, experts }) => ({ layers, sizes, experts });
const caption = (trace, prefix) => `${prefix}${trace.label} · ${whole(trace.tokens.length)} tokens`;

/** One map with its caption. */
class Figure {
  constructor(label, { pick, hover }) {
    this.heat = new Heat({ pick, hover, label });
    this.caption = make('figcaption');
    this.element = make('figure', { class: 'map' }, this.caption, this.heat.box);
  }

  show(text, picture, focus) {
    this.element.hidden = false;
    this.caption.textContent = text;
    this.heat.draw(picture, focus);
  }
}

/** The colours of a map, side by side, with their names. */
class Legend {
  constructor(text, names) {
    this.stops = names.map((name) => make('span', { class: 'stop', text: name }, make('span', { class: 'swatch' })));
    this.element = make('p', { class: 'legend' }, make('span', { text }), make('span', { class: 'stops' }, ...this.stops));
  }

  paint(colours) {
    colours.forEach((colour, index) => { this.stops[index].lastChild.style.background = colour; });
  }
}
