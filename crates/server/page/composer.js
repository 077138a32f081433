// The field at the bottom: text, files, and the button that sends or stops.

import { announce, byId, button, isEnter, make } from './dom.js';
import * as images from './images.js';
import { bytes, whole } from './numbers.js';
import * as pdf from './pdf.js';
import { MOST } from './shape.js';

/** On a screen without a keyboard Enter starts a line, as everywhere there; the button sends. */
const touch = matchMedia('(pointer: coarse) and (hover: none)');
const KEYS = () => (touch.matches ? '' : 'Enter sends, Shift+Enter starts a line');

/** Longer texts are refused: the context of a model is smaller. */
const MOST_BYTES = 2 << 20;

/** Unsent messages, by conversation, as long as the tab is open. */
const drafts = {
  name: (id) => `gristmill-draft ${id}`,
  get: (id) => { try { return sessionStorage.getItem(drafts.name(id)); } catch { return null; } },
  set: (id, text) => {
    try {
      if (text) sessionStorage.setItem(drafts.name(id), text);
      else sessionStorage.removeItem(drafts.name(id));
    } catch { /* The browser keeps nothing. */ }
  },
};

/** What an attached file is called. */
export const label = (file) => (file.image ? file.name : `${file.name} · ${bytes(file.text.length)}`);

/** A small view of an image; null for other files. */
export const thumbnail = ({ name, image }) => (image ? make('img', { class: 'thumbnail', src: image, alt: name }) : null);

export class Composer {
  /**
   * `send` takes a text and files and says whether it took them; `stop` ends the answer that is being written;
   * `conversation` is the id of the conversation that is shown, empty for one without messages; `changed` is called after
   * each change of the text or the files; `sees` says whether the model reads images.
   */
  constructor({ send, stop, conversation, changed, sees }) {
    Object.assign(this, { send, stop, conversation, changed, sees, files: [], reading: 0, running: false });
    this.input = byId('message');
    byId('composer').addEventListener('submit', (event) => { event.preventDefault(); this.act(); });
    this.input.addEventListener('keydown', (event) => {
      if (isEnter(event) && !event.shiftKey && !touch.matches) { event.preventDefault(); this.submit(); }
    });
    this.input.addEventListener('input', () => { this.grow(); drafts.set(this.conversation(), this.input.value); });
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.running && !document.querySelector('dialog[open]')) this.stop();
    });
    byId('attach').addEventListener('click', () => byId('file').click());
    byId('file').addEventListener('change', (event) => { this.attach(event.target.files); event.target.value = ''; });
    this.input.enterKeyHint = touch.matches ? 'enter' : 'send';
    this.setRunning(false);
    this.takeDropped();
  }

  /** Files can be dropped everywhere: the browser would otherwise open a file that misses the field, instead of the page. */
  takeDropped() {
    const hasFiles = (event) => event.dataTransfer?.types.includes('Files');
    const show = (isOver) => byId('composer').classList.toggle('takes', isOver);
    addEventListener('dragover', (event) => { if (hasFiles(event)) { event.preventDefault(); show(true); } });
    addEventListener('dragleave', (event) => { if (!event.relatedTarget) show(false); });
    addEventListener('drop', (event) => {
      show(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      if (!document.querySelector('dialog[open]')) this.attach(event.dataTransfer.files);
    });
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
    if (this.reading > 0) return this.say('A file is still being read.', 'load');
    if (text.length > MOST.text) return this.say(`The message has ${whole(text.length)} characters; at most ${whole(MOST.text)} can be kept.`);
    const before = this.conversation();
    if (!this.send(text, this.files)) return;
    drafts.set(before, '');
    this.input.value = '';
    this.files = [];
    this.grow();
    this.list();
  }

  /** Shows the unsent message of the conversation that is shown. */
  showDraft() {
    this.write(drafts.get(this.conversation()) ?? '');
  }

  /** Puts a text into the field. */
  write(text) {
    this.input.value = text;
    drafts.set(this.conversation(), text);
    this.grow();
  }

  /** What is not sent yet. */
  get draft() {
    return { text: this.input.value, files: this.files };
  }

  /** Whether an answer is being written. */
  setRunning(running) {
    this.running = running;
    byId('send').textContent = running ? 'Stop' : 'Send';
    byId('send').classList.toggle('stops', running);
    this.showHint();
  }

  /** The line below the field, when there is nothing else to say there. */
  showHint() {
    this.hint(this.running && !touch.matches ? 'Esc stops' : KEYS(), 'keys');
  }

  async attach(list) {
    // A list of an input is emptied with it.
    const files = [...list], faults = [];
    this.reading += 1;
    for (const file of files) {
      try {
        const read = await this.read(file);
        if (this.files.length >= MOST.files) throw new pdf.Unreadable(`one too many; a message has ${MOST.files} files at most`);
        this.files.push({ name: file.name, ...read });
      } catch (error) {
        faults.push(`${file.name} is ${error instanceof pdf.Unreadable ? error.message : `not read: ${error.message}`}.`);
      }
    }
    this.reading -= 1;
    if (faults.length > 0) this.say(faults.join(' '));
    else if (this.reading === 0 && byId('hint').dataset.kind === 'load') this.showHint();
    this.list();
  }

  /** { text } of a file, also of a PDF, or { text: '', image } of an image. */
  async read(file) {
    const most = images.isImage(file) ? images.MOST_BYTES : pdf.isPdf(file) ? pdf.MOST_BYTES : MOST_BYTES;
    if (file.size > most) throw new pdf.Unreadable(`larger than ${bytes(most)}`);
    if (images.isImage(file)) {
      if (!this.sees()) throw new pdf.Unreadable('an image, and this model reads none');
      return { text: '', image: await images.dataUrl(file) };
    }
    if (pdf.isPdf(file)) {
      const progress = (page, all) => this.hint(`Reading ${file.name}: page ${whole(page)} of ${whole(all)}`, 'load');
      return { text: await pdf.textOf(file, MOST_BYTES, progress) };
    }
    const text = await file.text();
    if (/\0|\uFFFD/.test(text)) throw new pdf.Unreadable('not a text in UTF-8');
    return { text };
  }

  say(text, kind = 'fault') {
    this.hint(text, kind);
    announce(text);
  }

  /** The line below the field. What it says of keys is left out where there is no keyboard. */
  hint(text, kind) {
    byId('hint').textContent = text;
    byId('hint').dataset.kind = kind;
  }

  list() {
    const chip = (file, index) => make('li', {}, thumbnail(file), make('span', { text: label(file) }),
      button('Remove', () => { this.files.splice(index, 1); this.list(); }, { 'aria-label': `Remove ${file.name}` }));
    byId('files').replaceChildren(...this.files.map(chip));
    this.changed();
  }

  grow() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * 0.4)}px`;
    this.changed();
  }
}
