// The list of conversations: by day, searched, each with its actions.

import { byId, button, isEnter, make } from './dom.js';
import { title } from './conversation.js';
import { find } from './search.js';

const DAY = 24 * 3600 * 1000;

export class Sidebar {
  /** `actions` has `open`, `rename`, `setup`, `exported` and `remove`, which take a conversation. */
  constructor(actions) {
    Object.assign(this, { actions, chats: [], current: null, unfolded: null, renamed: null });
    this.search = byId('search');
    this.search.addEventListener('input', () => this.draw());
    this.search.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.search.value) { event.stopPropagation(); this.search.value = ''; this.draw(); }
      if (isEnter(event)) byId('chats').querySelector('.chat')?.click();
    });
    byId('side-open').addEventListener('click', () => { open(); byId('side-close').focus(); });
    byId('side-close').addEventListener('click', () => { close(); byId('side-open').focus(); });
    byId('side').addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && isShown()) { close(); byId('side-open').focus(); }
    });
  }

  list(chats, current) {
    Object.assign(this, { chats, current });
    this.draw();
  }

  draw() {
    // Who types a name is not interrupted by an answer that is kept meanwhile.
    if (this.renamed) return;
    const found = find(this.chats.filter((chat) => chat.turns.length > 0), this.search.value);
    const focused = document.activeElement?.closest?.('.chats [data-focus]')?.dataset.focus;
    byId('chats').replaceChildren(...[...grouped(found)].map(([name, entries]) => make('li', { class: 'day' }, make('h2', { text: name }),
      make('ul', {}, ...entries.map((entry) => this.entry(entry))))));
    byId('chats-none').hidden = found.length > 0;
    byId('chats-none').textContent = this.search.value.trim() ? 'No conversation has these words.' : 'Conversations are listed here.';
    if (focused) byId('chats').querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  entry({ chat, turn, snippet }) {
    const current = chat.id === this.current?.id;
    const unfolded = this.unfolded === chat.id;
    const name = make('button', { type: 'button', class: 'chat', title: title(chat), data: { focus: `chat ${chat.id}` },
      'aria-current': current ? 'true' : null, on: { click: () => { close(); this.actions.open(chat, turn); } } },
    make('span', { class: 'chat-title', dir: 'auto', text: title(chat) }), snippet ? found(snippet) : null);
    const more = make('button', { type: 'button', class: 'more', text: '⋯', 'aria-label': `Actions for ${title(chat)}`, data: { focus: `more ${chat.id}` },
      'aria-expanded': String(unfolded), on: { click: () => { this.unfolded = unfolded ? null : chat.id; this.draw(); } } });
    return make('li', { class: [current && 'current', unfolded && 'unfolded'].filter(Boolean).join(' ') }, name, more, unfolded ? this.menu(chat) : null);
  }

  menu(chat) {
    const { setup, exported, remove } = this.actions;
    const then = (act) => () => { this.unfolded = null; this.draw(); act(); };
    return make('div', { class: 'chat-actions' },
      button('Rename', then(() => this.rename(chat))),
      button('Settings', then(() => setup(chat))),
      button('Export', then(() => exported(chat, 'json')), { title: 'A JSON file with all versions' }),
      button('Markdown', then(() => exported(chat, 'md')), { title: 'A Markdown file of what is shown' }),
      button('Delete', (event) => confirm(event.currentTarget, () => { this.unfolded = null; remove(chat); }), { class: 'quiet danger' }));
  }

  rename(chat) {
    const name = [...byId('chats').querySelectorAll('.chat')].find(({ dataset }) => dataset.focus === `chat ${chat.id}`);
    const input = this.nameField(chat);
    this.renamed = chat.id;
    name?.parentElement.replaceChildren(input);
    input.focus();
    input.select();
  }

  nameField(chat) {
    const input = make('input', { class: 'rename', dir: 'auto', 'aria-label': 'Name of the conversation', maxlength: 200, autocomplete: 'off' });
    input.value = title(chat);
    const leave = (keep) => {
      if (this.renamed !== chat.id) return;
      this.renamed = null;
      if (keep) this.actions.rename(chat, input.value.trim());
      this.draw();
    };
    input.addEventListener('keydown', (event) => {
      if (isEnter(event)) leave(true);
      if (event.key === 'Escape') { event.stopPropagation(); leave(false); }
    });
    input.addEventListener('blur', () => leave(true));
    return input;
  }
}

const found = ([before, words, after]) => make('span', { class: 'snippet', dir: 'auto' }, before, make('mark', { text: words }), after);

function day(changed) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (changed >= midnight) return 'Today';
  if (changed >= midnight - DAY) return 'Yesterday';
  return changed >= midnight - 7 * DAY ? 'Last 7 days' : 'Earlier';
}

function grouped(found) {
  const groups = new Map();
  for (const entry of found) groups.set(day(entry.chat.changed), [...groups.get(day(entry.chat.changed)) ?? [], entry]);
  return groups;
}

/** A second click deletes. */
function confirm(button, act) {
  if (button.dataset.sure) return act();
  button.dataset.sure = 'yes';
  button.textContent = 'Delete for good?';
  setTimeout(() => { delete button.dataset.sure; button.textContent = 'Delete'; }, 4000);
}

const isShown = () => byId('app').classList.contains('side-shown');

/** On narrow screens the list is above the conversation. */
export function open() {
  byId('app').classList.add('side-shown');
  byId('side-open').setAttribute('aria-expanded', 'true');
}

export function close() {
  byId('app').classList.remove('side-shown');
  byId('side-open').setAttribute('aria-expanded', 'false');
}
