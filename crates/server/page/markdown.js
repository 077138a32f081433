// Markdown of a model as nodes. Whatever the text says, it makes no request and runs no script: its HTML is shown as text,
// the sanitiser keeps a short list of elements and attributes, links are http or mail, images are data. The page's policy
// forbids the rest again.

import { Marked } from './vendor/marked.esm.js';
import purify from './vendor/purify.es.js';
import highlight from './vendor/highlight.min.js';
import { button, copy, make } from './dom.js';
import { folded } from './folded.js';
import * as footnotes from './footnotes.js';
import * as math from './math.js';

const PROSE = {
  ALLOWED_TAGS: ['p', 'br', 'hr', 'h3', 'h4', 'h5', 'h6', 'blockquote', 'pre', 'code', 'kbd', 'ul', 'ol', 'li', 'em', 'i',
    'strong', 'b', 'del', 's', 'sub', 'sup', 'a', 'img', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'span',
    'details', 'summary'],
  ALLOWED_ATTR: ['href', 'title', 'alt', 'src', 'align', 'start', 'class', 'open'],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  // The sanitiser takes values of other attributes for addresses.
  ADD_URI_SAFE_ATTR: ['align', 'start', 'open'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
const CODE = { ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'], RETURN_DOM_FRAGMENT: true };

purify.addHook('uponSanitizeAttribute', (node, data) => {
  if (data.attrName === 'class') data.keepAttr = /^(language-[\w+#.-]{1,30}|hljs-[\w -]{1,60}|math-(?:inline|display)|notes|note-reference)$/.test(data.attrValue);
  if (data.attrName === 'src') data.keepAttr = /^data:image\//i.test(data.attrValue);
});
purify.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName === 'A' && node.hasAttribute('href')) {
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer nofollow');
  }
  if (node.nodeName === 'IMG') {
    if (!node.hasAttribute('alt')) node.setAttribute('alt', 'image without a description');
    if (!node.hasAttribute('src')) node.replaceWith(`[image: ${node.getAttribute('alt')}]`);
  }
});

const marked = new Marked({ gfm: true });
marked.use({
  extensions: [...math.extensions, ...footnotes.extensions, folded],
  renderer: {
    heading({ tokens, depth }) {
      const level = Math.min(depth + 2, 6);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
    html: ({ text }) => escape(text).replace(/&lt;(\/?(?:br|sub|sup|kbd)) *\/?&gt;/gi, '<$1>'),
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
    // An image of another host becomes a link to it.
    image({ href, text }) {
      const [url, alt] = [escape(href), escape(text)];
      return /^data:image\//i.test(href) ? `<img src="${url}" alt="${alt}">` : `<a href="${url}">[image: ${alt || url}]</a>`;
    },
  },
});

const ESCAPES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
const escape = (text) => text.replace(/[&<>"']/g, (found) => ESCAPES[found]);

/** The nodes of HTML that may show. */
export const clean = (html) => purify.sanitize(html, PROSE);

/** The nodes of a text. */
export function render(text) {
  const fragment = clean(footnotes.parse(marked, text));
  fragment.querySelectorAll('pre').forEach(dress);
  for (const table of fragment.querySelectorAll('table')) {
    const box = make('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': 'Table' });
    table.replaceWith(box);
    box.append(table);
  }
  // Each block has the direction of its first letter. A block within another with a direction of its own would not count there.
  for (const block of [...fragment.children, ...fragment.querySelectorAll('th, td')]) if (!block.matches('.code, .wide')) block.dir = 'auto';
  footnotes.link(fragment);
  math.typeset(fragment);
  return fragment;
}

/** Shows a text that grows: what the reader has folded or unfolded stays so. */
export function renderInto(element, text) {
  const folds = () => [...element.querySelectorAll('details')];
  const before = folds().map(({ open }) => open);
  element.replaceChildren(render(text));
  folds().forEach((details, index) => { details.open = before[index] ?? details.open; });
}

/** A block of code gets its colours, its language and a button. */
function dress(pre) {
  const code = pre.querySelector('code') ?? pre;
  const text = code.textContent;
  const language = [...code.classList].find((name) => name.startsWith('language-'))?.slice(9) ?? '';
  if (language && text.length < 100_000 && highlight.getLanguage(language)) code.replaceChildren(coloured(text, language));
  pre.setAttribute('tabindex', '0');
  const head = make('div', { class: 'code-head' }, make('span', { text: language || 'text' }),
    button('Copy', (event) => copy(text, event.currentTarget)));
  const box = make('div', { class: 'code' });
  pre.replaceWith(box);
  box.append(head, pre);
}

const cache = new Map();

function coloured(text, language) {
  const key = `${language}\n${text}`;
  if (!cache.has(key)) {
    if (cache.size > 200) cache.clear();
    const html = highlight.highlight(text, { language, ignoreIllegals: true }).value;
    cache.set(key, purify.sanitize(html, CODE));
  }
  return cache.get(key).cloneNode(true);
}
