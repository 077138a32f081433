// The panel of experts: the map of an answer, live while it is written, and of a second answer beside it.

import { byId, button, make } from './dom.js';
import { Heat } from './heat.js';
import { Tokens } from './tokens.js';
import { expertLine, mapTable, tokenDetail } from './detail.js';
import { percent, whole } from './numbers.js';
import { Trace } from './trace.js';

export class Experts {
  constructor(facts) {
    Object.assign(this, { facts, traces: new Map(), current: null, other: null, token: null, expert: null, live: false });
    this.available = facts.experts.some((count) => count > 0);
    if (!this.available) return;
    byId('experts-open').hidden = false;
    byId('experts-open').addEventListener('click', () => this.toggle());
    this.build();
    addEventListener('resize', () => this.redraw());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redraw());
  }

  build() {
    const panel = byId('experts');
    const pick = (expert) => this.pickExpert(expert);
    const hover = (at, trace) => { this.readout.textContent = at ? expertLine(trace, at) : this.rest(); };
    this.heats = ['Experts of the answer', 'Experts of the second answer'].map((label) => new Heat({ pick, hover, label }));
    this.figures = this.heats.map((heat) => make('figure', { class: 'map' }, make('figcaption'), make('div', { class: 'map-scroll' }, heat.canvas)));
    this.choices = ['Answer', 'Compare with'].map((text, index) => this.choice(text, index));
    this.readout = make('p', { class: 'readout', id: 'experts-readout', 'aria-live': 'polite' });
    this.tokens = new Tokens((token) => this.pickToken(token));
    this.detail = make('div');
    this.table = make('details', { class: 'as-table', on: { toggle: () => this.fillTable() } }, make('summary', { text: 'The map as a table' }), make('div'));
    this.recording = make('input', { type: 'checkbox', id: 'experts-record' });
    const record = make('label', { class: 'record', for: 'experts-record' }, this.recording, 'Record the experts of new answers');
    this.empty = make('p', { class: 'muted', text: 'Ask something: the map fills while the answer is written. Maps stay until the page is closed.' });
    this.body = make('div', { class: 'experts-body' },
      make('div', { class: 'choices' }, ...this.choices.map(({ parentElement }) => parentElement)),
      make('div', { class: 'maps' }, ...this.figures), this.readout,
      make('section', {}, make('h3', { text: 'Tokens' }), make('p', { class: 'muted', text: 'A token shows its experts, an expert of the map marks its tokens.' }), this.tokens.element),
      this.detail, this.table);
    panel.append(make('div', { class: 'experts-head' }, make('h2', { text: 'Experts' }), button('Close', () => this.toggle(false))), record, this.empty, this.body);
    panel.addEventListener('keydown', (event) => { if (event.key === 'Escape' && !this.live) this.clearFocus(); });
  }

  choice(text, index) {
    const select = make('select', { id: `experts-choice-${index}`, on: { change: () => this.choose(index, select.value) } });
    make('div', { class: 'choice' }, make('label', { for: select.id, text }), select);
    return select;
  }

  get isOpen() {
    return this.available && !byId('experts').hidden;
  }

  toggle(open = !this.isOpen) {
    // Whoever opens the panel for the first time wants to see something in it.
    if (open && !this.opened) this.recording.checked = this.opened = true;
    byId('experts').hidden = !open;
    byId('app').classList.toggle('experts-shown', open);
    byId('experts-open').setAttribute('aria-expanded', String(open));
    if (open) this.redraw();
    else byId('experts-open').focus();
  }

  /** A trace for a new answer, if the user wants one. */
  begin(version, label) {
    if (!this.available || !this.recording.checked) return null;
    const trace = new Trace(label, this.facts);
    this.traces.set(version.id, trace);
    // Of the answers of a long afternoon, the last are kept.
    if (this.traces.size > 30) this.traces.delete(this.traces.keys().next().value);
    Object.assign(this, { current: trace, token: null, expert: null, live: true });
    if (this.other === trace) this.other = null;
    this.redraw();
    return trace;
  }

  /** The answer is written. */
  end() {
    this.live = false;
    this.redraw();
  }

  has(version) {
    return this.traces.has(version.id);
  }

  show(version) {
    Object.assign(this, { current: this.traces.get(version.id), token: null, expert: null });
    this.toggle(true);
    byId('experts').scrollTop = 0;
  }

  choose(index, id) {
    const trace = this.traces.get(id) ?? null;
    Object.assign(this, index === 0 ? { current: trace, token: null } : { other: trace });
    this.redraw();
  }

  pickToken(token) {
    Object.assign(this, { token: this.token === token ? null : token });
    this.redraw();
  }

  pickExpert(expert) {
    const same = this.expert?.row === expert.row && this.expert?.expert === expert.expert;
    this.expert = same ? null : expert;
    this.redraw();
  }

  clearFocus() {
    Object.assign(this, { token: null, expert: null });
    this.redraw();
  }

  /** Once before the next frame, however often it is called. */
  redraw() {
    if (!this.isOpen || this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => { this.scheduled = false; this.draw(); });
  }

  draw() {
    const { current, other, token, expert } = this;
    this.empty.hidden = Boolean(current);
    this.body.hidden = !current;
    if (!current) return;
    this.fillChoices();
    this.figures[1].hidden = !other;
    this.body.classList.toggle('two', Boolean(other));
    this.heats[0].draw(current, { token, expert, last: this.live });
    this.figures[0].firstChild.textContent = caption(current);
    if (other) {
      this.heats[1].draw(other, { expert });
      this.figures[1].firstChild.textContent = caption(other);
    }
    // A screen reader hears of what the user does, not of every token.
    this.readout.setAttribute('aria-live', this.live ? 'off' : 'polite');
    this.readout.textContent = this.rest();
    this.tokens.update(current, { token, expert });
    if (this.live) this.tokens.element.scrollTop = this.tokens.element.scrollHeight;
    this.detail.replaceChildren(...(token == null ? [] : [tokenDetail(current, token, (at) => this.pickExpert(at))]));
    this.fillTable();
  }

  /** The line below the maps, while the pointer is elsewhere. */
  rest() {
    const { current, other, expert } = this;
    if (expert) return expertLine(current, expert);
    if (other) return `The answers use experts with a similarity of ${current.similarity(other).toFixed(2)}; 1 is the same proportions.`;
    return `${whole(current.layers.length)} layers of ${current.experts} experts, ${current.perToken} for each token; this answer used ${percent(current.used())} of all.`;
  }

  fillChoices() {
    const entries = [...this.traces];
    const mark = entries.map(([id, { label }]) => id + label).join();
    this.choices.forEach((select, index) => {
      if (select.dataset.mark !== mark) {
        const options = entries.map(([value, { label }], number) => make('option', { value, text: `${number + 1}. ${label}` }));
        select.replaceChildren(...(index === 1 ? [make('option', { value: '', text: 'nothing' })] : []), ...options);
        select.dataset.mark = mark;
      }
      const chosen = index === 0 ? this.current : this.other;
      select.value = entries.find(([, trace]) => trace === chosen)?.[0] ?? '';
    });
  }

  fillTable() {
    const box = this.table.lastChild;
    if (this.table.open && !this.live) box.replaceChildren(mapTable(this.current));
    else box.replaceChildren();
  }
}

const caption = (trace) => `${trace.label} · ${whole(trace.tokens.length)} tokens`;
