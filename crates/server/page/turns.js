// The turns of a conversation in the document: the last ones at once, earlier ones when the reader comes near them.

import { byId, button, make } from './dom.js';

/** Turns that are added at a time. A turn of a page of Markdown takes about 5 ms. */
const AT_ONCE = 30;

export class Turns {
  /** `view` makes the view of a turn, an object with its `element`. */
  constructor(view) {
    Object.assign(this, { make: view, turns: [], views: new Map(), first: 0 });
    this.earlier = make('div', { class: 'earlier' }, button('Show earlier messages', () => this.addEarlier()));
    this.observer = new IntersectionObserver((entries) => {
      if (entries.some(({ isIntersecting }) => isIntersecting)) this.addEarlier();
    }, { root: byId('scroll'), rootMargin: '600px 0px 0px 0px' });
  }

  show(turns) {
    this.turns = [...turns];
    this.first = Math.max(0, turns.length - AT_ONCE);
    this.views = new Map();
    byId('turns').replaceChildren(this.earlier, ...this.add(this.first, turns.length));
    this.watch();
  }

  /** The view of a turn, if it is in the document. */
  view(turn) {
    return this.views.get(turn);
  }

  /** Scrolls to a turn; whether it is one of those that are shown. */
  reveal(turn) {
    const at = this.turns.indexOf(turn);
    if (at < 0) return false;
    while (this.first > at) this.addEarlier();
    this.view(turn).element.scrollIntoView({ block: 'start' });
    return true;
  }

  add(from, to) {
    return this.turns.slice(from, to).map((turn) => {
      const view = this.make(turn);
      this.views.set(turn, view);
      return view.element;
    });
  }

  addEarlier() {
    const [scroll, before] = [byId('scroll'), this.first];
    if (before === 0) return;
    this.first = Math.max(0, before - AT_ONCE);
    const fromEnd = scroll.scrollHeight - scroll.scrollTop;
    this.earlier.after(...this.add(this.first, before));
    scroll.scrollTop = scroll.scrollHeight - fromEnd;
    this.watch();
  }

  /** Observed anew each time: an element that stays in sight is reported once. */
  watch() {
    this.observer.disconnect();
    this.earlier.hidden = this.first === 0;
    if (this.first > 0) this.observer.observe(this.earlier);
  }
}
