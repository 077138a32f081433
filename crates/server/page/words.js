// One expert: how much it worked in an answer, and for which of its words.

import { button, make } from './dom.js';
import { percent, times, whole } from './numbers.js';
import { visible } from './tokens.js';

/** More words are left out. */
const MOST = 48;

/** A sentence about an expert. */
export function expertLine(trace, { row, expert }) {
  const [count, all, mean] = [trace.count(row, expert), trace.tokens.length, trace.meanWeight(row, expert)];
  const share = all > 0 ? ` (${percent(count / all)})` : '';
  return [`Layer ${trace.layers[row]}, expert ${expert}: ${whole(count)} of ${whole(all)} tokens${share}`,
    `${times(trace.load(row, expert))} an even load`, mean === null ? null : `weight ${mean.toFixed(2)} on average`].filter(Boolean).join(', ');
}

/** The section about the expert that is chosen. */
export function expertDetail(trace, { row, expert }, close) {
  const words = trace.words(row, expert);
  const word = ({ text, picked, all }) => make('li', { title: `Picked for ${picked} of the ${all} times that the answer has it` },
    make('code', { text: text.trim() || visible(text) || '∅' }), all > 1 ? make('span', { text: `${picked} of ${all}` }) : null);
  const left = words.length - MOST;
  return make('section', { class: 'detail of-expert' },
    make('div', { class: 'detail-head' }, make('h3', { text: `Expert ${expert} of layer ${trace.layers[row]}` }), button('Clear', close)),
    words.length === 0 ? make('p', { class: 'muted', text: 'It was picked for no token of this answer.' })
      : make('p', { class: 'muted', text: 'It was picked for these tokens, which are marked below; “2 of 3” is for two of the three times that the token occurs.' }),
    make('ul', { class: 'words', tabindex: '0', 'aria-label': 'Tokens of the expert' }, ...words.slice(0, MOST).map(word), left > 0 ? make('li', { class: 'muted', text: `and ${whole(left)} more` }) : null));
}
