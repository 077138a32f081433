// Footnotes of a text: `[^1]` is a number that leads to its note, `[^1]: …` the note, which is shown after the text.

import { make } from './dom.js';

const NOTE = /^ {0,3}\[\^([^\]\s]{1,100})\]:[ \t]*([^\n]*(?:\n(?:[ \t]*\n)*(?: {4}|\t)[^\n]+|\n(?![ \t]*(?:\n|\[\^|[-*+>#] |\d+[.)] |`{3,}|~{3,}))[^\n]+)*)/;
const REFERENCE = /^\[\^([^\]\s]{1,100})\]/;

/** The notes of the text that is read: their tokens by name, and their names in the order of their numbers. */
let notes = new Map();
let order = [];

export const extensions = [
  {
    name: 'note',
    level: 'block',
    start: (text) => text.match(/^ {0,3}\[\^[^\]\s]+\]:/m)?.index,
    tokenizer(text) {
      const found = NOTE.exec(text);
      if (!found) return undefined;
      const tokens = this.lexer.blockTokens(found[2].replace(/^(?: {4}|\t)/gm, ''), []);
      // Of two notes with one name, the first counts.
      if (!notes.has(found[1])) notes.set(found[1], tokens);
      return { type: 'note', raw: found[0], tokens };
    },
    renderer: () => '',
  },
  {
    name: 'noteReference',
    level: 'inline',
    start: (text) => text.match(/\[\^/)?.index,
    tokenizer(text) {
      // Blocks are read before what is within their lines, so all notes are known here.
      const found = REFERENCE.exec(text);
      return found && notes.has(found[1]) ? { type: 'noteReference', raw: found[0], name: found[1] } : undefined;
    },
    renderer: ({ name }) => `<sup class="note-reference">${numberOf(name)}</sup>`,
  },
];

function numberOf(name) {
  if (!order.includes(name)) order.push(name);
  return order.indexOf(name) + 1;
}

/** The HTML of a text with its notes after it. Notes that nothing refers to are the last: nothing of a text is lost. */
export function parse(marked, text) {
  [notes, order] = [new Map(), []];
  const body = marked.parse(text);
  if (notes.size === 0) return body;
  const items = [];
  const take = () => { while (items.length < order.length) items.push(`<li>${marked.parser(notes.get(order[items.length]))}</li>\n`); };
  take();
  for (const name of notes.keys()) { numberOf(name); take(); }
  return `${body}<ol class="notes">${items.join('')}</ol>\n`;
}

/** Makes the numbers buttons that lead to their notes, and gives each note one that leads back. */
export function link(root) {
  const list = root.querySelector('ol.notes');
  if (!list) return;
  list.setAttribute('aria-label', 'Footnotes');
  const lead = (to) => () => { to.scrollIntoView({ block: 'center' }); to.focus({ preventScroll: true }); };
  for (const reference of root.querySelectorAll('sup.note-reference')) {
    const note = list.children[Number(reference.textContent) - 1];
    const number = make('button', { type: 'button', text: reference.textContent, 'aria-label': `Footnote ${reference.textContent}`, on: { click: lead(note) } });
    note.tabIndex = -1;
    reference.replaceChildren(number);
    if (note.querySelector(':scope .note-back')) continue;
    const back = make('button', { type: 'button', class: 'note-back', text: '↩', 'aria-label': 'Back to the text', on: { click: lead(number) } });
    (note.lastElementChild?.matches('p') ? note.lastElementChild : note).append(' ', back);
  }
}
