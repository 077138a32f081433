// Formulas: \( … \), \[ … \], $ … $ and $$ … $$ of a text, as MathML by KaTeX, which is loaded when the first one shows.

import purify from './vendor/purify.es.js';
import { make } from './dom.js';

/** Longer formulas are shown as their source. */
const LONGEST = 5_000;

const MATH = {
  USE_PROFILES: { mathMl: true },
  ADD_TAGS: ['semantics'],
  ADD_FORBID_CONTENTS: ['annotation'],
  FORBID_ATTR: ['style', 'href', 'class', 'id'],
  RETURN_DOM_FRAGMENT: true,
};

// A price is no formula: no blank follows the first dollar or precedes the last one, and no digit follows that.
const INLINE = /^\\\(([\s\S]+?)\\\)|^\\\[([\s\S]+?)\\\]|^\$\$([\s\S]+?)\$\$|^\$(?=\S)([^$\n]*?[^\s\\$])\$(?!\d)/;
const BLOCK = /^ {0,3}(?:\\\[([\s\S]+?)\\\]|\$\$([\s\S]+?)\$\$)[ \t]*\n?/;

const escaped = (text) => text.replace(/[&<>"']/g, (found) => `&#${found.codePointAt(0)};`);
const element = (display, source) => `<code class="math-${display ? 'display' : 'inline'}">${escaped(source)}</code>`;

/** Extensions of marked that leave formulas as elements `code.math-inline` and `code.math-display`. */
export const extensions = [
  {
    name: 'mathBlock',
    level: 'block',
    start: (text) => text.match(/^ {0,3}(?:\\\[|\$\$)/m)?.index,
    tokenizer(text) {
      const found = BLOCK.exec(text);
      return found ? { type: 'mathBlock', raw: found[0], source: found[1] ?? found[2] } : undefined;
    },
    renderer: ({ source }) => `<p>${element(true, source)}</p>`,
  },
  {
    name: 'math',
    level: 'inline',
    start: (text) => text.match(/\\[([]|\$/)?.index,
    tokenizer(text) {
      const found = INLINE.exec(text);
      if (!found) return undefined;
      const display = found[2] ?? found[3];
      return { type: 'math', raw: found[0], display: display !== undefined, source: display ?? found[1] ?? found[4] };
    },
    renderer: ({ display, source }) => element(display, source),
  },
];

let loading;
let katex = null;

/** Replaces formulas below `root` by MathML, at once or as soon as KaTeX is loaded. */
export function typeset(root) {
  const formulas = [...root.querySelectorAll('code.math-inline, code.math-display')];
  if (formulas.length === 0) return;
  if (katex) return formulas.forEach(set);
  loading ??= import('./vendor/katex.min.js').then(() => { katex = globalThis.katex; });
  loading.then(() => formulas.forEach(set)).catch(() => { loading = undefined; });
}

/** A formula that KaTeX does not take stays as its source. */
function set(formula) {
  const source = formula.textContent;
  if (source.length > LONGEST) return;
  const displayMode = formula.classList.contains('math-display');
  try {
    const options = { displayMode, output: 'mathml', throwOnError: true, trust: false, strict: 'ignore', maxSize: 20, maxExpand: 200 };
    // The page's policy forbids styles in elements, which colours and frames would have.
    const html = katex.renderToString(source, options).replace(/ style="[^"]*"/g, '');
    const math = purify.sanitize(html, MATH);
    formula.replaceWith(make('span', { class: displayMode ? 'formula display' : 'formula', title: source }, math));
  } catch {
    formula.title = 'not a formula that KaTeX knows';
  }
}
