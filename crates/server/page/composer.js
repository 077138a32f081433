// The field at the bottom: text, files, and the button that sends or stops.

import { announce, byId, button, make } from './dom.js';
import { bytes, whole } from './numbers.js';
import { MOST } from './shape.js';

/** On a screen without a keyboard Enter starts a line, as everywhere there; the button sends. */
const touch = matchMedia('(pointer: coarse) and (hover: none)');
const KEYS = () => (touch.matches ? '' : 'Enter sends, Shift+Enter starts a line');

/** Larger files are refused: the context of a model is smaller. */
const MOST_BYTES = 2 << 20;

export class Composer {
  /** `send` takes a text and files and says whether it took them; `stop` ends the answer that is being written. */
  constructor({ send, stop }) {
    Object.assign(this, { send, stop, files: [], running: false });
    this.input = byId('message');
    byId('composer').addEventListener('submit', (event) => { event.preventDefault(); this.act(); });
    this.input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && !touch.matches) { event.preventDefault(); this.submit(); }
    });
    this.input.addEventListener('input', () => this.grow());
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.running && !document.querySelector('dialog[open]')) this.stop();
    });
    byId('attach').addEventListener('click', () => byId('file').click());
    byId('file').addEventListener('change', (event) => { this.attach(event.target.files); event.target.value = ''; });
    this.input.enterKeyHint = touch.matches ? 'enter' : 'send';
    this.setRunning(false);
    this.takeDropped();
  }

  takeDropped() {
    const main = document.querySelector('.main');
    main.addEventListener('dragover', (event) => event.preventDefault());
    main.addEventListener('drop', (event) => { event.preventDefault(); this.attach(event.dataTransfer.files); });
    this.input.addEventListener('paste', (event) => {
      if (event.clipboardData.files.length > 0) { event.preventDefault(); this.attach(event.clipboardData.files); }
    });
  }

  act() {
    if (this.running) this.stop();
    else this.submit();
  }

  submit() {
    const text = this.input.value.trim();
    if (this.running || (!text && this.files.length === 0)) return;
    if (text.length > MOST.text) return this.say(`The message has ${whole(text.length)} characters; at most ${whole(MOST.text)} can be kept.`);
    if (!this.send(text, this.files)) return;
    this.input.value = '';
    this.files = [];
    this.grow();
    this.list();
  }

  /** Whether an answer is being written. */
  setRunning(running) {
    this.running = running;
    byId('send').textContent = running ? 'Stop' : 'Send';
    byId('send').classList.toggle('stops', running);
    this.hint(running && !touch.matches ? 'Esc stops' : KEYS(), 'keys');
  }

  async attach(list) {
    // A list of an input is emptied with it.
    const files = [...list];
    for (const file of files) {
      const text = file.size <= MOST_BYTES ? await file.text() : null;
      const fault = this.files.length >= MOST.files ? `one too many; a message has ${MOST.files} files at most` : text === null ? `larger than ${bytes(MOST_BYTES)}` : /\0|\uFFFD/.test(text) ? 'not a text in UTF-8' : null;
      if (fault) this.say(`${file.name} is ${fault}.`);
      else this.files.push({ name: file.name, text });
    }
    this.list();
  }

  say(text) {
    this.hint(text, 'fault');
    announce(text);
  }

  /** The line below the field. What it says of keys is left out where there is no keyboard. */
  hint(text, kind) {
    byId('hint').textContent = text;
    byId('hint').dataset.kind = kind;
  }

  list() {
    const chip = (file, index) => make('li', {}, make('span', { text: `${file.name} · ${bytes(file.text.length)}` }),
      button('Remove', () => { this.files.splice(index, 1); this.list(); }, { 'aria-label': `Remove ${file.name}` }));
    byId('files').replaceChildren(...this.files.map(chip));
  }

  grow() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * 0.4)}px`;
  }
}
