// The list of conversations.

import { byId, button, make } from './dom.js';
import { title } from './conversation.js';

/** Shows the list; `open` and `remove` take a conversation. */
export function list(chats, current, { open, remove }) {
  const entry = (chat) => make('li', { class: chat.id === current?.id ? 'current' : '' },
    make('button', { type: 'button', class: 'chat', text: title(chat), title: title(chat),
      'aria-current': chat.id === current?.id ? 'true' : null, on: { click: () => { close(); open(chat); } } }),
    button('Delete', (event) => confirm(event.currentTarget, () => remove(chat)), { 'aria-label': `Delete ${title(chat)}` }));
  byId('chats').replaceChildren(...chats.filter((chat) => chat.turns.length > 0).map(entry));
}

/** A second click deletes. */
function confirm(button, act) {
  if (button.dataset.sure) return act();
  button.dataset.sure = 'yes';
  button.textContent = 'Sure?';
  button.removeAttribute('aria-label');
  setTimeout(() => { delete button.dataset.sure; button.textContent = 'Delete'; }, 3000);
}

export function close() {
  byId('app').classList.remove('side-shown');
  byId('side-open').setAttribute('aria-expanded', 'false');
}

/** On narrow screens the list is above the conversation. */
export function wire() {
  byId('side-open').addEventListener('click', () => {
    byId('app').classList.add('side-shown');
    byId('side-open').setAttribute('aria-expanded', 'true');
    byId('side-close').focus();
  });
  byId('side-close').addEventListener('click', () => { close(); byId('side-open').focus(); });
  byId('side').addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && byId('app').classList.contains('side-shown')) { close(); byId('side-open').focus(); }
  });
}
