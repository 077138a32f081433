// The view of one turn.

import { announce, button, copy, isEnter, make } from './dom.js';
import { label } from './composer.js';
import { canContinue, shown } from './conversation.js';
import { REMEDIES } from './failure.js';
import { CallView } from './call.js';
import { render, renderInto } from './markdown.js';
import { facts } from './speed.js';

/** A turn of the user, who can edit it. */
export function userView(turn, { edit, turnTo }) {
  const { text, files: attached } = shown(turn);
  const said = make('div', { class: 'said', dir: 'auto', text });
  const files = attached.map((file) => (file.image
    ? make('img', { class: 'attached', src: file.image, alt: file.name })
    : make('details', { class: 'file' }, make('summary', { text: label(file) }), make('pre', { tabindex: '0', text: file.text }))));
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
  const input = make('textarea', { class: 'edit', dir: 'auto', rows: Math.min(12, text.split('\n').length + 1), 'aria-label': 'Your message' });
  input.value = text;
  const form = make('form', { on: { submit: (event) => { event.preventDefault(); edit(input.value); } } }, input,
    make('div', { class: 'row-end' }, button('Cancel', cancel), make('button', { class: 'primary', text: 'Ask again' })));
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') cancel();
    if (isEnter(event) && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); }
  });
  requestAnimationFrame(() => input.focus());
  return form;
}

/** What can be done about an answer that failed. */
const REMEDY = { again: 'Try again', continue: 'Continue', key: 'Enter a key', begin: 'New conversation', settings: 'Open the settings', reload: 'Load the page again' };

/**
 * A turn of the model; `name` is shown where an answer does not name its own. `update` shows what has come since; `remedy` takes the name of what the user wants to do. */
export class ModelView {
  constructor(turn, { name, remedy, turnTo, callState, callActs, experts, isLast }) {
    Object.assign(this, { turn, name, remedy, turnTo, experts, isLast });
    this.reasoning = make('details', { class: 'reasoning', hidden: true }, make('summary'), make('div', { class: 'prose' }));
    this.prose = make('div', { class: 'prose' });
    this.calls = make('div', { class: 'calls' });
    this.progress = make('div', { class: 'progress', hidden: true }, make('span'), make('progress', { max: 1, 'aria-label': 'Tokens of the prompt that are read' }));
    this.failure = make('div', { class: 'failure', role: 'alert', hidden: true });
    this.foot = make('footer', { class: 'foot' });
    Object.assign(this, { callState, callActs, callViews: [] });
    this.head = make('h2', { class: 'visually-hidden' });
    this.element = make('article', { class: 'turn model' }, this.head,
      this.reasoning, this.prose, this.calls, this.progress, this.failure, this.foot);
    this.update();
  }

  update() {
    const version = shown(this.turn);
    const running = version.finish === null;
    this.element.setAttribute('aria-busy', String(running));
    this.element.classList.toggle('waits', running && !version.text && !version.reasoning);
    this.head.textContent = version.model || this.name;
    this.showReasoning(version, running);
    renderInto(this.prose, version.text);
    if (this.callViews.length !== version.calls.length) {
      this.callViews = version.calls.map((call) => new CallView(call, this.callState, this.callActs));
      this.calls.replaceChildren(...this.callViews.map(({ element }) => element));
    }
    // Calls wait for the end of the answer.
    this.calls.inert = running;
    for (const view of this.callViews) view.update();
    this.showFailure(version);
    if (running) this.foot.replaceChildren();
    else this.showFoot(version);
  }

  /** How far the prompt is read: { text, share }, or null. */
  showProgress(state) {
    this.progress.hidden = !state;
    if (!state) return;
    const [text, bar] = this.progress.children;
    text.textContent = state.text;
    bar.hidden = state.share === null;
    bar.value = state.share ?? 0;
  }

  showFailure(version) {
    const { failure } = version;
    this.failure.hidden = !failure;
    if (!failure) return this.failure.replaceChildren();
    const names = (REMEDIES[failure.kind] ?? REMEDIES.failed).filter((name) => name !== 'continue' || this.canContinue(version));
    this.failure.replaceChildren(make('p', { text: failure.words }),
      ...(failure.said && failure.said !== failure.words ? [make('p', { class: 'muted', text: `The server says: ${failure.said}` })] : []),
      make('div', { class: 'remedies' }, ...names.map((name, index) => button(REMEDY[name], () => this.remedy(name), { class: index === 0 ? 'primary' : 'secondary' }))));
  }

  /** What follows an answer was said to it as it is, so only the last one goes on. */
  canContinue(version) {
    return this.isLast() && canContinue(version);
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
      version.text ? button('Copy', (event) => copy(version.text, event.currentTarget)) : null,
      this.canContinue(version) && !version.failure ? button('Continue', () => this.remedy('continue')) : null,
      version.failure ? null : button('Again', () => this.remedy('again'), { title: 'Another version of this answer' }),
      this.experts?.has(version) ? button('Experts', () => this.experts.show(version)) : null);
    this.foot.replaceChildren(facts(version), actions);
  }
}

/** Tells how an answer ended. */
export function tellEnd(version) {
  const ends = { stop: 'The answer is complete.', length: 'The answer was cut by a limit.', stopped: 'The answer was stopped.',
    tool_calls: 'The model calls a tool.' };
  announce(ends[version.finish] ?? `The answer failed. ${version.failure?.words ?? ''}`);
}
