// A call of a tool: what the user can do about it, and what it returned.

import { button, make } from './dom.js';

/** `state` gives the state of the call (`runs.js`); `acts` has `result`, `run`, `stop`, `refuse` and `giveUp`. */
export class CallView {
  constructor(call, state, acts) {
    Object.assign(this, { call, state, acts, kind: null });
    this.where = make('span', { class: 'muted' });
    this.body = make('div', { class: 'call-result' });
    this.element = make('section', { class: 'call', 'aria-label': `A call of ${call.name}` },
      make('div', { class: 'call-head' }, make('span', { class: 'muted', text: 'calls' }), make('code', { text: call.name }), this.where),
      make('pre', { tabindex: '0', text: pretty(call.arguments) }), this.body);
    this.update();
  }

  update() {
    const state = this.state(this.call);
    // What the user types stays.
    if (state.kind === this.kind) return;
    this.kind = state.kind;
    this.where.textContent = state.server ? `of ${state.server}` : '';
    this.body.replaceChildren(...this[state.kind](state));
  }

  manual() {
    const input = make('textarea', { rows: 2, 'aria-label': `The result of ${this.call.name}`, placeholder: 'The result of the tool' });
    return [input, button('Send the result', () => this.acts.result(this.call, input.value))];
  }

  asks({ tool, server }) {
    const { run, refuse } = this.acts;
    return [row(make('span', { class: 'call-question', text: 'May this call run?' }),
      button('Refuse', () => refuse(this.call)),
      button(`Always allow ${tool}`, () => run(this.call, true), { class: 'secondary', title: `Calls of ${tool} of ${server} run without a question from now on` }),
      button('Allow once', () => run(this.call), { class: 'primary' }))];
  }

  runs() {
    return [row(make('span', { class: 'call-question', role: 'status', text: 'Running …' }), button('Stop', () => this.acts.stop(this.call)))];
  }

  failed({ words, server }) {
    return [row(make('span', { class: 'call-question error', role: 'alert', text: `${server} did not answer the call: ${words}.` }),
      button('Go on without it', () => this.acts.giveUp(this.call)),
      button('Try again', () => this.acts.run(this.call), { class: 'secondary' }))];
  }

  done() {
    return [];
  }
}

const row = (...children) => make('div', { class: 'call-choice' }, ...children);

/** A result that was sent. */
export const resultView = (turn) => make('article', { class: 'turn tool' },
  make('h2', { class: 'visually-hidden', text: 'Results of tools' }),
  ...turn.results.map(({ name, content }) => make('details', { class: 'file' }, make('summary', { text: `${name} returned` }),
    make('pre', { tabindex: '0', text: content }))));

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
