// The panel of experts: the map of an answer, live while it is written, and of a second answer beside it.

import { watchTheme } from './colours.js';
import { byId, button, make } from './dom.js';
import { Maps } from './maps.js';
import { Tokens, visible } from './tokens.js';
import { mapTable, tokenDetail } from './detail.js';
import { expertDetail, expertLine } from './words.js';
import { percent, range, times } from './numbers.js';
import { Trace } from './trace.js';

export class Experts {
  constructor(facts) {
    Object.assign(this, { traces: new Map(), current: null, other: null, token: null, expert: null, live: false });
    byId('experts-open').addEventListener('click', () => this.toggle());
    this.build();
    this.setModel(facts);
    addEventListener('resize', () => this.redraw());
    watchTheme(() => this.redraw());
  }

  /** Another model is chosen. The maps of answers of others stay. */
  setModel(facts) {
    const hasExperts = hasAny(facts);
    if (hasExperts) this.intro.textContent = explanation(facts);
    this.isOffered = hasExperts || this.traces.size > 0;
    byId('experts-open').hidden = !this.isOffered;
    if (!this.isOffered && this.isOpen) this.toggle(false);
  }

  build() {
    const panel = byId('experts');
    this.maps = new Maps({ pick: (expert) => this.pickExpert(expert), hover: (at, second) => this.hover(at, second) });
    this.choices = ['Answer', 'Compare with'].map((text, index) => this.choice(text, index));
    this.readout = make('p', { class: 'readout', id: 'experts-readout', 'aria-live': 'polite' });
    this.tokens = new Tokens((token) => this.pickToken(token));
    [this.aboutExpert, this.aboutToken] = [make('div'), make('div')];
    this.table = make('details', { class: 'as-table', on: { toggle: () => this.fillTable() } }, make('summary', { text: 'The map as a table' }), make('div'));
    this.recording = make('input', { type: 'checkbox', id: 'experts-record' });
    this.widen = button('Enlarge', () => this.enlarge(), { class: 'quiet not-narrow', 'aria-pressed': 'false' });
    this.intro = make('p', { class: 'intro' });
    this.empty = make('p', { class: 'muted', text: 'Send a message: the map fills while the answer is written. Maps stay until the page is closed.' });
    this.body = make('div', { class: 'experts-body' },
      make('div', { class: 'choices' }, ...this.choices.map(({ parentElement }) => parentElement)),
      this.maps.element, this.readout, this.aboutExpert,
      make('section', { class: 'answer-tokens' }, make('h3', { text: 'Tokens of the answer' }),
        make('p', { class: 'muted', text: 'Choose a token to see its experts, or an expert in the map to see its tokens.' }), this.tokens.element),
      this.aboutToken, this.table);
    panel.append(
      make('div', { class: 'experts-head' }, make('h2', { text: 'Experts' }),
        make('label', { class: 'record', for: 'experts-record' }, this.recording, 'Record new answers'),
        this.widen, button('Close', () => this.toggle(false))),
      this.intro, this.empty, this.body);
    panel.addEventListener('keydown', (event) => { if (event.key === 'Escape' && !this.live) this.clearFocus(); });
  }

  choice(text, index) {
    const select = make('select', { id: `experts-choice-${index}`, on: { change: () => this.choose(index, select.value) } });
    make('div', { class: 'choice' }, make('label', { for: select.id, text }), select);
    return select;
  }

  get isOpen() {
    return !byId('experts').hidden;
  }

  toggle(open = !this.isOpen) {
    // Whoever opens the panel for the first time wants to see something in it.
    if (open && !this.opened) this.recording.checked = this.opened = true;
    if (!open) this.enlarge(false);
    byId('experts').hidden = !open;
    byId('app').classList.toggle('experts-shown', open);
    byId('experts-open').setAttribute('aria-expanded', String(open));
    if (open) this.redraw();
    else byId('experts-open').focus();
  }

  /** The panel takes the whole window, for maps of many experts. */
  enlarge(wide = !byId('app').classList.contains('experts-wide')) {
    byId('app').classList.toggle('experts-wide', wide);
    this.widen.setAttribute('aria-pressed', String(wide));
    byId('experts').scrollTop = 0;
    this.redraw();
  }

  /** A trace for a new answer of a model with experts, if the user wants one. */
  begin(version, label, facts) {
    if (!hasAny(facts) || !this.recording.checked) return null;
    const trace = new Trace(label, facts);
    this.traces.set(version.id, trace);
    // Of the answers of a long afternoon, the last are kept.
    if (this.traces.size > 30) this.traces.delete(this.traces.keys().next().value);
    this.start(trace);
    return trace;
  }

  /** The trace of an answer that is continued: one that was not recorded from its first token has none. */
  resume(version, facts) {
    const trace = this.traces.get(version.id);
    if (!this.recording.checked || trace?.model !== facts.name) return null;
    this.start(trace);
    return trace;
  }

  start(trace) {
    Object.assign(this, { current: trace, token: null, expert: null, live: true });
    if (this.other === trace) this.other = null;
    this.redraw();
  }

  /** The answer is written. */
  end() {
    this.live = false;
    this.redraw();
  }

  has(version) {
    return this.traces.get(version.id)?.tokens.length > 0;
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
    this.token = this.token === token ? null : token;
    this.redraw();
  }

  pickExpert(expert) {
    const same = this.expert?.row === expert.row && this.expert?.expert === expert.expert;
    this.expert = same ? null : expert;
    this.redraw();
  }

  hover(at, second) {
    const text = at && this.other && !second ? this.both(at) : at && expertLine(second ? this.other : this.current, at);
    this.readout.textContent = text ?? this.rest();
  }

  both(at) {
    return `${expertLine(this.current, at)}; in the second ${times(this.other.load(at.row, at.expert))}`;
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
    // What was chosen may be of a model with other layers.
    if (this.current && this.other?.isLike(this.current) === false) this.other = null;
    if (this.expert && !(this.expert.expert < this.current?.sizes[this.expert.row])) this.expert = null;
    const { current, other, token, expert } = this;
    this.empty.hidden = Boolean(current);
    this.body.hidden = !current;
    if (!current) return;
    this.fillChoices();
    const marked = token ?? (this.live ? current.tokens.length - 1 : -1);
    const named = current.tokens[marked];
    this.maps.draw({ current, other, expert, rows: named?.rows, marked: `“${named?.text.trim() || visible(named?.text ?? '')}”` });
    // A screen reader hears of what the user does, not of every token.
    this.readout.setAttribute('aria-live', this.live ? 'off' : 'polite');
    this.readout.textContent = this.rest();
    this.tokens.update(current, { token, expert });
    if (this.live) this.tokens.element.scrollTop = this.tokens.element.scrollHeight;
    this.aboutExpert.hidden = !expert;
    this.aboutExpert.replaceChildren(...(expert ? [expertDetail(current, expert, () => this.pickExpert(expert))] : []));
    this.aboutToken.hidden = token == null;
    this.aboutToken.replaceChildren(...(token == null ? [] : [tokenDetail(current, token, (at) => this.pickExpert(at))]));
    this.fillTable();
  }

  /** The line below the maps, while the pointer is elsewhere. */
  rest() {
    const { current, other, expert } = this;
    if (expert) return other ? this.both(expert) : expertLine(current, expert);
    if (other) return `The answers use experts with a similarity of ${current.similarity(other).toFixed(2)}; 1 is the same proportions.`;
    return `This answer used ${percent(current.used())} of all experts. Choose a square to read it.`;
  }

  fillChoices() {
    const all = [...this.traces].map((entry, number) => [...entry, number + 1]);
    this.choices.forEach((select, index) => {
      const entries = index === 0 ? all : all.filter(([, trace]) => trace.isLike(this.current));
      const mark = entries.map(([id, { label }]) => id + label).join();
      if (select.dataset.mark !== mark) {
        const options = entries.map(([value, { label }, number]) => make('option', { value, text: `${number}. ${label}` }));
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

const hasAny = ({ experts }) => experts.some((count) => count > 0);

/** What an expert is, with the numbers of this model. */
function explanation({ experts, experts_per_token: perToken }) {
  const [counts, picked] = [experts, perToken].map((list) => list.filter((count) => count > 0));
  return `Experts are small networks within the model: for each token – a word or a piece of one – every layer picks ${range(picked)} of its ${range(counts)}, and only those work.`;
}
