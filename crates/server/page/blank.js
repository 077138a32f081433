// The page before the first message: what to begin with, and the model's facts for whoever wants them.

import { css, watchTheme } from './colours.js';
import { byId, make } from './dom.js';
import { bytes, range, short, whole } from './numbers.js';

/** Questions for a model that answers. */
const QUESTIONS = [
  ['Explain', 'Explain how a water mill works, for a curious ten-year-old.'],
  ['Write', 'Write a polite letter that asks a neighbour to play music more quietly at night.'],
  ['Compare', 'Compare bread with yeast and bread with sourdough in a small table.'],
  ['Program', 'Write a Python function that finds palindromes in a text, with a test.'],
];

/** Beginnings for a model that continues a text. */
const BEGINNINGS = [
  ['The mill', 'Once upon a time there was an old mill by the river.'],
  ['The fox', 'A little fox found a red umbrella in the forest. She'],
  ['The lighthouse', 'Every evening, Tom climbed the stairs of the lighthouse with his grandmother.'],
  ['The snow', 'When Mia woke up, the whole garden was white. "Look!" she said,'],
];

/** `send` takes the text of an example. */
export function show(facts, send) {
  const answers = facts.chat_template;
  const example = ([name, text]) => make('button', { type: 'button', class: 'example', on: { click: () => send(text) } },
    make('span', { class: 'example-name', text: name }), make('span', { text }));
  byId('blank').replaceChildren(...[
    picture(facts),
    make('h2', { text: answers ? 'What would you like to know?' : 'Start a story' }),
    make('p', { class: 'lead', text: answers ? `Ask ${facts.title || facts.name} something, or try one of these.`
      : 'This model continues what you write. Begin with some words of your own, or with one of these.' }),
    make('div', { class: 'examples' }, ...(answers ? QUESTIONS : BEGINNINGS).map(example)),
    about(facts),
  ].filter(Boolean));
}

function about(facts) {
  const experts = withExperts(facts);
  const perToken = facts.experts_per_token.filter((count) => count > 0);
  const lines = [
    ['Name', facts.title || facts.name],
    ['Parameters', short(facts.parameters)],
    ['Weights', `${bytes(facts.bytes)}${facts.format ? `, mostly ${facts.format}` : ''}`],
    ['Layers', whole(facts.layers)],
    experts.length > 0 ? ['Experts', `${range(experts)} in each of ${experts.length} layers, ${range(perToken)} for each token`] : null,
    ['Context', `${whole(facts.context)} tokens`],
    ['Runs on', facts.device],
    ['Architecture', facts.architecture],
  ].filter(Boolean);
  return make('details', { class: 'about' }, make('summary', { text: 'About this model' }),
    make('dl', { class: 'facts-list' }, ...lines.flatMap(([name, value]) => [make('dt', { text: name }), make('dd', { text: value })])));
}

const withExperts = (facts) => facts.experts.filter((count) => count > 0);

/** Every expert as a dot, a layer in each row; some are lit, as many as work on a token. */
function picture(facts) {
  const counts = withExperts(facts);
  if (counts.length === 0) return null;
  const [most, rows] = [Math.max(...counts), counts.length];
  const step = Math.max(2.5, Math.min(16, (byId('blank').clientWidth || 600) / most, (0.24 * innerHeight) / rows));
  const canvas = make('canvas', { class: 'grid-picture', role: 'img', 'aria-label': `${rows} layers of ${most} experts` });
  const scale = devicePixelRatio || 1;
  const paint = () => {
    Object.assign(canvas, { width: Math.ceil(most * step * scale), height: Math.ceil(rows * step * scale) });
    Object.assign(canvas.style, { width: `${most * step}px`, marginLeft: `${-0.2 * step}px` });
    const context = canvas.getContext('2d');
    context.scale(scale, scale);
    context.fillStyle = css('--accent');
    counts.forEach((count, row) => {
      const lit = new Set(Array.from({ length: count }, (_, expert) => expert).sort((a, b) => noise(row, a) - noise(row, b)).slice(0, facts.experts_per_token.filter((picked) => picked > 0)[row]));
      for (let expert = 0; expert < count; expert += 1) {
        context.globalAlpha = lit.has(expert) ? 0.9 : 0.18;
        context.beginPath();
        context.arc((expert + 0.5) * step, (row + 0.5) * step, step * 0.3, 0, 7);
        context.fill();
      }
    });
  };
  paint();
  watchTheme(paint);
  return canvas;
}

/** A fixed pattern: the same picture for the same model. */
const noise = (a, b) => Math.abs(Math.sin(a * 12.9898 + b * 78.233) * 43758.5453) % 1;
