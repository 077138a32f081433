// `<details>` of a text: a summary, and Markdown that it folds.

const OPEN = /^ {0,3}<details( +open)?>[ \t]*\n?/i;
/** What a line may have that matters here: a fence of code, within which nothing else counts, or a tag. */
const MARKS = /^ {0,3}(`{3,}|~{3,})[^\n]*$|<(\/?)details(?: +open)?>/gim;
const SUMMARY = /^\s*<summary>([\s\S]*?)<\/summary>/i;

/** Deeper ones are shown as text. */
const DEEPEST = 20;
let depth = 0;

/** Where the text of an opened `<details>` ends, and what follows its end; one that is not closed has the whole text. */
function closed(text, from) {
  let [unclosed, fence] = [1, null];
  MARKS.lastIndex = from;
  for (let found; (found = MARKS.exec(text));) {
    const [whole, run, end] = found;
    if (run && !fence) fence = run;
    else if (run) { if (run[0] === fence[0] && run.length >= fence.length && whole.trim() === run) fence = null; }
    else if (!fence) unclosed += end ? -1 : 1;
    if (unclosed === 0) return [found.index, MARKS.lastIndex];
  }
  return [text.length, text.length];
}

/** The extension of marked. */
export const folded = {
  name: 'folded',
  level: 'block',
  start: (text) => text.match(/^ {0,3}<details(?: +open)?>/im)?.index,
  tokenizer(text) {
    const opened = OPEN.exec(text);
    if (!opened || depth >= DEEPEST) return undefined;
    const [end, after] = closed(text, opened[0].length);
    const inner = text.slice(opened[0].length, end);
    const summary = SUMMARY.exec(inner);
    const token = { type: 'folded', raw: text.slice(0, after), isOpen: Boolean(opened[1]), summary: [], tokens: [] };
    this.lexer.inline(summary?.[1].trim() || 'Details', token.summary);
    depth += 1;
    try {
      this.lexer.blockTokens(inner.slice(summary?.[0].length ?? 0), token.tokens);
    } finally {
      depth -= 1;
    }
    return token;
  },
  childTokens: ['summary', 'tokens'],
  renderer({ isOpen, summary, tokens }) {
    return `<details${isOpen ? ' open' : ''}><summary>${this.parser.parseInline(summary)}</summary>${this.parser.parse(tokens)}</details>\n`;
  },
};
