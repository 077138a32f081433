// Colours of the style sheet for canvases, and the two scales of the maps.

import { make } from './dom.js';

const probe = make('span', { hidden: true });

/** A colour of the style sheet, in the theme that is shown. */
export function css(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

const parts = (name) => css(name).match(/[\d.]+/g).slice(0, 3).map(Number);
const mix = (from, to, at) => `rgb(${from.map((value, index) => Math.round(value + (to[index] - value) * at)).join(' ')})`;

/** The loads that the legend shows, as multiples of an even load; all above the last have its colour. */
export const LOADS = [0, 0.5, 1, 2, 3];
/** Differences of loads; all beyond the ends have their colours. */
export const DIFFERENCES = [-2, -1, 0, 1, 2];

/** The colour of a load, the same for every answer: `gristmill experts --svg` has the same stops. */
export function loadScale() {
  const [none, even, most] = ['--load-none', '--load-even', '--load-most'].map(parts);
  return (load) => (load <= 1 ? mix(none, even, load) : mix(even, most, Math.min(1, (load - 1) / 2)));
}

/** The colour of a first answer's load less that of a second. */
export function differenceScale() {
  const [first, none, second] = ['--more-first', '--load-none', '--more-second'].map(parts);
  return (difference) => mix(none, difference > 0 ? first : second, Math.min(1, Math.abs(difference) / 2));
}

/** Calls `changed` when the theme does. */
export function watchTheme(changed) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changed);
  document.addEventListener('theme', changed);
}
