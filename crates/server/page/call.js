// A call of a tool, and the field for its result.

import { button, make } from './dom.js';

/** `result` takes the call and the text that the tool gave. */
export function callView(call, result) {
  const input = make('textarea', { rows: 2, 'aria-label': `The result of ${call.name}`, placeholder: 'The result of the tool' });
  const form = make('div', { class: 'call-result' }, input, button('Send the result', () => result(call, input.value)));
  return make('section', { class: 'call', 'aria-label': `A call of ${call.name}` },
    make('div', { class: 'call-head' }, make('span', { class: 'muted', text: 'calls' }), make('code', { text: call.name })),
    make('pre', { tabindex: '0', text: pretty(call.arguments) }), form);
}

/** A result that was sent. */
export const resultView = (turn) => make('article', { class: 'turn tool' },
  make('h2', { class: 'visually-hidden', text: 'Results of tools' }),
  ...turn.results.map(({ name, content }) => make('details', { class: 'file' }, make('summary', { text: `${name} returned` }),
    make('pre', { tabindex: '0', text: content }))));

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
