// Keys, and the list of them.

import { byId, button, make } from './dom.js';
import { hasSingleKeys } from './settings.js';

const MAC = /Mac|iPhone|iPad/.test(navigator.platform);
const CONTROL = MAC ? '⌘' : 'Ctrl';

/** `keys` as they are written, `of` an event that is them, `name`, and the `act` that it starts; `single` keys can be off. */
const SHORTCUTS = [
  { keys: [CONTROL, 'Shift', 'O'], of: (event) => held(event) && event.shiftKey && event.code === 'KeyO', name: 'New conversation', act: 'begin' },
  { keys: [CONTROL, 'K'], of: (event) => held(event) && !event.shiftKey && event.code === 'KeyK', name: 'Search conversations', act: 'search' },
  { keys: ['/'], of: (event) => event.key === '/' && isFree(event), name: 'Write a message', act: 'write', single: true },
  { keys: ['Esc'], of: () => false, name: 'Stop the answer' },
  { keys: [CONTROL, ','], of: (event) => held(event) && event.key === ',', name: 'Settings', act: 'settings' },
  { keys: [CONTROL, 'Shift', 'E'], of: (event) => held(event) && event.shiftKey && event.code === 'KeyE', name: 'Experts', act: 'experts' },
  { keys: ['Enter'], of: () => false, name: 'Send the message' },
  { keys: ['Shift', 'Enter'], of: () => false, name: 'Start a new line' },
  { keys: ['↑', '↓', '←', '→'], of: () => false, name: 'Move in the map of experts and in the tokens' },
  { keys: ['?'], of: (event) => event.key === '?' && isFree(event), name: 'This list', act: 'shortcuts', single: true },
];

const held = (event) => (MAC ? event.metaKey : event.ctrlKey) && !event.altKey;

const isOn = ({ single }) => !single || hasSingleKeys();

/** Whether a key without Ctrl is not the user's text. */
const isFree = (event) => !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest?.('input, textarea, select, [contenteditable]');

/** Runs what the keys name; `acts` has a function for each. */
export function wire(acts) {
  document.addEventListener('keydown', (event) => {
    if (event.isComposing || document.querySelector('dialog[open]')) return;
    const found = SHORTCUTS.filter(isOn).find(({ act, of }) => act && of(event));
    if (!found) return;
    event.preventDefault();
    acts[found.act]();
  });
}

export function show() {
  const element = byId('shortcuts');
  const line = ({ keys, name }) => [make('dt', { text: name }), make('dd', {}, ...keys.map((key) => make('kbd', { text: key })))];
  element.replaceChildren(make('form', { method: 'dialog' }, make('h2', { id: 'shortcuts-title', text: 'Keys' }),
    make('dl', { class: 'keys' }, ...SHORTCUTS.filter(isOn).flatMap(line)), make('div', { class: 'row-end' }, button('Close', () => element.close()))));
  element.showModal();
}
