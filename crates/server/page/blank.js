// The page before the first message: the model and its facts.

import { byId, make } from './dom.js';
import { bytes, range, short, whole } from './numbers.js';

export function show(facts) {
  const with_ = facts.experts.filter((count) => count > 0);
  const perToken = facts.experts_per_token.filter((count) => count > 0);
  const lines = [
    ['Parameters', short(facts.parameters)],
    ['Weights', `${bytes(facts.bytes)}${facts.format ? `, mostly ${facts.format}` : ''}`],
    ['Layers', whole(facts.layers)],
    with_.length > 0 ? ['Experts', `${range(with_)} in each of ${with_.length} layers, ${range(perToken)} for each token`] : null,
    ['Context', `${whole(facts.context)} tokens`],
    ['Runs on', facts.device],
    ['Architecture', facts.architecture],
  ].filter(Boolean);
  const list = make('dl', { class: 'facts-list' }, ...lines.flatMap(([name, value]) => [make('dt', { text: name }), make('dd', { text: value })]));
  const grid = with_.length > 0 ? picture(facts, with_) : null;
  byId('blank').replaceChildren(make('h2', { text: facts.title || facts.name }), ...(grid ? [grid] : []), list,
    ...(facts.chat_template ? [] : [make('p', { class: 'muted', text: 'The file has no chat template: the model continues your text.' })]));
}

/** Every expert as a dot, a layer in each row. */
function picture(facts, counts) {
  const [most, rows] = [Math.max(...counts), counts.length];
  const step = Math.max(2.5, Math.min(16, (byId('blank').clientWidth || 600) / most, (0.36 * innerHeight) / rows));
  const canvas = make('canvas', { class: 'grid-picture', role: 'img', 'aria-label': `${counts.length} layers of ${most} experts` });
  const scale = devicePixelRatio || 1;
  const paint = () => {
    Object.assign(canvas, { width: most * step * scale, height: rows * step * scale });
    const context = canvas.getContext('2d');
    context.scale(scale, scale);
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--accent');
    counts.forEach((count, row) => {
      for (let expert = 0; expert < count; expert += 1) {
        context.globalAlpha = 0.18 + 0.5 * noise(row, expert) ** 3;
        context.beginPath();
        context.arc((expert + 0.5) * step, (row + 0.5) * step, step * 0.3, 0, 7);
        context.fill();
      }
    });
  };
  paint();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', paint);
  return canvas;
}

/** A fixed pattern: the same picture for the same model. */
const noise = (a, b) => Math.abs(Math.sin(a * 12.9898 + b * 78.233) * 43758.5453) % 1;
