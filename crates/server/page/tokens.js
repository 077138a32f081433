// The tokens of an answer, one after another; those of the chosen expert are marked.

import { make } from './dom.js';

/** A token as it can be seen: white space has signs. */
export const visible = (text) => text.replace(/\n/g, '↵').replace(/\t/g, '⇥').replace(/^ +$/, (run) => '␣'.repeat(run.length));

export class Tokens {
  /** `pick` takes the index of a token. */
  constructor(pick) {
    this.pick = pick;
    this.element = make('div', { class: 'tokens', role: 'listbox', 'aria-label': 'Tokens of the answer', tabindex: '0' });
    this.element.addEventListener('click', (event) => {
      const option = event.target.closest('[role=option]');
      if (option) this.pick(Number(option.dataset.index));
    });
    this.element.addEventListener('keydown', (event) => this.key(event));
  }

  /** Adds what is new, and marks. */
  update(trace, { token, expert }) {
    if (this.trace !== trace) this.element.replaceChildren();
    // While an answer is written, most of its tokens are marked as before.
    const first = this.trace === trace && this.chosen === token && this.expert === expert ? this.element.childElementCount : 0;
    Object.assign(this, { trace, chosen: token, expert });
    while (this.element.childElementCount < trace.tokens.length) this.append(trace.tokens[this.element.childElementCount]);
    const options = this.element.children;
    for (let index = first; index < options.length; index += 1) this.mark(options[index], index);
    if (token == null) this.element.removeAttribute('aria-activedescendant');
    else this.element.setAttribute('aria-activedescendant', `token-${token}`);
  }

  mark(option, index) {
    const weight = this.expert ? this.trace.weight(index, this.expert.row, this.expert.expert) : 0;
    option.classList.toggle('served', weight > 0);
    option.setAttribute('aria-selected', String(index === this.chosen));
    option.title = weight > 0 ? `weight ${weight.toFixed(3)}` : '';
  }

  append(token) {
    const index = this.element.childElementCount;
    const option = make('span', { class: 'token', role: 'option', id: `token-${index}`, data: { index }, text: visible(token.text) || '∅' });
    this.element.append(option);
    if (token.text.includes('\n')) option.classList.add('ends-line');
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
    const step = steps[event.key] ?? (event.key === 'Home' ? -Infinity : event.key === 'End' ? Infinity : null);
    if (step === null || !this.trace?.tokens.length) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(this.trace.tokens.length - 1, (this.chosen ?? -1) + step));
    this.pick(next);
    this.element.children[next].scrollIntoView({ block: 'nearest' });
  }
}
