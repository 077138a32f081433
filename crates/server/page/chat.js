// The conversation that is shown, and the answers that are written, in whichever conversation.

import { address, addressed } from './address.js';
import { byId, announce } from './dom.js';
import { resultView } from './call.js';
import { addVersion, begin, messages, modelTurn, newVersion, showVersion, shown, title, toolTurn, userTurn, writtenBy } from './conversation.js';
import { generate } from './generate.js';
import { changeKey } from './keys.js';
import { Runs } from './runs.js';
import * as settings from './settings.js';
import * as setup from './setup.js';
import { Sidebar } from './sidebar.js';
import * as store from './store.js';
import { summarise } from './summary.js';
import * as tools from './tools.js';
import { download, fileName, toJson, toMarkdown } from './transfer.js';
import { ModelView, tellEnd, userView } from './turn.js';
import { Turns } from './turns.js';

/** While an answer is written, what has come is kept this often, in milliseconds. */
const KEEP_EVERY = 1000;

export class Chat {
  constructor(models, experts) {
    /** `running` has the answers that are written, by conversation. */
    Object.assign(this, { models, experts, missing: '', chats: [], current: begin(), running: new Map() });
    this.runs = new Runs({
      done: (place, call, content) => this.result(place, call, content, place.chat.turns.at(-1) === place.turn),
      changed: ({ turn }) => this.turns.view(turn)?.update(),
    });
    this.turns = new Turns((turn) => this.view(turn));
    this.sidebar = new Sidebar({
      open: (chat, turn) => this.open(chat, turn),
      rename: (chat, name) => { chat.name = name; this.write(chat); },
      setup: (chat) => this.openSetup(chat),
      exported: (chat, ending) => this.exportOne(chat, ending),
      remove: (chat) => this.remove(chat),
    });
    store.watch((id) => this.changedElsewhere(id));
    addEventListener('popstate', () => this.openAddressed());
  }

  /** Lists what the browser has kept, and shows the conversation of the address. */
  async load() {
    const kept = await store.all();
    // What was sent meanwhile stays, and is shown.
    const here = new Set(this.chats.map(({ id }) => id));
    this.chats.push(...kept.filter(({ id }) => !here.has(id)));
    this.sort();
    if (this.current.turns.length > 0) return this.list();
    this.openAddressed();
    this.composer.showDraft();
    this.list();
  }

  /** Shows the conversation that the address names, or a new one. */
  openAddressed() {
    const found = this.chats.find(({ id }) => id === addressed());
    if (found !== undefined && found !== this.current) this.reveal(found);
    if (found === undefined && this.current.turns.length > 0) this.reveal(begin());
  }

  list() {
    this.sidebar.list(this.chats, this.current);
  }

  /** The last changed first. */
  sort() {
    this.chats.sort((a, b) => b.changed - a.changed);
  }

  begin() {
    this.open(begin());
    byId('message').focus();
  }

  /** Shows a conversation, at its end or at one of its turns. */
  open(chat, turn) {
    address(chat, 'pushState');
    this.reveal(chat, turn);
  }

  reveal(chat, turn) {
    this.current = chat;
    this.composer.showDraft();
    this.composer.setRunning(this.running.has(chat));
    this.show();
    this.list();
    if (!turn || !this.turns.reveal(turn)) this.toEnd();
  }

  /** Shows the settings of a conversation. */
  openSetup(chat = this.current) {
    setup.open(chat.setup, this.models.facts.sampling, (given) => {
      chat.setup = given;
      if (chat.turns.length > 0) this.write(chat);
      if (chat === this.current) this.showSetup();
    });
  }

  exportOne(chat, ending) {
    if (ending === 'md') download(fileName(chat, 'md'), toMarkdown(chat, this.models.facts.title || this.models.facts.name), 'text/markdown');
    else download(fileName(chat, 'json'), toJson([chat]), 'application/json');
  }

  /** Takes conversations of a file. Those that are here already are left out; the number of the others is returned. */
  async take(chats) {
    const here = new Map(this.chats.map((chat) => [chat.id, chat]));
    const fresh = chats.filter(({ id, changed }) => here.get(id)?.changed !== changed);
    for (const chat of fresh) {
      if (here.has(chat.id)) chat.id = begin().id;
      here.set(chat.id, chat);
      await store.put(chat);
      this.chats.push(chat);
    }
    this.sort();
    this.list();
    return fresh.length;
  }

  async remove(chat) {
    this.running.get(chat)?.controller.abort();
    await store.remove(chat.id);
    this.chats = this.chats.filter((other) => other.id !== chat.id);
    if (chat.id === this.current.id) this.begin();
    else this.list();
  }

  /** Another tab has kept or removed a conversation. What this one is writing is not replaced. */
  async changedElsewhere(id) {
    const known = this.chats.find((chat) => chat.id === id);
    if (known && this.running.has(known)) return;
    const kept = await store.get(id);
    this.chats = this.chats.filter((chat) => chat.id !== id);
    if (kept) this.chats.push(kept);
    this.sort();
    if (kept && this.current.id === id) {
      this.current = kept;
      this.show();
    }
    this.list();
  }

  keep(chat = this.current) {
    chat.changed = Date.now();
    if (!this.chats.includes(chat)) this.chats.push(chat);
    this.sort();
    this.write(chat);
    this.list();
  }

  async write(chat) {
    try {
      if (await store.put(chat)) return;
      // Another tab went on with this conversation: both are kept.
      Object.assign(chat, { name: `${title(chat)} (of this tab)`, id: begin().id, revision: 0 });
      await store.put(chat);
      this.list();
    } catch (error) {
      announce(`The browser cannot keep the conversation: ${error.message}`);
    }
  }

  /** Whether the text was taken. */
  send(text, files) {
    // A conversation keeps the system prompt that it began with.
    if (this.current.turns.length === 0) this.current.setup = { system: settings.system(), ...this.current.setup };
    this.current.turns.push(userTurn(text, files));
    address(this.current, 'replaceState');
    this.answer(modelTurn());
    return true;
  }

  /** Asks for another version of an answer. */
  again(turn) {
    this.stop();
    this.answer(turn);
  }

  /** Goes on with an answer that has ended before its end. */
  proceed(turn) {
    this.stop();
    this.answer(turn, { continued: true });
  }

  /** What a failed answer offers to do. */
  remedy(name, turn) {
    const remedies = {
      again: () => this.again(turn),
      continue: () => this.proceed(turn),
      key: async () => { if (await changeKey()) this.again(turn); },
      begin: () => this.begin(),
      settings: () => settings.open(this.models.facts.sampling),
      reload: () => location.reload(),
    };
    remedies[name]();
  }

  /** Asks with another version of a message. */
  edit(turn, text) {
    this.stop();
    addVersion(this.current, turn, { text, files: shown(turn).files });
    this.answer(modelTurn());
  }

  /** Shows another version of a turn. */
  turnTo(turn, number) {
    this.stop();
    showVersion(this.current, turn, number);
    this.keep();
    this.show();
  }

  /** Takes the result of a call; when all calls of an answer have one, the model goes on, if it still may. */
  result({ chat, turn, version }, call, content, mayGoOn = true) {
    version.results = { ...version.results, [call.id]: content };
    this.turns.view(turn)?.update();
    // The conversation may have gone on, or away, while a call ran.
    if (!this.chats.includes(chat)) return;
    this.write(chat);
    if (!mayGoOn || shown(turn) !== version || !chat.turns.includes(turn) || this.running.has(chat)) return;
    if (!version.calls.every(({ id }) => Object.hasOwn(version.results, id))) return announce('The other calls wait for their results.');
    chat.turns.length = chat.turns.indexOf(turn) + 1;
    chat.turns.push(toolTurn(version.calls.map(({ id, name }) => ({ id, name, content: version.results[id] }))));
    this.answer(modelTurn(), { chat });
  }

  async answer(turn, { continued = false, chat = this.current } = {}) {
    if (!chat.turns.includes(turn)) chat.turns.push(turn);
    const before = chat.turns.slice(0, chat.turns.indexOf(turn));
    const version = continued ? shown(turn) : newVersion();
    if (continued) Object.assign(version, { finish: null, failure: null });
    else addVersion(chat, turn, version);
    const running = { controller: new AbortController(), turn, kept: Date.now() };
    this.running.set(chat, running);
    this.keep(chat);
    if (chat === this.current) {
      this.composer.setRunning(true);
      this.show();
      this.toEnd();
    }
    let trace = null;
    const begin = async () => {
      const facts = await this.models.ready(running.controller.signal);
      writtenBy(version, facts.name);
      trace = continued ? this.experts.resume(version, facts) : this.experts.begin(version, label(before), facts);
      return { facts, trace, tools: await this.offered(facts) };
    };
    const changed = () => { this.grown(chat, running); if (trace) this.experts.redraw(); };
    const progress = (state) => { running.progress = state; if (chat === this.current) this.turns.view(turn)?.showProgress(state); };
    try {
      await generate({
        begin, messages: messages(continued ? [...before, turn] : before, this.system(chat), continued), setup: chat.setup,
        continued, version, signal: running.controller.signal, changed, progress,
      });
    } finally {
      if (trace) this.experts.end();
      this.finish(chat, turn, version, running);
    }
  }

  /** The tools that a model is offered. Of a server that does not answer, the user hears. */
  async offered(facts) {
    if (!facts.chat_template) return [];
    await tools.connected();
    const missing = tools.all().filter(({ isOn, fault }) => isOn && fault);
    this.missing = missing.map((server) => `Without the tools of ${tools.nameOf(server)}: ${server.fault}.`).join(' ');
    return [...settings.tools(), ...tools.definitions()];
  }

  /** Goes on in a new conversation, whose first message has a summary of this one and waits for the user. */
  async summarise() {
    const chat = this.current;
    if (this.running.has(chat)) return;
    const running = { controller: new AbortController() };
    const { signal } = running.controller;
    this.running.set(chat, running);
    this.composer.setRunning(true);
    const grown = (length) => { if (chat === this.current) this.composer.hint(`Writing a summary: ${length} characters. Esc stops.`, 'load'); };
    const { text, fault } = await summarise({ turns: chat.turns, system: this.system(chat), setup: chat.setup, ready: () => this.models.ready(signal), signal, grown });
    if (this.running.get(chat) === running) this.running.delete(chat);
    if (chat !== this.current || this.running.has(chat)) return;
    this.composer.setRunning(false);
    if (fault) return this.composer.say(fault);
    this.open({ ...begin(), name: `${title(chat)} (continued)`, setup: { ...chat.setup } });
    this.composer.write(text);
    byId('message').focus();
  }

  system(chat) {
    return (chat.setup.system ?? settings.system()).trim();
  }

  /** More of an answer has come. */
  grown(chat, running) {
    if (chat === this.current) this.refresh(running.turn);
    if (Date.now() - running.kept < KEEP_EVERY) return;
    running.kept = Date.now();
    this.write(chat);
  }

  finish(chat, turn, version, running) {
    const isLast = this.running.get(chat) === running;
    if (isLast) this.running.delete(chat);
    if (this.chats.includes(chat)) this.write(chat);
    if (isLast && version.finish === 'tool_calls') this.runs.begin({ chat, turn, version });
    if (chat !== this.current) return announce(`The answer in “${title(chat)}” is complete.`);
    const follows = this.isAtEnd();
    this.turns.view(turn)?.update();
    this.context.update();
    if (follows) this.toEnd();
    tellEnd(version);
    this.composer.setRunning(this.running.has(chat));
    if (this.missing) this.composer.say(this.missing);
  }

  /** Calls may be of tools that are known only now. */
  refreshCalls() {
    for (const turn of this.current.turns) if (turn.role === 'model') this.turns.view(turn)?.update();
  }

  /** Shows a growing answer at most every 60 ms, and long ones less often: Markdown is read as a whole each time. */
  refresh(turn) {
    const view = this.turns.view(turn);
    if (!view || view.timer) return;
    const pause = Math.max(60, shown(turn).text.length / 100);
    view.timer = setTimeout(() => {
      view.timer = null;
      const follows = this.isAtEnd();
      if (shown(turn).finish === null) view.update();
      if (follows) this.toEnd();
    }, pause);
  }

  /** Ends the answer of the conversation that is shown. */
  stop() {
    this.running.get(this.current)?.controller.abort();
  }

  show() {
    byId('blank').hidden = this.current.turns.length > 0;
    this.showSetup();
    this.turns.show(this.current.turns);
    this.context.update();
    const running = this.running.get(this.current);
    if (running) this.turns.view(running.turn)?.showProgress(running.progress ?? null);
  }

  showSetup() {
    byId('setup-line').replaceChildren(setup.line(this.current.setup, () => this.openSetup()));
  }

  /** The view of a turn: an object with its element, and with `update` for an answer. */
  view(turn) {
    if (turn.role === 'tool') return { element: resultView(turn) };
    const turnTo = (number) => this.turnTo(turn, number);
    if (turn.role === 'user') return { element: userView(turn, { edit: (text) => this.edit(turn, text), turnTo }) };
    return new ModelView(turn, {
      name: this.models.facts.name,
      experts: this.experts,
      remedy: (name) => this.remedy(name, turn),
      isLast: () => this.current.turns.at(-1) === turn,
      turnTo,
      callState: (call) => this.runs.state(shown(turn), call),
      callActs: this.callActs(turn),
    });
  }

  /** What the user can do about the calls of an answer. */
  callActs(turn) {
    const place = () => ({ chat: this.current, turn, version: shown(turn) });
    return {
      result: (call, content) => this.result(place(), call, content),
      run: (call, always) => this.runs.run(place(), call, always),
      stop: (call) => this.runs.stop(call),
      refuse: (call) => this.runs.refuse(place(), call),
      giveUp: (call) => this.runs.giveUp(place(), call),
    };
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
