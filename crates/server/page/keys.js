// The key of the server, kept until the tab is closed.

import { byId, button, make } from './dom.js';

const NAME = 'gristmill-key';
let waiting = null;

export const key = () => sessionStorage.getItem(NAME) ?? '';

/** Asks for a key. Whether there is one; several requests wait for one answer. */
export function askKey(reason) {
  waiting ??= dialog(reason).finally(() => { waiting = null; });
  return waiting;
}

/** Lets the user give another key, after one was not taken. */
export const changeKey = () => askKey('Give one of the keys that the server was started with.');

function dialog(reason) {
  const element = byId('key');
  const input = make('input', { id: 'key-input', type: 'password', autocomplete: 'off', required: true });
  const form = make('form', { method: 'dialog' },
    make('h2', { id: 'key-title', text: 'This server asks for a key' }),
    make('p', { class: 'muted', text: reason }),
    make('label', { for: 'key-input', text: 'Key' }), input,
    make('p', { class: 'muted', text: 'Kept until this tab is closed.' }),
    make('div', { class: 'row-end' },
      button('Cancel', () => element.close('cancel')),
      make('button', { class: 'primary', value: 'ok', text: 'Use this key' })));
  element.replaceChildren(form);
  element.returnValue = '';
  element.showModal();
  return new Promise((resolve) => {
    element.addEventListener('close', () => {
      const given = element.returnValue === 'ok' && input.value.trim();
      if (given) sessionStorage.setItem(NAME, given);
      element.replaceChildren();
      resolve(Boolean(given));
    }, { once: true });
  });
}
