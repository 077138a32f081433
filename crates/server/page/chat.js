// The conversation that is shown, and its answers.

import { byId, announce } from './dom.js';
import { resultView } from './call.js';
import { begin, messages, modelTurn, newVersion, shown, title, toolTurn, userTurn } from './conversation.js';
import { generate } from './generate.js';
import * as settings from './settings.js';
import * as sidebar from './sidebar.js';
import * as store from './store.js';
import { ModelView, tellEnd, userView } from './turn.js';

export class Chat {
  constructor(facts, experts) {
    Object.assign(this, { facts, experts, chats: [], current: begin(), running: null, views: [] });
  }

  /** Lists what the browser has kept. */
  async load() {
    this.chats = await store.all();
    this.list();
  }

  list() {
    sidebar.list(this.chats, this.current, { open: (chat) => this.open(chat), remove: (chat) => this.remove(chat) });
  }

  begin() {
    this.open(begin());
    byId('message').focus();
  }

  open(chat) {
    this.stop();
    this.current = chat;
    this.show();
    this.list();
    this.toEnd();
  }

  async remove(chat) {
    await store.remove(chat.id);
    this.chats = this.chats.filter((other) => other.id !== chat.id);
    if (chat.id === this.current.id) this.begin();
    else this.list();
  }

  keep() {
    const chat = this.current;
    chat.changed = Date.now();
    if (!this.chats.includes(chat)) this.chats.unshift(chat);
    store.put(chat).catch((error) => announce(`The browser cannot keep the conversation: ${error.message}`));
    this.list();
  }

  /** Whether the text was taken. */
  send(text, files) {
    this.current.turns.push(userTurn(text, files));
    this.answer(modelTurn());
    return true;
  }

  /** Asks for a new version of an answer; what follows it goes. */
  again(turn) {
    this.stop();
    this.cut(turn);
    this.answer(turn);
  }

  edit(turn, text) {
    this.stop();
    this.cut(turn);
    turn.text = text;
    this.current.turns[this.current.turns.length - 1] = turn;
    this.answer(modelTurn());
  }

  /** Leaves out what follows a turn. */
  cut(turn) {
    this.current.turns.length = this.current.turns.indexOf(turn) + 1;
  }

  /** Takes the result of a call; when all calls of the turn have one, the model goes on. */
  result(turn, call, content) {
    const version = shown(turn);
    version.results = { ...version.results, [call.id]: content };
    if (!version.calls.every(({ id }) => id in version.results)) return announce('The other calls wait for their results.');
    this.cut(turn);
    this.current.turns.push(toolTurn(version.calls.map(({ id, name }) => ({ id, name, content: version.results[id] }))));
    this.answer(modelTurn());
  }

  async answer(turn) {
    const version = newVersion();
    const { turns } = this.current;
    if (!turns.includes(turn)) turns.push(turn);
    turn.shown = turn.versions.push(version) - 1;
    const before = turns.slice(0, turns.indexOf(turn));
    const running = { controller: new AbortController() };
    this.running = running;
    this.composer.setRunning(true);
    const chat = this.current;
    this.keep();
    this.show();
    this.toEnd();
    const trace = this.experts.begin(version, label(before));
    const view = this.views.at(-1);
    try {
      const changed = () => { this.refresh(view); if (trace) this.experts.redraw(); };
      await generate({ facts: this.facts, messages: messages(before, settings.system()), version, trace, signal: running.controller.signal, changed });
    } finally {
      if (trace) this.experts.end();
      this.finish(chat, view, version, running);
    }
  }

  finish(chat, view, version, running) {
    view.update();
    tellEnd(version);
    if (this.chats.includes(chat)) store.put(chat).catch(() => {});
    if (this.running !== running) return;
    this.running = null;
    this.composer.setRunning(false);
  }

  /** Shows a growing answer at most every 60 ms, and long ones less often: Markdown is read as a whole each time. */
  refresh(view) {
    if (view.timer) return;
    const pause = Math.max(60, shown(view.turn).text.length / 100);
    view.timer = setTimeout(() => {
      view.timer = null;
      const follows = this.isAtEnd();
      if (shown(view.turn).finish === null) view.update();
      if (follows) this.toEnd();
    }, pause);
  }

  stop() {
    this.running?.controller.abort();
  }

  show() {
    const { turns } = this.current;
    byId('blank').hidden = turns.length > 0;
    this.views = [];
    byId('turns').replaceChildren(...turns.map((turn) => this.view(turn)));
  }

  view(turn) {
    if (turn.role === 'user') return userView(turn, { edit: (text) => this.edit(turn, text) });
    if (turn.role === 'tool') return resultView(turn);
    const view = new ModelView(turn, {
      name: this.facts.name,
      experts: this.experts,
      again: () => this.again(turn),
      turnTo: (number) => { turn.shown = number; this.keep(); this.show(); },
      result: (call, content) => this.result(turn, call, content),
    });
    this.views.push(view);
    return view.element;
  }

  isAtEnd() {
    const scroll = byId('scroll');
    return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
  }

  toEnd() {
    byId('scroll').scrollTop = byId('scroll').scrollHeight;
  }
}

/** The words of a prompt that name its map. */
function label(turns) {
  const text = title({ turns: turns.filter((turn) => turn.role === 'user').slice(-1) });
  return text.length > 48 ? `${text.slice(0, 47)}…` : text;
}
