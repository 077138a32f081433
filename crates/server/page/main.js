// The page: wires the parts together.

import { ask } from './api.js';
import * as blank from './blank.js';
import { byId } from './dom.js';
import { Chat } from './chat.js';
import { Composer } from './composer.js';
import { Experts } from './experts.js';
import { range } from './numbers.js';
import * as settings from './settings.js';
import * as sidebar from './sidebar.js';

async function start() {
  const facts = await (await ask('model')).json();
  document.title = `${facts.name} · gristmill`;
  byId('model').textContent = facts.name;
  byId('bar-facts').textContent = summary(facts);
  blank.show(facts);
  const chat = new Chat(facts, new Experts(facts));
  chat.composer = new Composer({ send: (text, files) => chat.send(text, files), stop: () => chat.stop() });
  sidebar.wire();
  byId('new').addEventListener('click', () => { sidebar.close(); chat.begin(); });
  byId('settings-open').addEventListener('click', () => settings.open(facts.sampling));
  await chat.load();
  byId('message').focus();
}

function summary({ format, experts, experts_per_token: perToken }) {
  const with_ = experts.filter((count) => count > 0);
  const routed = with_.length > 0 ? `${range(perToken.filter((count) => count > 0))} of ${range(with_)} experts` : null;
  return [format, routed].filter(Boolean).join(' · ');
}

start().catch((error) => {
  byId('model').textContent = 'gristmill';
  byId('blank').textContent = `The server cannot be asked: ${error.message}`;
});
