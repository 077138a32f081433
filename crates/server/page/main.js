// The page: wires the parts together.

import * as blank from './blank.js';
import { announce, button, byId, make } from './dom.js';
import { Chat } from './chat.js';
import { Composer } from './composer.js';
import { Context } from './context.js';
import { Experts } from './experts.js';
import { failure } from './failure.js';
import { range } from './numbers.js';
import { Models } from './models.js';
import * as presets from './presets.js';
import * as settings from './settings.js';
import { Malformed } from './shape.js';
import * as shortcuts from './shortcuts.js';
import * as sidebar from './sidebar.js';
import * as store from './store.js';
import * as tools from './tools.js';
import { download, readFile, toJson } from './transfer.js';

async function start() {
  const models = new Models({
    changed: (facts) => { showModel(facts); experts.setModel(facts); showBlank(facts); chat.context.update(); chat.composer.showHint(); },
    said: (text, kind = 'load') => chat.composer.say(text, kind),
  });
  const facts = await reached(models);
  const experts = new Experts(facts);
  const chat = new Chat(models, experts);
  const showBlank = (facts) => blank.show(facts, (text) => chat.send(text, []));
  chat.composer = new Composer({ send: (text, files) => chat.send(text, files), stop: () => chat.stop(), sees: () => chat.models.facts?.images === true,
    conversation: () => (chat.current.turns.length > 0 ? chat.current.id : ''), changed: () => chat.context.update() });
  chat.context = new Context(() => ({ facts: models.facts, turns: chat.current.turns, draft: chat.composer.draft }),
    { begin: () => chat.begin(), summarise: () => chat.summarise() });
  showModel(facts);
  showBlank(facts);
  chat.showSetup();
  const acts = {
    begin: () => { sidebar.close(); chat.begin(); },
    search: () => { sidebar.open(); byId('search').focus(); },
    write: () => byId('message').focus(),
    settings: () => settings.open(models.facts.sampling),
    experts: () => experts.isOffered && experts.toggle(),
    shortcuts: () => shortcuts.show(),
  };
  shortcuts.wire(acts);
  byId('new').addEventListener('click', acts.begin);
  byId('settings-open').addEventListener('click', acts.settings);
  byId('shortcuts-open').addEventListener('click', acts.shortcuts);
  byId('export').addEventListener('click', () => download('gristmill-conversations.json', toJson(chat.chats, presets.all()), 'application/json'));
  byId('import').addEventListener('click', () => byId('import-file').click());
  byId('import-file').addEventListener('change', ({ target }) => { const [file] = target.files; target.value = ''; if (file) take(chat, file); });
  await chat.load();
  tools.connected().then(() => chat.refreshCalls());
  if (!await store.isKept()) byId('kept').textContent = 'This browser keeps no conversations: export them before you close the page.';
  byId('message').focus();
}

/** Facts about the model that the page talks to. As long as the server cannot be asked, the page says why and offers to try again. */
async function reached(models) {
  for (;;) {
    try {
      return await models.start((text) => byId('blank').replaceChildren(make('p', { class: 'lead', role: 'status', text })));
    } catch (error) {
      byId('model').textContent = 'gristmill';
      const { words, said } = failure(error);
      await new Promise((resolve) => byId('blank').replaceChildren(
        make('div', { class: 'failure', role: 'alert' }, make('p', { text: words }), said ? make('p', { class: 'muted', text: said }) : null,
          make('div', { class: 'remedies' }, button('Try again', resolve, { class: 'primary' })))));
    }
  }
}

/** Reads a file of conversations, and says what came of it. */
async function take(chat, file) {
  try {
    const { conversations, presets: found } = await readFile(file);
    const count = await chat.take(conversations);
    if (found.length > 0) presets.keep(...found);
    const left = conversations.length - count;
    say(`${count} ${count === 1 ? 'conversation was' : 'conversations were'} imported${left > 0 ? `; ${left} ${left === 1 ? 'was' : 'were'} here already` : ''}.`);
  } catch (error) {
    say(`${error instanceof Malformed ? 'Nothing was imported' : 'The browser could not keep all of it'}: ${error.message}.`, 'fault');
  }
}

function say(text, kind = 'done') {
  byId('import-said').textContent = text;
  byId('import-said').dataset.kind = kind;
  announce(text);
}

function showModel(facts) {
  document.title = `${facts.name} · gristmill`;
  byId('model').textContent = facts.name;
  byId('bar-facts').textContent = summary(facts);
}

function summary({ format, experts, experts_per_token: perToken }) {
  const with_ = experts.filter((count) => count > 0);
  const routed = with_.length > 0 ? `${range(perToken.filter((count) => count > 0))} of ${range(with_)} experts` : null;
  return [format, routed].filter(Boolean).join(' · ');
}

start().catch((error) => {
  byId('blank').replaceChildren(make('p', { class: 'error', text: `The page failed: ${error.message}` }));
});
