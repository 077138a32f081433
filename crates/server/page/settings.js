// How the model is asked. An empty field leaves the choice to the server.

import { byId, button, make } from './dom.js';

const NAME = 'gristmill-settings';
const NUMBERS = [
  ['temperature', 'Temperature', 0, 5, 'any', '0 always takes the likeliest token.'],
  ['top_p', 'Top p', 0, 1, 'any', 'Keeps the likeliest tokens up to this probability.'],
  ['top_k', 'Top k', 0, 100000, 1, 'Keeps so many of the likeliest tokens; 0 keeps all.'],
  ['min_p', 'Min p', 0, 1, 'any', 'Drops tokens below this share of the likeliest.'],
  ['max_tokens', 'Most tokens', 1, 10000000, 1, 'An answer is cut there.'],
  ['seed', 'Seed', 0, 9007199254740991, 1, 'The same seed gives the same answer.'],
];
const CHOICES = [
  ['thinking', 'Thinking', [['', 'as the model decides'], ['on', 'on'], ['off', 'off']]],
];

let values = read();

function read() {
  try {
    return JSON.parse(localStorage.getItem(NAME)) ?? {};
  } catch {
    return {};
  }
}

export const system = () => (values.system ?? '').trim();

/** The fields of a request that the settings set. */
export function fields() {
  const found = {};
  for (const [name] of NUMBERS) if (values[name]) found[name] = Number(values[name]);
  if (values.thinking) found.enable_thinking = values.thinking === 'on';
  if (values.tools?.trim()) found.tools = JSON.parse(values.tools);
  return found;
}

/** Shows the form; `defaults` are the server's. */
export function open(defaults) {
  const element = byId('settings');
  const form = make('form', { method: 'dialog' },
    make('h2', { id: 'settings-title', text: 'Settings' }),
    area('system', 'System prompt', 'Stands before every conversation.', 4),
    make('div', { class: 'grid' },
      ...NUMBERS.map((number) => numberField(number, defaults)), ...CHOICES.map(choiceField)),
    area('tools', 'Tools', 'A list as in OpenAI’s interface, in JSON. The page shows calls and asks you for their results.', 4),
    make('div', { class: 'row-end' },
      button('Cancel', () => element.close('cancel')),
      make('button', { class: 'primary', value: 'ok', text: 'Save' })));
  const tools = form.elements.namedItem('tools');
  tools.addEventListener('input', () => tools.setCustomValidity(fault(tools.value)));
  element.replaceChildren(form);
  element.returnValue = '';
  element.showModal();
  element.addEventListener('close', () => {
    if (element.returnValue === 'ok') {
      values = Object.fromEntries(new FormData(form));
      localStorage.setItem(NAME, JSON.stringify(values));
    }
    element.replaceChildren();
  }, { once: true });
}

function fault(text) {
  if (!text.trim()) return '';
  try {
    return Array.isArray(JSON.parse(text)) ? '' : 'This is not a list.';
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}

function labelled(name, label, hint, input) {
  input.id = `set-${name}`;
  input.name = name;
  input.setAttribute('aria-describedby', `hint-${name}`);
  return make('div', { class: 'field' }, make('label', { for: input.id, text: label }), input,
    make('p', { class: 'muted', id: `hint-${name}`, text: hint }));
}

function area(name, label, hint, rows) {
  const input = make('textarea', { rows });
  input.value = values[name] ?? '';
  return labelled(name, label, hint, input);
}

function numberField([name, label, min, max, step, hint], defaults) {
  const known = defaults?.[name];
  const placeholder = known == null ? '' : String(Math.round(known * 1000) / 1000);
  const input = make('input', { type: 'number', min, max, step, placeholder, inputmode: 'decimal' });
  input.value = values[name] ?? '';
  return labelled(name, label, hint, input);
}

function choiceField([name, label, options]) {
  const input = make('select', {}, ...options.map(([value, text]) => make('option', { value, text })));
  input.value = values[name] ?? '';
  return labelled(name, label, 'For models that can.', input);
}
