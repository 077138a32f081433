// Which model wrote an answer, how fast it was, and what of its prompt was in the cache.

import { make } from './dom.js';
import { percent, perSecond, rate, whole } from './numbers.js';

const ENDS = { length: 'cut by a limit', stopped: 'stopped', interrupted: 'the page was closed meanwhile' };

/** The line below an answer. */
export function facts(version) {
  const parts = version.usage ? ofUsage(version.usage) : [];
  if (version.model) parts.unshift([version.model, 'The model of this answer']);
  if (ENDS[version.finish]) parts.push([ENDS[version.finish]]);
  return make('p', { class: 'facts' }, ...parts.map(([text, title]) => make('span', { text, title })));
}

function ofUsage(usage) {
  const { prompt_tokens: prompt, completion_tokens: completion, gristmill } = usage;
  const { reused_tokens: reused, prefill_ms: prefill, decode_ms: decode, queue_ms: queue } = gristmill.choices[0];
  const [read, wrote] = [perSecond(rate(prompt - reused, prefill)), perSecond(rate(completion - 1, decode))];
  const parts = [[`${whole(completion)} tokens`, `The prompt has ${whole(prompt)}.`]];
  if (wrote && completion > 1) parts.push([wrote, `Decode: ${whole(Math.round(decode))} ms after the first token`]);
  parts.push([`prompt ${whole(prompt)}${read ? ` at ${read}` : ''}`, `Prefill: ${whole(Math.round(prefill))} ms for ${whole(prompt - reused)} tokens`]);
  if (reused > 0) parts.push([`${percent(reused / prompt)} from the cache`, `${whole(reused)} tokens were known from before.`]);
  const { draft, drafted_tokens: drafted, accepted_tokens: accepted, acceptance_by_place: places } = gristmill.choices[0];
  if (drafted > 0) parts.push([`drafts by ${draft}: ${percent(accepted / drafted)} of ${whole(drafted)} accepted`, `By place: ${places.map(percent).join(' ')}`]);
  if (queue > 100) parts.push([`waited ${(queue / 1000).toFixed(1)} s`, 'In the queue']);
  return parts;
}
