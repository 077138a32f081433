// The view of one turn.

import { announce, button, copy, make } from './dom.js';
import { bytes } from './numbers.js';
import { shown } from './conversation.js';
import { callView } from './call.js';
import { render } from './markdown.js';
import { facts } from './speed.js';

/** A turn of the user, who can edit it. */
export function userView(turn, { edit, turnTo }) {
  const { text, files: attached } = shown(turn);
  const said = make('div', { class: 'said', text });
  const files = attached.map((file) => make('details', { class: 'file' },
    make('summary', { text: `${file.name} · ${bytes(file.text.length)}` }), make('pre', { tabindex: '0', text: file.text })));
  const element = make('article', { class: 'turn user' }, make('h2', { class: 'visually-hidden', text: 'You' }), ...files,
    text ? said : null);
  const leave = () => element.replaceWith(userView(turn, { edit, turnTo }));
  const actions = make('div', { class: 'actions' }, ...pages(turn, turnTo),
    button('Edit', () => element.replaceChildren(editor(text, edit, leave))),
    button('Copy', (event) => copy(text, event.currentTarget)));
  element.append(actions);
  return element;
}

/** The buttons that turn to other versions of a turn, if there are any. */
function pages({ versions, shown: at }, turnTo) {
  if (versions.length < 2) return [];
  return [
    button('‹', () => turnTo(at - 1), { disabled: at === 0, 'aria-label': 'The version before' }),
    make('span', { class: 'muted', text: `${at + 1} of ${versions.length}` }),
    button('›', () => turnTo(at + 1), { disabled: at === versions.length - 1, 'aria-label': 'The next version' }),
  ];
}

function editor(text, edit, cancel) {
  const input = make('textarea', { class: 'edit', rows: Math.min(12, text.split('\n').length + 1), 'aria-label': 'Your message' });
  input.value = text;
  const form = make('form', { on: { submit: (event) => { event.preventDefault(); edit(input.value); } } }, input,
    make('div', { class: 'row-end' }, button('Cancel', cancel), make('button', { class: 'primary', text: 'Ask again' })));
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') cancel();
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  });
  requestAnimationFrame(() => input.focus());
  return form;
}

/** A turn of the model. `update` shows what has come since. */
export class ModelView {
  constructor(turn, { name, again, turnTo, result, experts }) {
    Object.assign(this, { turn, again, turnTo, experts });
    this.reasoning = make('details', { class: 'reasoning', hidden: true }, make('summary'), make('div', { class: 'prose' }));
    this.prose = make('div', { class: 'prose' });
    this.calls = make('div', { class: 'calls' });
    this.error = make('p', { class: 'error', role: 'alert', hidden: true });
    this.foot = make('footer', { class: 'foot' });
    this.result = result;
    this.element = make('article', { class: 'turn model' }, make('h2', { class: 'visually-hidden', text: name }),
      this.reasoning, this.prose, this.calls, this.error, this.foot);
    this.update();
  }

  update() {
    const version = shown(this.turn);
    const running = version.finish === null;
    this.element.setAttribute('aria-busy', String(running));
    this.element.classList.toggle('waits', running && !version.text && !version.reasoning);
    this.showReasoning(version, running);
    this.prose.replaceChildren(render(version.text));
    if (this.calls.childElementCount !== version.calls.length) {
      this.calls.replaceChildren(...version.calls.map((call) => callView(call, this.result)));
    }
    this.error.hidden = !version.error;
    this.error.textContent = version.error ?? '';
    if (running) this.foot.replaceChildren();
    else this.showFoot(version);
  }

  showReasoning(version, running) {
    this.reasoning.hidden = !version.reasoning;
    const [summary, prose] = this.reasoning.children;
    summary.textContent = running && !version.text ? 'Thinking…' : 'Reasoning';
    if (this.reasoning.open || !running) prose.replaceChildren(render(version.reasoning));
    else this.reasoning.ontoggle = () => prose.replaceChildren(render(shown(this.turn).reasoning));
  }

  showFoot(version) {
    const actions = make('div', { class: 'actions' }, ...pages(this.turn, this.turnTo),
      button('Copy', (event) => copy(version.text, event.currentTarget)), button('Again', this.again),
      this.experts?.has(version) ? button('Experts', () => this.experts.show(version)) : null);
    this.foot.replaceChildren(facts(version), actions);
  }
}

/** Tells how an answer ended. */
export function tellEnd(version) {
  const ends = { stop: 'The answer is complete.', length: 'The answer was cut by a limit.', stopped: 'The answer was stopped.',
    tool_calls: 'The model calls a tool.' };
  announce(ends[version.finish] ?? `The answer failed. ${version.error ?? ''}`);
}
