// How the model is asked in all conversations, and the theme.

import { byId, button, make } from './dom.js';
import { area, labelled, NUMBERS, openForm, samplingFields } from './form.js';
import { serversField } from './servers.js';

const NAME = 'gristmill-settings';
const THEMES = [['system', 'System'], ['light', 'Light'], ['dark', 'Dark']];
const SINGLE_KEYS = [['', 'on'], ['off', 'off']];

let values = read();

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(NAME));
    return Object.fromEntries(Object.entries(found ?? {}).filter(([, value]) => typeof value === 'string'));
  } catch {
    return {};
  }
}

/** The system prompt of new conversations. */
export const system = () => (values.system ?? '').trim();

/** Whether shortcuts of one key are on; speech input and other tools that type can start them by mistake. */
export const hasSingleKeys = () => values.single_keys !== 'off';

/** The values of fields that are set, as they are shown where a conversation sets none. */
export const set = () => Object.fromEntries(Object.entries(values).filter(([, value]) => value));

/** The fields of a request that these settings and those of a conversation set. */
export function fields(setup = {}) {
  const all = { ...values, ...Object.fromEntries(Object.entries(setup).filter(([, value]) => value)) };
  const found = {};
  for (const [name] of NUMBERS) if (all[name]) found[name] = Number(all[name]);
  if (all.thinking) found.enable_thinking = all.thinking === 'on';
  return found;
}

/** The tools whose results the user gives. */
export const tools = () => (values.tools?.trim() ? JSON.parse(values.tools) : []);

/** Shows the form; `defaults` are the server's. */
export function open(defaults) {
  const element = byId('settings');
  const form = make('form', { method: 'dialog' },
    make('h2', { id: 'settings-title', text: 'Settings' }),
    themes(),
    area('system', 'System prompt of new conversations', 'A conversation keeps its own, which can be changed there.', 4, values.system),
    make('h3', { text: 'Sampling in all conversations' }),
    samplingFields(values, defaults),
    area('tools', 'Tools', 'A list as in OpenAI’s interface, in JSON. The page shows calls and asks you for their results.', 4, values.tools),
    serversField(),
    singleKeys(),
    make('div', { class: 'row-end' },
      button('Cancel', () => element.close()),
      make('button', { class: 'primary', text: 'Save' })));
  const tools = form.elements.namedItem('tools');
  const check = () => tools.setCustomValidity(fault(tools.value));
  tools.addEventListener('input', check);
  check();
  openForm(element, form, ({ theme, ...given }) => {
    values = given;
    localStorage.setItem(NAME, JSON.stringify(values));
  });
}

function singleKeys() {
  const input = make('select', {}, ...SINGLE_KEYS.map(([value, text]) => make('option', { value, text })));
  input.value = values.single_keys ?? '';
  return labelled('single_keys', 'Shortcuts of one key', '/ goes to the message, ? lists all keys.', input);
}

/** The theme changes at once. */
function themes() {
  const chosen = document.documentElement.dataset.theme ?? 'system';
  const choice = ([value, text]) => {
    const input = make('input', { type: 'radio', name: 'theme', value, checked: value === chosen,
      on: { change: () => document.dispatchEvent(new CustomEvent('set-theme', { detail: value })) } });
    return make('label', {}, input, make('span', { text }));
  };
  return make('fieldset', { class: 'segments' }, make('legend', { text: 'Theme' }), make('div', {}, ...THEMES.map(choice)));
}

function fault(text) {
  if (!text.trim()) return '';
  try {
    return Array.isArray(JSON.parse(text)) ? '' : 'This is not a list.';
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}
