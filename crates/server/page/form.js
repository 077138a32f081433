// The fields by which a model is asked. An empty field leaves the choice to the settings above it, then to the server.

import { make } from './dom.js';
import { RANGES } from './ranges.js';

// The server's sampler defines the ranges of its settings.
export const NUMBERS = [
  ['temperature', 'Temperature', ...RANGES.temperature, 'any', '0 always takes the likeliest token.'],
  ['top_p', 'Top p', ...RANGES.top_p, 'any', 'Keeps the likeliest tokens up to this probability.'],
  ['top_k', 'Top k', ...RANGES.top_k, 1, 'Keeps at most this many of the likeliest tokens; 0 keeps all.'],
  ['min_p', 'Min p', ...RANGES.min_p, 'any', 'Drops tokens below this share of the likeliest.'],
  ['max_tokens', 'Most tokens', 1, 10000000, 1, 'An answer is truncated there.'],
  ['seed', 'Seed', 0, 9007199254740991, 1, 'The same seed gives the same answer.'],
];
const THINKING = [['', 'automatic'], ['on', 'on'], ['off', 'off']];

/** The fields of sampling and thinking. `values` fill them, `defaults` show what holds where they are empty. */
export function samplingFields(values, defaults) {
  return make('div', { class: 'grid' }, ...NUMBERS.map((number) => numberField(number, values, defaults)), thinkingField(values));
}

/** A field of some lines. */
export function area(name, label, hint, rows, value = '') {
  const input = make('textarea', { rows });
  input.value = value;
  return labelled(name, label, hint, input);
}

/** A field with its label and hint. */
export function labelled(name, label, hint, input) {
  input.id = `set-${name}`;
  input.name = name;
  if (hint) input.setAttribute('aria-describedby', `hint-${name}`);
  return make('div', { class: 'field' }, make('label', { for: input.id, text: label }), input,
    hint ? make('p', { class: 'muted', id: `hint-${name}`, text: hint }) : null);
}

function numberField([name, label, min, max, step, hint], values, defaults) {
  const known = defaults?.[name] || defaults?.[name] === 0 ? Number(defaults[name]) : null;
  const placeholder = known === null ? '' : String(Math.round(known * 1000) / 1000);
  const input = make('input', { type: 'number', min, max, step, placeholder, inputmode: 'decimal' });
  input.value = values[name] ?? '';
  return labelled(name, label, hint, input);
}

function thinkingField(values) {
  const input = make('select', {}, ...THINKING.map(([value, text]) => make('option', { value, text })));
  input.value = values.thinking ?? '';
  return labelled('thinking', 'Thinking', 'For models that can.', input);
}

/** Shows a form in a dialog; `save` takes its values when it is sent. */
export function openForm(dialog, form, save) {
  form.addEventListener('submit', () => save(Object.fromEntries(new FormData(form))));
  // The event comes after the dialog has closed: by then it may be open again.
  dialog.addEventListener('close', () => { if (!dialog.open) dialog.replaceChildren(); }, { once: true });
  dialog.replaceChildren(form);
  dialog.showModal();
  dialog.scrollTop = 0;
}
