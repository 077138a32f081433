// What is known of one token, and the map as a table.

import { make } from './dom.js';
import { percent } from './numbers.js';
import { visible } from './tokens.js';

/** A token: what else it could have been, and its experts. `pick` takes a row and an expert. */
export function tokenDetail(trace, index, pick) {
  const token = trace.tokens[index];
  const title = make('h3', {}, 'Token ', make('code', { text: visible(token.text) || '∅' }));
  return make('div', { class: 'detail' }, title, alternatives(token), routing(trace, token, pick));
}

function alternatives(token) {
  const likeliest = token.top.map(({ token: text, logprob }) => ({ text, share: Math.exp(logprob) }));
  if (token.logprob !== null && !token.top.some(({ token: text }) => text === token.text)) {
    likeliest.push({ text: token.text, share: Math.exp(token.logprob) });
  }
  const line = ({ text, share }) => {
    const bar = make('span', { class: 'bar-fill' });
    bar.style.width = `${100 * share}%`;
    return make('li', { class: text === token.text ? 'is-chosen' : '' }, make('code', { text: visible(text) || '∅' }),
      make('span', { class: 'bar-track', 'aria-hidden': 'true' }, bar), make('span', { class: 'figure', text: percent(share) }));
  };
  return make('section', {}, make('h4', { text: 'Could have been' }), make('ol', { class: 'alternatives' }, ...likeliest.map(line)));
}

function routing(trace, token, pick) {
  const chip = (row, [expert, weight]) => make('button', { type: 'button', class: 'chip', title: `Mark the tokens of expert ${expert} in layer ${trace.layers[row]}`,
    on: { click: () => pick({ row, expert }) } }, make('b', { text: expert }), ` ${weight.toFixed(2)}`);
  const lines = token.rows.map((chosen, row) => make('tr', {}, make('th', { scope: 'row', text: trace.layers[row] }),
    make('td', {}, ...chosen.map((pair) => chip(row, pair)))));
  const table = make('table', { class: 'routing' }, make('thead', {}, make('tr', {}, make('th', { scope: 'col', text: 'Layer' }),
    make('th', { scope: 'col', text: 'Experts and their weights' }))), make('tbody', {}, ...lines));
  return make('section', {}, make('h4', { text: 'Its way through the layers' }), table);
}

/** The map as a table: of each layer the experts that had tokens. */
export function mapTable(trace) {
  const line = (layer, row) => {
    const used = Array.from({ length: trace.sizes[row] }, (_, expert) => [expert, trace.count(row, expert)]).filter(([, count]) => count > 0);
    used.sort((a, b) => b[1] - a[1]);
    return make('tr', {}, make('th', { scope: 'row', text: layer }), make('td', { class: 'figure', text: `${used.length} of ${trace.sizes[row]}` }),
      make('td', { text: used.map(([expert, count]) => `${expert}: ${count}`).join(', ') }));
  };
  const heads = ['Layer', 'Experts used', 'Expert: tokens'].map((text) => make('th', { scope: 'col', text }));
  return make('table', { class: 'routing' }, make('thead', {}, make('tr', {}, ...heads)), make('tbody', {}, ...trace.layers.map(line)));
}
